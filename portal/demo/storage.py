"""Where the demo's data is: a folder for each person on this machine, and the storages of its systems.

Two systems are reached through collections of the stand-in, as their commands are through its endpoints.
"""

import json
from collections.abc import Iterable
from pathlib import Path

COLLECTIONS = {
    "deltaai": "7f0c3d1a-2f0e-4f55-9b0f-6a1d0c8e5a11",
    "vista": "9a2d4e6b-8c1f-4a37-b5d2-3e7f9b1c6d22",
}
"""The systems whose files are reached as collections, and the collections' ids."""
SAMPLE = "sample.txt"
_TEXT = "time_s temperature_k\n0 293.1\n60 294.8\n120 297.2\n"


def roots(data_dir: Path, slugs: Iterable[str]) -> str:
    """Return the folders in which people of the demo may move files, as FACET_LOCAL_ROOTS takes them."""
    homes = [data_dir / "sandbox" / slug / "home" / "{user}" for slug in slugs]
    return ",".join(map(str, [data_dir / "data" / "{user}", *homes]))


def make_folder(data_dir: Path, username: str) -> None:
    """Make a person's own folder of data, with a small file to begin with."""
    folder = data_dir / "data" / username
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / SAMPLE).exists():
        (folder / SAMPLE).write_text(_TEXT)


def profile_lines(place: Path, slug: str, *, with_collection: bool) -> str:
    """Return the lines of a profile that say how an emulated system's home folders are reached."""
    home = f"{place}/home/{{user}}"
    uris = [f"globus://{COLLECTIONS[slug]}/"] if with_collection and slug in COLLECTIONS else []
    uris.append(f"file://{home}/")
    rows = [f"  - {{uri: {json.dumps(uri)}, path: {json.dumps(home)}}}" for uri in uris]
    return "\n".join(["storage:", *rows, ""])
