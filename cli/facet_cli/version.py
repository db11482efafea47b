"""Which version this is."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """Return the installed version; `source` when run from a checkout."""
    try:
        return metadata.version("facet-cli")
    except metadata.PackageNotFoundError:
        return "source"
