"""Importing this module registers every skill there is."""

from portal.skills import (
    advising,
    budgets,
    envelopes,
    events,
    federation,
    groups,
    logs,
    placing,
    results,
    templates,
    transfers,
)
from portal.skills.registry import SKILLS

__all__ = [
    "SKILLS",
    "advising",
    "budgets",
    "envelopes",
    "events",
    "federation",
    "groups",
    "logs",
    "placing",
    "results",
    "templates",
    "transfers",
]
