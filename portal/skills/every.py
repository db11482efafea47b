"""Importing this module registers every skill there is."""

from portal.skills import (
    advising,
    envelopes,
    events,
    federation,
    groups,
    logs,
    placing,
    results,
    transfers,
)
from portal.skills.registry import SKILLS

__all__ = [
    "SKILLS",
    "advising",
    "envelopes",
    "events",
    "federation",
    "groups",
    "logs",
    "placing",
    "results",
    "transfers",
]
