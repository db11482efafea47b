"""The command line as people install it: its wheel, alone in an environment of the oldest Python here."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLI = ROOT / "cli"
OLDEST = (3, 9)
"""What cli/pyproject.toml promises."""


def _candidates() -> Iterator[Path]:
    """Yield interpreters, oldest first: on the PATH, and where pyenv and uv keep theirs."""
    kept = [Path.home() / ".pyenv" / "versions", Path.home() / ".local" / "share" / "uv" / "python"]
    for minor in range(OLDEST[1], sys.version_info.minor):
        found = shutil.which(f"python3.{minor}")
        if found:
            yield Path(found)
        for folder in kept:
            yield from sorted(folder.glob(f"*3.{minor}.*/bin/python3"))
    yield Path(sys.executable)


def _runs(python: Path) -> bool:
    """Return whether it really is one that can make environments; a shim of pyenv may be neither."""
    asks = f"import ensurepip, ssl, sys; sys.exit(sys.version_info[:2] < {OLDEST})"
    return subprocess.run([python, "-c", asks], capture_output=True, check=False, timeout=60).returncode == 0


def oldest() -> Path:
    """Return the oldest Python here that the command line promises to run on; CLI_PYTHON names another."""
    given = os.environ.get("CLI_PYTHON")
    return Path(given) if given else next(each for each in _candidates() if _runs(each))


def build(folder: Path) -> Path:
    """Build the wheel there, without a network."""
    source = folder / "source"
    shutil.copytree(CLI, source, ignore=shutil.ignore_patterns("__pycache__", "dist", ".ruff_cache"))
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=source,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path, python: Path) -> Path:
    """Install a wheel alone into a fresh environment and return its interpreter."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    subprocess.run([python, "-m", "venv", str(folder)], env=environment, check=True, timeout=180)
    inside = folder / "bin" / "python"
    words = ("install", "--no-index", "--no-deps", "--quiet", "--disable-pip-version-check", str(wheel))
    subprocess.run([inside, "-m", "pip", *words], env=environment, check=True, timeout=180)
    return inside


@cache
def python() -> str:
    """Return the interpreter that has the command line installed; made once in a run."""
    folder = Path(tempfile.mkdtemp(prefix="facet-cli-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "wheel").mkdir()
    return str(install(build(folder / "wheel"), folder / "installed", oldest()))
