"""The command line as a wheel, made from its sources: the same bytes every time, without a build tool.

An installation serves the command line that fits it, so that nobody has to ask a public index for a name.
Format: Binary distribution format 1.0 (packaging.python.org, "The .dist-info directory").
"""

import base64
import hashlib
import io
import tomllib
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).resolve().parent.parent / "cli"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_WHEEL = "Wheel-Version: 1.0\nGenerator: facet\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@cache
def _project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((SOURCES / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def name() -> str:
    """Return the wheel's file name."""
    return f"{_project()['name'].replace('-', '_')}-{_project()['version']}-py3-none-any.whl"


@cache
def content() -> bytes:
    """Return the wheel."""
    info = "-".join(name().split("-")[:2]) + ".dist-info"
    package = SOURCES / "facet_cli"
    files = {
        path.relative_to(SOURCES).as_posix(): path.read_bytes() for path in sorted(package.rglob("*.py"))
    }
    files[f"{info}/METADATA"] = _metadata().encode()
    files[f"{info}/WHEEL"] = _WHEEL.encode()
    scripts = "".join(f"{word} = {what}\n" for word, what in _project()["scripts"].items())
    files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{scripts}".encode()
    lines = [f"{path},sha256={_digest(held)},{len(held)}" for path, held in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    kept = io.BytesIO()
    with zipfile.ZipFile(kept, "w") as made:
        for path, held in files.items():
            entry = zipfile.ZipInfo(path, _LONG_AGO)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            made.writestr(
                entry, held, compress_type=zipfile.ZIP_STORED
            )  # another zlib would give other bytes
    return kept.getvalue()


def digest() -> str:
    """Return the SHA-256 of the wheel in hex digits."""
    return hashlib.sha256(content()).hexdigest()


def _metadata() -> str:
    project = _project()
    return (
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        f"Summary: {project['description']}\nRequires-Python: {project['requires-python']}\n"
    )


def _digest(held: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(held).digest()).rstrip(b"=").decode()
