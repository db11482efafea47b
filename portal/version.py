"""Which Facet this is."""

import tomllib
from functools import cache

from portal.env import ROOT


@cache
def version() -> str:
    """Return the version that pyproject.toml states."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
