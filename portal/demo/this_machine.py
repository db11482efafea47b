"""The host that runs Facet, as one more system of the demo. Its jobs run as the user that runs Facet."""

import platform
from pathlib import Path
from typing import Any

SLUG = "this-machine"
_TEMPLATE = Path(__file__).parent / "profiles" / "machine.yaml"
_ARCHITECTURES = {
    "x86_64": "x86_64",
    "amd64": "x86_64",
    "aarch64": "aarch64",
    "arm64": "aarch64",
    "ppc64le": "ppc64le",
}
"""A profile's word by the kernel's."""


def profile_text() -> str | None:
    """Return the profile with this host's architecture; None where the dialect cannot speak to this host."""
    word = _ARCHITECTURES.get(platform.machine().lower())
    if platform.system() != "Linux" or word is None:
        return None
    return _TEMPLATE.read_text().replace("architecture: x86_64", f"architecture: {word}")


def way_in(data_dir: Path, username: str) -> dict[str, Any]:
    """Make a person's own folder and return their connection's settings.

    The queue is one for all of them: they share the CPUs.
    """
    place = data_dir / "machine"
    home = place / username
    home.mkdir(parents=True, exist_ok=True)
    return {
        "env": {
            "USER": username,
            "LOGNAME": username,
            "HOME": str(home),
            "FACET_MACHINE_DIR": str(place / ".queue"),
        }
    }
