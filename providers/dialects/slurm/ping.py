"""The question that keeps a dead or frozen controller from costing half a minute a command.

`scontrol ping` answers at once when the controller is dead and ends with 1 unless one controller is up; a
frozen one keeps it waiting, so it has little time. What needs the controller requires it; accounting is
another daemon and is asked either way.

Source: scontrol(1) ping; 22.05 run against dead and frozen controllers.
"""

from typing import Final

from providers.types import Exec

PING: Final = "ping"
_TIMEOUT_S: Final = 4.0


def build_ping() -> Exec:
    """Return the ping; batches put together from several of ours run it once, since it has one name."""
    return Exec(
        name=PING,
        argv=("scontrol", "ping"),
        env={"TZ": "UTC", "LC_ALL": "C"},
        timeout_s=_TIMEOUT_S,
        max_bytes=64 * 1024,
    )
