"""What `run.py check` holds the code to; the checks run side by side and each prints only when it fails."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from portal import env as environment

ROOT = environment.ROOT
PUBLIC_HOSTS = {"pypi.org", "files.pythonhosted.org"}
SIDE_BY_SIDE = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one check found; `report` is for people and empty when all is well."""

    name: str
    passed: bool
    report: str
    seconds: float


def lock_hosts(lock: str) -> list[str]:
    """Return the hosts a lock file names that are not public package hosts, each once."""
    hosts = {urlsplit(url).hostname or url for url in re.findall(r'"(https?://[^"]+)"', lock)}
    paths = set(re.findall(r'(?:path|directory|editable|find-links|registry) = "((?!https?://)[^"]+)"', lock))
    return sorted((hosts - PUBLIC_HOSTS) | paths)


def _commands() -> dict[str, list[str]]:
    """Return the checks that are programs, slowest first."""
    tools = Path(sys.executable).parent
    # No database runs here, and Django warns that it cannot ask one about its history.
    manage = [sys.executable, "-W", "ignore::RuntimeWarning", str(ROOT / "manage.py")]
    commands = {
        "types (mypy)": [str(tools / "mypy"), "."],
        "migrations": [*manage, "makemigrations", "--check", "--dry-run"],
        "import contracts": [str(tools / "lint-imports")],
        "linter (ruff)": [str(tools / "ruff"), "check", "."],
        "formatter (ruff)": [str(tools / "ruff"), "format", "--check", "."],
    }
    if any(ROOT.glob("*/management/commands/facet_openapi.py")):
        commands["schema drift"] = [*manage, "facet_openapi", "--check"]
    return commands


def _run(name: str, command: list[str], variables: dict[str, str]) -> Outcome:
    started = time.monotonic()
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Outcome(name, done.returncode == 0, done.stdout.strip(), time.monotonic() - started)


def run_checks(say: Callable[[str], None]) -> int:
    """Run every check and return 0 when all pass, else 1; needs no database and leaves no state."""
    strange = lock_hosts((ROOT / "uv.lock").read_text())
    outcomes = [Outcome("lock-file hosts", not strange, "uv.lock names " + ", ".join(strange), 0.0)]
    _tell(outcomes[0], say)
    commands = _commands()
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(min(SIDE_BY_SIDE, os.cpu_count() or 1)) as pool,
    ):
        variables = environment.outside(DATA_DIR=folder, PYTHONPATH=str(ROOT))
        waiting = [pool.submit(_run, name, command, variables) for name, command in commands.items()]
        for future in waiting:
            outcomes.append(future.result())
            _tell(outcomes[-1], say)
    if "schema drift" not in commands:
        say("skipped  schema drift: this release has no facet_openapi command")
    failed = [outcome.name for outcome in outcomes if not outcome.passed]
    say(
        f"{len(failed)} of {len(outcomes)} checks failed: {', '.join(failed)}"
        if failed
        else "all checks passed."
    )
    return 1 if failed else 0


def _tell(outcome: Outcome, say: Callable[[str], None]) -> None:
    say(f"{'passed' if outcome.passed else 'FAILED':<8} {outcome.name} ({outcome.seconds:.1f} s)")
    if not outcome.passed:
        say(outcome.report)
