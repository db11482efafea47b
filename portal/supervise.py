"""What `run.py` becomes inside the environment: `up`, `demo`, `manage`, `test` and `check`."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType

from portal import demo_file
from portal import env as environment
from portal.checks import run_checks
from portal.embedded.engine import running
from portal.embedded.errors import EngineError
from portal.installation import ROOT, Installation, engine_for

TEST_DATA_DIR = ROOT / ".facet-test"


class Stop(BaseException):
    """Somebody asked us to end: Ctrl-C, SIGTERM, or the terminal was closed."""


def say(sentence: str) -> None:
    """Tell the person at the terminal; a terminal that is gone or a full disk is no reason to stop."""
    with contextlib.suppress(OSError):
        print(f"facet: {sentence}", flush=True)  # noqa: T201  # this is the terminal's edge


def _ask_to_stop(_number: int, _frame: FrameType | None) -> None:
    _hear(signal.SIG_IGN)  # stopping once is enough
    raise Stop


def _hear(handler: "Callable[[int, FrameType | None], None] | signal.Handlers") -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


def up(env: environment.Env, *, demo: bool) -> int:
    """Run an installation until somebody asks it to stop."""
    _hear(_ask_to_stop)
    installation: Installation | None = None
    try:
        installation = Installation(env, demo=demo, say=say)
        installation.start()
        _welcome(env, installation.url)
        while True:
            installation.watch()
            time.sleep(0.3)
    except Stop:
        say("stopping ...")
        code = 0
    except EngineError as error:
        say(str(error))
        code = 1
    finally:
        _hear(signal.SIG_IGN)
        if installation is not None:
            installation.stop()
    say("stopped.")
    return code


def _welcome(env: environment.Env, url: str) -> None:
    say(f"ready at {url}  (logs: {env.data_dir}/logs; Ctrl-C stops)")
    known = demo_file.earlier(env.data_dir)
    if known is None:
        say("make the first administrator with: python3 run.py manage createsuperuser")
        return
    for user in known["users"]:
        say(f"  {user['username']:<12} password {user['password']}   token {user['token']}")


def manage(env: environment.Env, words: list[str]) -> int:
    """Run one Django command, with the running installation's servers or with our own for its length."""
    command = [sys.executable, str(ROOT / "manage.py"), *words]
    with contextlib.ExitStack() as stack:
        engine = engine_for(env)
        if engine.servers:
            with contextlib.suppress(EngineError):  # another process runs it: the command finds its address
                engine.lock()
        if engine.is_ours:
            stack.enter_context(running(engine))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command itself hears the terminal
        return subprocess.run(command, check=False, env=environment.outside()).returncode


def test(words: list[str]) -> int:
    """Become pytest; the plugin `tests.services` starts the servers; skips are listed with their reasons.

    The whole suite runs in two processes: most of its time it waits for schedulers, browsers and clocks.
    """
    os.chdir(ROOT)
    words = words or ["-n", "2"]
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *words])  # noqa: S606  # an argv, no shell


def main(argv: list[str]) -> int:
    """Do what the first word says; return the exit code."""
    command, words = argv[0], argv[1:]
    if command == "test":
        return test(words)
    if command == "check":
        return run_checks(say)
    try:
        env = environment.load()
        if command == "manage":
            return manage(env, words)
        return up(env, demo=command == "demo")
    except (environment.BadEnvironment, EngineError) as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
