"""What is due: what its time has come for, and what a clock that was ahead put off beyond all measure."""

from datetime import datetime, timedelta

from django.db.models import Q

FARTHEST = timedelta(hours=1)
"""Longer than attempts, groups and placing are ever put off (a minute or two; placing 15 minutes)."""


def is_due(now: datetime) -> Q:
    """Return the rows that are due by `due_at`."""
    return Q(due_at__lte=now) | Q(due_at__gt=now + FARTHEST)


def has_come(due_at: datetime, *, now: datetime) -> bool:
    """Return whether one such row is due."""
    return due_at <= now or due_at > now + FARTHEST
