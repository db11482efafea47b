"""What a handle names: whether it is this user's, and at which systems it lies."""

from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import QuerySet

from federation.models import System
from orchestrator.models import Approval, Attempt, Envelope, Group, Task, Transfer


def may_follow(user: AbstractBaseUser, subject: str) -> bool:
    """Return whether a subject is this user's own, or a system."""
    kinds: dict[str, QuerySet[Any]] = {
        "task": Task.objects.filter(user_id=user.pk),
        "att": Attempt.objects.filter(task__user_id=user.pk),
        "grp": Group.objects.filter(user_id=user.pk),
        "xfer": Transfer.objects.filter(user_id=user.pk),
        "env": Envelope.objects.filter(user_id=user.pk),
    }
    rows = kinds.get(subject.partition("_")[0])
    if rows is None:
        return System.objects.filter(slug=subject).exists()
    return rows.filter(handle=subject).exists()


def places_of(user: AbstractBaseUser, handle: str) -> frozenset[str]:
    """Return the systems at which what a handle names lies: none where that is not known.

    A group lies wherever its children do; a system's slug names itself.
    """
    at: dict[str, tuple[QuerySet[Any], str]] = {
        "task": (Task.objects.filter(user_id=user.pk), "attempt__system__slug"),
        "att": (Attempt.objects.filter(task__user_id=user.pk), "system__slug"),
        "grp": (Group.objects.filter(user_id=user.pk), "tasks__attempt__system__slug"),
        "xfer": (Transfer.objects.filter(user_id=user.pk), "task__attempt__system__slug"),
        "apr": (Approval.objects.filter(user_id=user.pk), "decision__system"),
    }
    rows, path = at.get(handle.partition("_")[0], (System.objects.filter(slug=handle), "slug"))
    key = {"slug": handle} if path == "slug" else {"handle": handle}
    return frozenset(slug for slug in rows.filter(**key).values_list(path, flat=True) if slug)
