"""Where the demo's stand-in of Globus lives: its port, its application, and the variables that name them.

Only the processes of the demo are told: nothing is set for the whole machine.
"""

import json
import os
import secrets
import socket
import uuid
from pathlib import Path

from pydantic import BaseModel

_FILE = "place.json"
_SECRET_FILE = "application_secret"  # noqa: S105  # a name


class Place(BaseModel):
    """What stays the same over restarts."""

    port: int
    client_id: str


def folder(data_dir: Path) -> Path:
    """Return the stand-in's folder."""
    return data_dir / "globus"


def state_file(data_dir: Path) -> Path:
    """Return the file that the stand-in keeps everything in."""
    return folder(data_dir) / "state.db"


def read(data_dir: Path) -> Place:
    """Return the place that `settle` made.

    Raises:
        FileNotFoundError: this data directory has none.
    """
    return Place.model_validate_json((folder(data_dir) / _FILE).read_text())


def application_secret(data_dir: Path) -> str:
    """Return the secret of the demo's own application."""
    return (folder(data_dir) / _SECRET_FILE).read_text()


def settle(data_dir: Path) -> Place:
    """Return the stand-in's place, made the first time; another port when somebody has taken it since."""
    here = folder(data_dir)
    here.mkdir(parents=True, exist_ok=True, mode=0o700)
    known = read(data_dir) if (here / _FILE).exists() else None
    if known is not None and _is_free(known.port):
        return known
    place = Place(port=_free_port(), client_id=known.client_id if known else str(uuid.uuid4()))
    if not (here / _SECRET_FILE).exists():
        descriptor = os.open(here / _SECRET_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32))
    (here / _FILE).write_text(json.dumps(place.model_dump()))
    return place


def variables(data_dir: Path) -> dict[str, str]:
    """Settle, and return the variables under which Facet uses this stand-in as if it were Globus."""
    place = settle(data_dir)
    url = f"http://127.0.0.1:{place.port}"
    return {
        "FACET_GLOBUS_CLIENT_ID": place.client_id,
        "FACET_GLOBUS_CLIENT_SECRET_FILE": str(folder(data_dir) / _SECRET_FILE),
        "FACET_GLOBUS_AUTH_URL": url,
        "FACET_GLOBUS_COMPUTE_URL": url,
        "FACET_GLOBUS_TRANSFER_URL": url,
        "FACET_GLOBUS_REQUESTS_PER_10S": "1000",
        "FACET_GLOBUS_FIRST_POLL_MS": "20",
    }


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
