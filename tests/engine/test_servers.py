"""The embedded servers survive every way of dying that we know."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest
from redis import Redis

from portal.embedded import processes
from portal.embedded.engine import Engine, running, socket_folder
from portal.embedded.errors import EngineError
from portal.embedded.run_as import RunAs, choose_mode, user_namespaces_work

pytestmark = pytest.mark.services
ROOT = Path(__file__).resolve().parents[2]

HOLD = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    from portal.embedded.engine import Engine
    engine = Engine(Path(sys.argv[1])).start()
    print(engine.address.database_url, engine.address.redis_url, flush=True)
    time.sleep(120)
""")


class Launcher:
    """An engine held by a process of its own, which may be killed."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        command = [sys.executable, "-c", HOLD, str(data_dir)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert self.process.stdout is not None
        self.database_url, self.redis_url = self.process.stdout.readline().split()
        self.servers = [child.pid for child in psutil.Process(self.process.pid).children()]

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=20)

    @property
    def postmaster(self) -> int:
        return int((self.data_dir / "pg" / "postmaster.pid").read_text().split()[0])


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One data directory through all the deaths below; what was acknowledged must outlive each."""
    return tmp_path_factory.mktemp("engine") / "state"


@pytest.fixture(scope="module", autouse=True)
def no_server_outlives_the_module(data_dir: Path) -> Iterator[None]:
    yield
    assert processes.marked("FACET_ENGINE", str(data_dir)) == []


