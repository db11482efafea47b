"""`run.py up` as a person and as an operating system meet it: ready, wounded, refused, stopped, gone."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from redis import Redis

from portal.embedded import processes
from portal.embedded.engine import Engine, running

pytestmark = [pytest.mark.services, pytest.mark.timeout(180)]
ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def outside(data_dir: Path, port: int, **more: str) -> dict[str, str]:
    """An environment without the test suite's own servers."""
    kept = {
        name: content
        for name, content in os.environ.items()
        if not name.startswith("FACET_") and name not in {"DATABASE_URL", "REDIS_URL", "DATA_DIR", "PORT"}
    }
    small = {"FACET_CONTROL_WORKERS": "1", "FACET_DEFAULT_WORKERS": "1"}
    return {**kept, **small, "PYTHONPATH": str(ROOT), "DATA_DIR": str(data_dir), "PORT": str(port), **more}


COMMAND = [sys.executable, "-P", "-m", "portal.supervise"]


class Up:
    """One running `up`, its output read by a thread so that it never blocks."""

    def __init__(self, data_dir: Path, port: int, **more: str) -> None:
        self.data_dir, self.port = data_dir, port
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [*COMMAND, "up"],
            env=outside(data_dir, port, **more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            self.lines += iter(output.readline, "")

    def wait_for(self, text: str, within_s: float = 90) -> None:
        said = processes.wait_until(
            lambda: any(text in line for line in self.lines) or self.process.poll() is not None, within_s
        )
        assert said
        assert any(text in line for line in self.lines), "".join(self.lines)

    def readyz(self) -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=15) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())
        except OSError:
            return 0, {}

    def is_ready(self) -> bool:
        return self.readyz()[0] == 200

    def family(self) -> dict[str, psutil.Process]:
        """Our direct children by what they do."""
        named = {}
        for child in psutil.Process(self.process.pid).children():
            words = " ".join(child.cmdline())
            for name in (
                "uvicorn",
                "--queues control",
                "--queues default",
                " beat ",
                "valkey-server",
                "postgres",
            ):
                if name in words:
                    named[name.strip("- ").removeprefix("queues ")] = child
                    break
        return named

    def marked(self) -> list[int]:
        return processes.marked("FACET_ENGINE", str(self.data_dir))

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(30)
        self.reader.join(5)
        return code


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = Up(tmp_path_factory.mktemp("up") / "state", free_port())
    running.wait_for("ready at")
    yield running
    if running.process.poll() is None:
        running.end()
    processes.stop(running.marked(), ((signal.SIGKILL, 5.0),))


def test_an_installation_lives_and_dies_as_it_should(up: Up) -> None:
    """One story, because a start costs seconds: each step below relies on the one before."""
    assert up.readyz()[0] == 200
    assert set(up.family()) == {"uvicorn", "control", "default", "beat", "valkey-server", "postgres"}

    a_second_supervisor_is_refused_and_harms_nothing(up)
    a_taken_port_is_named(up)
    a_killed_part_is_noted_and_comes_back(up, "default", "default-worker ended (-9)")
    a_killed_part_is_noted_and_comes_back(up, "valkey-server", "valkey ended")
    a_killed_part_is_noted_and_comes_back(up, "postgres", "postgres ended")
    a_silent_worker_makes_it_unready_with_a_reason(up)
    again = a_killed_supervisor_is_followed_by_a_clean_start(up)
    sigint_stops_everything_within_seconds(again)


def a_second_supervisor_is_refused_and_harms_nothing(up: Up) -> None:
    before = set(up.marked())
    second = subprocess.run(
        [*COMMAND, "up"], env=outside(up.data_dir, free_port()), capture_output=True, text=True, check=False
    )

    assert second.returncode == 1
    assert f"Facet already runs in {up.data_dir} (process {up.process.pid})" in second.stdout
    assert before <= set(up.marked())


def a_taken_port_is_named(up: Up) -> None:
    other = up.data_dir.with_name("other")
    second = subprocess.run(
        [*COMMAND, "up"], env=outside(other, up.port), capture_output=True, text=True, check=False
    )

    assert second.returncode == 1
    assert f"Port {up.port} of 127.0.0.1 cannot be used (Address already in use)" in second.stdout
    assert processes.marked("FACET_ENGINE", str(other)) == []


