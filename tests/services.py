"""Early pytest plugin: gives the suite a real PostgreSQL and Valkey before Django's settings load.

Loaded by `-p tests.services` (pyproject.toml). Servers given by DATABASE_URL and REDIS_URL are used instead.
In a distributed run (`-n 2`) every worker has servers and a data directory of its own: tests empty the Valkey
and write below DATA_DIR. Nothing is started for `--collect-only`, `--help` and `--version`, nor by the
process that only hands out the tests.
"""

import atexit
import os
import sys
from pathlib import Path

from portal.embedded.engine import Engine
from portal.embedded.errors import EngineError

ROOT = Path(__file__).resolve().parent.parent
_STARTS_NONE = {"--collect-only", "--co", "--help", "-h", "--version"}


def _hands_out(words: list[str]) -> bool:
    return any(word.startswith(("-n", "--numprocesses")) for word in words)


def _start() -> None:
    """Start what no URL names, in a data directory of the test suite's own, with fsync off."""
    data_dir = Path(os.environ.get("DATA_DIR") or ROOT / ".facet-test").absolute()
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker:
        data_dir /= worker
    os.environ |= {
        "FACET_TESTING": "1",
        "DATA_DIR": str(data_dir),
        "DJANGO_SETTINGS_MODULE": "portal.settings",
    }
    postgres, valkey = not os.environ.get("DATABASE_URL"), not os.environ.get("REDIS_URL")
    if not (postgres or valkey) or _STARTS_NONE & set(sys.argv) or (not worker and _hands_out(sys.argv)):
        return
    try:
        engine = Engine(data_dir, postgres=postgres, valkey=valkey, durable=False).start()
    except EngineError as error:
        sys.exit(f"tests: {error}")
    atexit.register(engine.stop)
    if postgres:
        os.environ["DATABASE_URL"] = engine.address.database_url
    if valkey:
        os.environ["REDIS_URL"] = engine.address.redis_url


_start()