def remember(database_url: str, redis_url: str, word: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as database:
        database.execute("create table if not exists word (word text primary key)")
        database.execute("insert into word values (%s)", [word])
    with Redis.from_url(redis_url) as queue:
        queue.rpush("words", word)


def remembered(engine: Engine) -> tuple[set[str], set[str]]:
    with psycopg.connect(engine.address.database_url) as database:
        rows = {word for (word,) in database.execute("select word from word")}
    with Redis.from_url(engine.address.redis_url) as queue:
        return rows, {word.decode() for word in queue.lrange("words", 0, -1)}


def test_a_first_start_makes_an_own_role_that_is_no_superuser(data_dir: Path) -> None:
    with running(Engine(data_dir)) as engine, psycopg.connect(engine.address.database_url) as database:
        row = database.execute(
            "select current_user, current_database(), rolsuper, rolcreatedb,"
            " current_setting('data_checksums'), current_setting('listen_addresses')"
            " from pg_roles where rolname = current_user"
        ).fetchone()

    assert row == ("facet", "facet", False, True, "on", "")


def test_sockets_and_secrets_are_closed_to_others_and_a_wrong_password_is_refused(data_dir: Path) -> None:
    with running(Engine(data_dir)) as engine:
        modes = {
            path.name: oct(path.stat().st_mode & 0o777)
            for path in (data_dir / "run", data_dir / "postgres.passwords", data_dir / "engine.json")
        }
        wrong = engine.address.database_url.replace("facet:", "facet:x", 1)
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(wrong)

    assert modes == {"run": "0o700", "postgres.passwords": "0o600", "engine.json": "0o600"}


def test_what_was_acknowledged_outlives_a_killed_launcher(data_dir: Path) -> None:
    launcher = Launcher(data_dir)
    remember(launcher.database_url, launcher.redis_url, "launcher")

    launcher.kill()

    with running(Engine(data_dir)) as engine:
        rows, words = remembered(engine)
        assert "launcher" in rows
        assert "launcher" in words
        assert not any(processes.is_running(pid) for pid in launcher.servers)


def test_servers_orphaned_by_a_killed_launcher_are_stopped_by_the_next_start(data_dir: Path) -> None:
    launcher = Launcher(data_dir)
    for pid in launcher.servers:
        os.kill(pid, signal.SIGSTOP)  # deaf to the death signal, like servers on a system that has none
    launcher.kill()
    for pid in launcher.servers:
        assert processes.is_running(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    with running(Engine(data_dir)):
        assert not any(processes.is_running(pid) for pid in launcher.servers)


def test_a_killed_postgres_starts_again_under_the_same_engine(data_dir: Path) -> None:
    with running(Engine(data_dir)) as engine:
        remember(engine.address.database_url, engine.address.redis_url, "postgres")
        assert engine.postgres is not None
        assert engine.postgres.process is not None
        engine.postgres.process.kill()
        engine.postgres.process.wait(10)

        engine.restart_missing()

        assert "postgres" in remembered(engine)[0]


def test_a_killed_valkey_starts_again_under_the_same_engine(data_dir: Path) -> None:
    with running(Engine(data_dir)) as engine:
        remember(engine.address.database_url, engine.address.redis_url, "valkey")
        assert engine.valkey is not None
        assert engine.valkey.process is not None
        engine.valkey.process.kill()
        engine.valkey.process.wait(10)

        engine.restart_missing()

        assert "valkey" in remembered(engine)[1]


def test_a_postmaster_file_that_names_a_stranger_does_not_block_the_start(data_dir: Path) -> None:
    launcher = Launcher(data_dir)
    remember(launcher.database_url, launcher.redis_url, "stranger")
    stale = (data_dir / "pg" / "postmaster.pid").read_text().splitlines()
    os.kill(launcher.postmaster, signal.SIGKILL)
    launcher.kill()
    stranger = subprocess.Popen(["sleep", "60"])
    (data_dir / "pg" / "postmaster.pid").write_text("\n".join([str(stranger.pid), *stale[1:]]) + "\n")

    try:
        with running(Engine(data_dir)) as engine:
            assert "stranger" in remembered(engine)[0]
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait(10)


def test_a_second_launcher_is_refused_with_the_process_that_holds_the_directory(data_dir: Path) -> None:
    with running(Engine(data_dir)) as engine:
        remember(engine.address.database_url, engine.address.redis_url, "second")
        program = "import sys; from pathlib import Path; from portal.embedded.engine import Engine; "
        second = subprocess.run(
            [sys.executable, "-c", program + "Engine(Path(sys.argv[1])).start()", str(data_dir)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        assert "second" in remembered(engine)[0]

    assert second.stderr.splitlines()[-1] == (
        f"portal.embedded.errors.EngineError: Facet already runs in {data_dir} (process {os.getpid()}): "
        "stop it, or choose another DATA_DIR."
    )


def test_a_half_made_cluster_is_put_aside_and_made_anew(tmp_path: Path) -> None:
    (tmp_path / "pg").mkdir()
    (tmp_path / "pg" / "PG_VERSION").write_text("18\n")
    (tmp_path / "pg.new").mkdir()
    (tmp_path / "pg.new" / "rubbish").touch()

    engine = Engine(tmp_path, valkey=False, durable=False)
    with running(engine), psycopg.connect(engine.address.database_url) as database:
        assert database.execute("select 1").fetchone() == (1,)

    assert [path.name[:10] for path in tmp_path.glob("pg.*")] == ["pg.broken-"]


def test_a_cluster_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pg").mkdir()
    (tmp_path / "pg" / "PG_VERSION").write_text("15\n")
    (tmp_path / "pg" / ".made-whole").touch()

    with pytest.raises(EngineError, match=r"was made by PostgreSQL 15, the installed one is 18: dump it"):
        Engine(tmp_path, valkey=False).start()


def test_a_long_or_odd_path_still_gets_sockets(tmp_path: Path) -> None:
    odd = tmp_path / 'a "quoted" & spaced, 100% näme'
    long = tmp_path / ("x" * 60) / ("y" * 60)

    assert socket_folder(long).parent != long
    assert len(str(socket_folder(long) / ".s.PGSQL.65535.lock")) <= 100
    with running(Engine(odd, durable=False)) as engine:
        remember(engine.address.database_url, engine.address.redis_url, "odd")
        assert remembered(engine) == ({"odd"}, {"odd"})
    socket_folder(long).rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes the user")
def test_root_without_user_namespaces_runs_postgres_as_nobody(tmp_path: Path) -> None:
    engine = Engine(tmp_path, valkey=False, durable=False, root_mode="setuid")
    assert engine.postgres is not None
    home = engine.postgres.cluster.parent

    try:
        with running(engine), psycopg.connect(engine.address.database_url) as database:
            assert database.execute("select current_user").fetchone() == ("facet",)
            assert engine.postgres.process is not None
            assert psutil.Process(engine.postgres.process.pid).uids().real == 65534
    finally:
        subprocess.run(["rm", "-rf", str(home)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is mapped")
def test_root_uses_a_user_namespace_where_the_kernel_allows_it() -> None:
    assert RunAs(choose_mode()).mode == ("userns" if user_namespaces_work() else "setuid")