def a_killed_part_is_noted_and_comes_back(up: Up, part: str, note: str) -> None:
    before = up.family()[part]
    before.kill()

    up.wait_for(note, 10)

    assert processes.wait_until(lambda: part in up.family() and up.family()[part].pid != before.pid, 20)
    assert processes.wait_until(up.is_ready, 30)


def a_silent_worker_makes_it_unready_with_a_reason(up: Up) -> None:
    worker = up.family()["control"]
    worker.suspend()
    try:
        silent = processes.wait_until(lambda: up.readyz()[0] == 503, 25)
        parts = up.readyz()[1]["parts"]
    finally:
        worker.resume()

    assert silent
    assert parts["control_worker"]["why"] == "silent for over 15 s"
    assert parts["default_worker"]["ok"] is True


def a_killed_supervisor_is_followed_by_a_clean_start(up: Up) -> Up:
    left = up.marked()
    up.process.kill()
    up.process.wait(10)
    up.reader.join(15)

    again = Up(up.data_dir, up.port)
    again.wait_for("ready at")

    assert not any(processes.is_running(pid) for pid in left)
    return again


def sigint_stops_everything_within_seconds(again: Up) -> None:
    everybody = [child.pid for child in psutil.Process(again.process.pid).children(recursive=True)]
    started = time.monotonic()

    code = again.end(signal.SIGINT)

    assert code == 0
    assert time.monotonic() - started < 15
    assert again.lines[-1] == "facet: stopped.\n"
    assert len(everybody) > 8
    assert again.marked() == []
    assert not any(processes.is_running(pid) for pid in everybody)


def test_a_bad_variable_stops_the_start_before_anything_is_made(tmp_path: Path) -> None:
    refused = subprocess.run(
        [*COMMAND, "up"],
        env=outside(tmp_path / "state", 1, FACET_LOG_LEVL="debug"),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (refused.returncode, refused.stdout) == (
        1,
        "facet: FACET_LOG_LEVL: no such variable; did you mean FACET_LOG_LEVEL?\n",
    )
    assert not (tmp_path / "state").exists()


def test_manage_brings_servers_for_one_command_and_passes_its_exit_code(tmp_path: Path) -> None:
    variables = outside(tmp_path, 1)

    def manage(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, "manage", *words], env=variables, capture_output=True, text=True, check=False
        )

    shown = manage(
        "shell", "-v0", "-c", "from django.db import connection as c; print(c.cursor().execute('select 7'))"
    )
    wrong = manage("no_such_command")

    assert shown.returncode == 0, shown.stderr
    assert wrong.returncode == 1
    assert "Unknown command: 'no_such_command'" in wrong.stderr
    assert processes.marked("FACET_ENGINE", str(tmp_path)) == []


def test_servers_given_by_url_are_used_and_none_of_our_own_is_started(tmp_path: Path) -> None:
    program = (
        "from django.db import connection as c; from portal.heartbeat import beat, redis_client;"
        "k = c.cursor(); k.execute('create table seen (here int)'); beat('clock')"
    )
    with running(Engine(tmp_path / "theirs", durable=False)) as theirs:
        given = {"DATABASE_URL": theirs.address.database_url, "REDIS_URL": theirs.address.redis_url}
        done = subprocess.run(
            [*COMMAND, "manage", "shell", "-v0", "-c", program],
            env=outside(tmp_path / "ours", 1, **given),
            capture_output=True,
            text=True,
            check=False,
        )
        with psycopg.connect(theirs.address.database_url) as database:
            seen = database.execute("select to_regclass('seen')::text").fetchone()
        with Redis.from_url(theirs.address.redis_url) as queue:
            beaten = queue.exists("facet:clock")

    assert (done.returncode, done.stderr) == (0, "")
    assert (seen, beaten) == (("seen",), 1)
    assert {path.name for path in (tmp_path / "ours").iterdir()} <= {"secret_key", "run"}
