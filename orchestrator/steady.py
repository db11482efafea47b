"""A clock that nobody sets: how long something has really lasted, told by the machine that looks.

The clock of the day may jump by hours (a wrong battery, a restored machine); this one counts from a machine's
start. It is worth nothing on another machine or after a restart, so its readings are kept by machine.
"""

import time
import uuid
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def machine() -> str:
    """Return what names this machine until it is started again."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:  # not Linux
        return f"{uuid.getnode():x}"


def seconds() -> float:
    """Return this machine's steady clock, s."""
    return time.monotonic()
