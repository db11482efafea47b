"""A whole Facet on one machine: servers, migrations, web, workers, clock, started in order, kept running."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from portal import demo_file
from portal import env as environment
from portal.demo import globus_place, storage
from portal.embedded import processes
from portal.embedded.engine import MARK, Engine
from portal.embedded.errors import EngineError
from portal.program import Backoff, Program

STOP_WITHIN_S = 8.0
READY_WITHIN_S = 120.0
ROOT = environment.ROOT
Say = Callable[[str], None]
DEMO_SITES = ("anvil", "delta", "deltaai", "vista")
"""The demo's emulated clusters; what makes them cannot be loaded before the settings are."""


class Installation:
    """Everything that `run.py up` and `run.py demo` run, over one data directory.

    Args:
        env: the checked environment.
        demo: also make the demo federation and its people.
        say: tells the person at the terminal, one sentence at a time.
    """

    def __init__(self, env: environment.Env, *, demo: bool, say: Say) -> None:
        self.env = env
        self.demo = demo
        self.say = say
        self.engine = engine_for(env)
        self.environment = environment.outside(
            DATA_DIR=str(env.data_dir),
            **{MARK: str(env.data_dir), "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)},
        )
        self.programs: list[Program] = []
        self.engine_backoff = Backoff()

    @property
    def _stands_in(self) -> bool:
        """Say whether this demo brings its own stand-in of Globus: unless an operator set a real one up."""
        return self.demo and self.env.profiles is None and not self.env.globus_client_id

    @property
    def url(self) -> str:
        """Where people find this installation."""
        host = "127.0.0.1" if self.env.host in {"0.0.0.0", "::", ""} else self.env.host  # noqa: S104  # compared only
        return self.env.public_url.rstrip("/") or f"http://{host}:{self.env.port}"

    def start(self) -> None:
        """Start everything and return when `/readyz` answers 200.

        Raises:
            EngineError: something did not start; the message says what and where its log is.
        """
        self.engine.lock()
        stop_marked(self.env.data_dir)
        demo_file.withdraw(self.env.data_dir)
        self._check_port()
        kinds = " and ".join(server.name for server in self.engine.servers)
        self.say(
            f"starting {kinds} in {self.env.data_dir} ..." if kinds else "using the given database and queue."
        )
        self.engine.start()
        self.engine_backoff.note_start(time.monotonic())
        self._prepare()
        self.say("starting web, workers and clock ...")
        self.programs = self._programs()
        for program in self.programs:
            program.start()
        self._wait_until_ready()

    def watch(self) -> None:
        """Restart what has died, once its pause is over; called a few times a second."""
        now = time.monotonic()
        self._watch_engine(now)
        for program in self.programs:
            if program.is_running():
                continue
            if not program.backoff.next_start_at:
                code = program.process.returncode if program.process else "?"
                pause_s = program.backoff.note_end(now)
                self.say(f"{program.name} ended ({code}); starting it again in {pause_s:.0f} s.")
            elif now >= program.backoff.next_start_at:
                program.start()

    def stop(self) -> None:
        """Stop web, clock and workers together, then the servers, then whatever else carries our mark."""
        if not self.engine.is_ours:
            return  # another supervisor's programs carry the same mark
        for program in self.programs:
            program.ask_to_stop()
        deadline = time.monotonic() + STOP_WITHIN_S
        for program in self.programs:
            program.make_stop(deadline - time.monotonic())
        self.engine.stop_servers()
        stop_marked(self.env.data_dir)
        if self.demo:
            self._stop_demo_jobs()
        self.engine.stop()

    def _stop_demo_jobs(self) -> None:
        """End the jobs of the demo's own sites: nothing stays behind. They are requeued next time."""
        for place in ("sandbox", "machine"):
            left = processes.at_home_in(self.env.data_dir / place)
            processes.stop(left, ((signal.SIGTERM, 1.0), (signal.SIGKILL, 3.0)))

    def _watch_engine(self, now: float) -> None:
        dead = [server.name for server in self.engine.servers if not server.is_running()]
        if not dead:
            return
        if not self.engine_backoff.next_start_at:
            pause_s = self.engine_backoff.note_end(now)
            self.say(f"{' and '.join(dead)} ended; starting again in {pause_s:.0f} s.")
        elif now >= self.engine_backoff.next_start_at:
            try:
                self.engine.restart_missing()
                self.engine_backoff.note_start(time.monotonic())
            except EngineError as error:
                pause_s = self.engine_backoff.note_end(time.monotonic())
                self.say(f"{error} Trying again in {pause_s:.0f} s.")

    def _check_port(self) -> None:
        family = socket.AF_INET6 if ":" in self.env.host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.env.host, self.env.port))
            except OSError as error:
                raise EngineError(
                    f"Port {self.env.port} of {self.env.host} cannot be used ({error.strerror}): "
                    "stop the program that has it, or set PORT to another."
                ) from None

    def _prepare(self) -> None:
        """Migrate, load given profiles, and make the demo; each failure is fatal."""
        if self._stands_in:
            self.environment |= globus_place.variables(self.env.data_dir)
        if self.demo and self.env.profiles is None and not self.env.local_roots:
            name = environment.variable_of("local_roots")
            self.environment[name] = storage.roots(self.env.data_dir, DEMO_SITES)
        self._manage("migrate", "--noinput", "--verbosity", "1")
        if self.env.profiles is not None:
            self._manage("load_profiles", str(self.env.profiles))
        if not self.demo:
            return
        if has_command("facet_demo"):
            self._manage("facet_demo")
        else:
            self.say("there is no demo federation in this release.")

    def _manage(self, *words: str) -> None:
        self.say(f"manage {' '.join(words)}")
        command = [sys.executable, str(ROOT / "manage.py"), *words]
        done = subprocess.run(command, env=self.environment, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise EngineError(f"manage {words[0]} failed (see above); nothing was started.")

    def _programs(self) -> list[Program]:
        celery = [sys.executable, "-m", "celery", "--app", "portal.celery:app", "--quiet"]
        worker = [*celery, "worker", "--without-gossip", "--without-mingle", "--loglevel", "INFO"]
        web = [
            *(sys.executable, "-m", "uvicorn", "portal.asgi:application"),
            *("--host", self.env.host, "--port", str(self.env.port)),
            *("--timeout-graceful-shutdown", "3", "--no-access-log"),
        ]
        clock = [*celery, "beat", "--pidfile=", "--scheduler", "celery.beat:Scheduler"]
        pool = {environment.variable_of("database_pool"): str(self.env.web_threads)}
        sandbox = (
            [self._program("sandbox", [sys.executable, "-m", "portal.demo.sandbox"])] if self.demo else []
        )
        if self._stands_in:
            sandbox.append(self._program("globus", [sys.executable, "-m", "portal.demo.globus_serve"]))
        return [
            *sandbox,
            self._program("web", web, **pool),
            self._program("control-worker", [*worker, *_queues("control", workers=self.env.control_workers)]),
            self._program(
                "default-worker", [*worker, *_queues("default", "delivery", workers=self.env.default_workers)]
            ),
            self._program("clock", clock),
        ]

    def _program(self, name: str, argv: list[str], **variables: str) -> Program:
        return Program(name, argv, {**self.environment, **variables}, self.engine.log(name))

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        parts: dict[str, Any] = {}
        while time.monotonic() < deadline:
            self.watch()
            parts = self._missing_parts()
            if not parts:
                return
            if list(parts) == ["demo"]:
                demo_file.publish(self.env.data_dir)
            time.sleep(0.1 if list(parts) == ["demo"] else 0.3)
        missing = ", ".join(f"{name} ({part.get('why', 'not ok')})" for name, part in parts.items())
        raise EngineError(
            f"Facet was not ready in {READY_WITHIN_S:.0f} s: {missing}. Logs: {self.env.data_dir}/logs"
        )

    def _missing_parts(self) -> dict[str, Any]:
        """Return the parts that `/readyz` calls not ok; empty when it answers 200."""
        host = "127.0.0.1" if self.env.host in {"0.0.0.0", ""} else self.env.host  # noqa: S104  # compared only
        web = http.client.HTTPConnection(host, self.env.port, timeout=10)
        try:
            web.request(
                "GET", "/readyz", headers={"Host": f"localhost:{self.env.port}", "X-Forwarded-Proto": "https"}
            )
            answer = web.getresponse()
            content = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            return {"web": {"why": "does not answer"}}
        finally:
            web.close()
        return {name: part for name, part in content["parts"].items() if not part["ok"]}


def engine_for(env: environment.Env, *, durable: bool = True) -> Engine:
    """Return the engine of an environment: it runs the servers that no URL names."""
    return Engine(
        env.data_dir,
        postgres=env.database_url is None,
        valkey=env.redis_url is None,
        durable=durable,
        tcp_port=env.postgres_port,
        root_mode=env.root_mode,
    )


def stop_marked(data_dir: Path) -> None:
    """Stop every process that an earlier, killed supervisor of this data directory left behind."""
    left = processes.marked(MARK, str(data_dir))
    processes.stop(left, ((signal.SIGTERM, 4.0), (signal.SIGKILL, 4.0)))


def has_command(name: str) -> bool:
    """Say whether one of our applications brings a management command."""
    return any(ROOT.glob(f"*/management/commands/{name}.py"))


def _queues(*names: str, workers: int) -> list[str]:
    return ["--queues", ",".join(names), "--hostname", f"{names[0]}@%h", "--concurrency", str(workers)]
