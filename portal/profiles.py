"""Reading site profiles from files."""

from pathlib import Path

from federation.profile import ProfileDocument
from federation.profile_yaml import read_profile
from providers.errors import ProfileInvalid

Outcome = tuple[ProfileDocument, str] | ProfileInvalid


def read_all(path: str | Path) -> list[tuple[Path, Outcome]]:
    """Return every profile at a path (a file, or a folder of .yaml and .yml), or what is wrong with it.

    A path without profiles is a fault itself.
    """
    root = Path(path)
    files = (
        sorted(file for file in root.iterdir() if file.suffix in (".yaml", ".yml"))
        if root.is_dir()
        else [root]
    )
    if not files:
        return [(root, ProfileInvalid(f"{root}: no .yaml files here", line=1, column=1))]
    return [(file, _read(file)) for file in files]


def _read(file: Path) -> Outcome:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return ProfileInvalid(f"{file}: {error}", line=1, column=1)
    try:
        return read_profile(text, source=str(file)), text
    except ProfileInvalid as fault:
        return fault
