"""One verb over many tasks: each is its own transaction, so one that cannot be done costs only itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser

from orchestrator.lifecycle import TASK_MOVES, TaskState, is_terminal
from orchestrator.services.tasks import cancel_task, find_task
from providers.errors import NotFound

MOST = 500
"""Tasks of one call."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What came of cancelling many tasks, as handles."""

    ended: Sequence[str]
    """Cancelled at once: no site knew of them."""
    asked: Sequence[str]
    """They end when their sites confirm."""
    untouched: Sequence[str]
    """They had ended before, or were being cancelled already."""
    missing: Sequence[str]
    """No such task of this user."""


def cancel_tasks(user: AbstractBaseUser, handles: Sequence[str], *, actor: str, now: datetime) -> Cancelled:
    """Cancel each of these tasks (the first `MOST` of them, each once) and say what came of it."""
    found: dict[str, list[str]] = {"ended": [], "asked": [], "untouched": [], "missing": []}
    for handle in list(dict.fromkeys(handles))[:MOST]:
        found[_cancel(user, handle, actor=actor, now=now)].append(handle)
    return Cancelled(**found)


def _cancel(user: AbstractBaseUser, handle: str, *, actor: str, now: datetime) -> str:
    try:
        before = find_task(user, handle)
    except NotFound:
        return "missing"
    if is_terminal(TASK_MOVES, TaskState(before.state)) or before.cancel_requested_at is not None:
        return "untouched"
    after = cancel_task(user, handle, actor=actor, now=now)
    return "ended" if after.state == TaskState.CANCELLED else "asked"
