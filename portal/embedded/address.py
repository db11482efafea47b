"""Where a running engine is reached: one small file in the data directory, readable by its owner only."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

FILE = "engine.json"


@dataclass(frozen=True, slots=True)
class Address:
    """URLs of the database and the queue, in the form that DATABASE_URL and REDIS_URL have."""

    database_url: str
    redis_url: str


def nowhere(data_dir: Path) -> Address:
    """Return where an engine of this data directory would be; connecting there fails until one runs."""
    sockets = quote(str(data_dir / "run"))
    return Address(
        database_url=f"postgresql://facet@/facet?host={sockets}",
        redis_url=f"unix://{sockets}/valkey.sock?db=0",
    )


def write(data_dir: Path, address: Address) -> None:
    """Publish the address of the engine of this data directory, whole or not at all."""
    aside = data_dir / f"{FILE}.new"
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(asdict(address), file)
    aside.replace(data_dir / FILE)


def read(data_dir: Path) -> Address | None:
    """Return the published address, or None when no engine ever ran here."""
    try:
        return Address(**json.loads((data_dir / FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None
