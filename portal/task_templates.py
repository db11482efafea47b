"""Templates of tasks: kept under a name, shared as their owner says, deleted and restored by the owner."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Q, QuerySet
from pydantic import Field

from federation.handles import new_handle
from federation.selectors import allocations
from orchestrator.services.tasks import read_task
from portal.models import TaskTemplate
from providers.errors import InvalidInput, NotFound
from providers.types import Frozen

NOT_KEPT = frozenset({"client_ref", "group", "like"})
"""What belongs to one submission, not to the next."""
MOST = 200
"""Templates one user may keep."""


class TemplateShown(Frozen):
    """A template as whoever may use it sees it. Submit its `body` as it is, or with changes."""

    id: str
    name: str
    owner: str
    sharing: str = Field(description="private, project or everyone.")
    project: str | None = Field(description="The account whose holders see it.")
    body: dict[str, Any] = Field(description="The task input.")
    created_at: datetime
    updated_at: datetime


def projects(user: AbstractBaseUser) -> list[str]:
    """Return the accounts this user holds an allocation of, by name: the projects one may share with."""
    return sorted({row.account for row in allocations(user)})


def templates(user: AbstractBaseUser) -> QuerySet[TaskTemplate]:
    """Return the templates this user may use, newest first: their own, their projects', everyone's."""
    shared = Q(sharing=TaskTemplate.EVERYONE) | Q(
        sharing=TaskTemplate.PROJECT, project__in=allocations(user).order_by().values("account")
    )
    rows = TaskTemplate.objects.filter(Q(user_id=user.pk) | shared, deleted_at__isnull=True)
    return rows.select_related("user").order_by("-updated_at", "-id")


def show_template(row: TaskTemplate) -> TemplateShown:
    """Return a template as the outside sees it."""
    return TemplateShown(
        id=row.handle,
        name=row.name,
        owner=row.user.get_username(),
        sharing=row.sharing,
        project=row.project or None,
        body=row.body,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


@transaction.atomic
def save_template(
    user: AbstractBaseUser,
    name: str,
    body: Mapping[str, Any],
    *,
    now: datetime,
    sharing: str = TaskTemplate.PRIVATE,
    project: str = "",
) -> TaskTemplate:
    """Keep a task input under a name; one of this user's of the same name is replaced.

    Raises:
        InvalidInput: the body is no task input, the name is empty, or the project is none of the user's.
    """
    kept = {key: value for key, value in body.items() if key not in NOT_KEPT}
    read_task(kept, pointer="/body")
    _check(user, name, sharing, project)
    row, _made = TaskTemplate.objects.update_or_create(
        user_id=user.pk,
        name=name.strip(),
        deleted_at=None,
        defaults={
            "body": kept,
            "sharing": sharing,
            "project": project if sharing == TaskTemplate.PROJECT else "",
            "updated_at": now,
        },
        create_defaults={
            "handle": new_handle("tpl", now),
            "body": kept,
            "sharing": sharing,
            "project": project if sharing == TaskTemplate.PROJECT else "",
            "created_at": now,
            "updated_at": now,
        },
    )
    return row


def _check(user: AbstractBaseUser, name: str, sharing: str, project: str) -> None:
    problems = []
    if not name.strip() or len(name.strip()) > 80:
        problems.append(("/name", "bad_name", "Give a name of 1 to 80 characters."))
    if sharing == TaskTemplate.PROJECT and project not in (held := projects(user)):
        mine = ", ".join(held) or "none"
        problems.append(("/project", "unknown_project", f"No project {project!r} of yours, only: {mine}."))
    if TaskTemplate.objects.filter(user_id=user.pk, deleted_at__isnull=True).count() >= MOST:
        problems.append(("/name", "too_many", f"You keep {MOST} templates already; delete one first."))
    if problems:
        raise InvalidInput(problems[0][2], problems=tuple(problems))


def find_template(user: AbstractBaseUser, handle: object) -> TaskTemplate:
    """Return a template this user may use.

    Raises:
        NotFound: no such template for this user.
    """
    row = templates(user).filter(handle=handle).first() if isinstance(handle, str) else None
    if row is None:
        raise NotFound(f"No template {str(handle)[:80]!r}.", pointer="/template")
    return row


def delete_template(user: AbstractBaseUser, handle: object, *, now: datetime) -> TaskTemplate:
    """Put a template of one's own away; nobody sees it any more until it is restored.

    Raises:
        NotFound: no such template of this user's own.
    """
    row = _own(user, handle, is_deleted=False)
    row.deleted_at = now
    row.save(update_fields=["deleted_at"])
    return row


@transaction.atomic
def restore_template(user: AbstractBaseUser, handle: object, *, now: datetime) -> TaskTemplate:
    """Bring a deleted template back; where its name was taken meanwhile, the newer one gives way to it.

    Raises:
        NotFound: no such deleted template of this user's own.
    """
    row = _own(user, handle, is_deleted=True)
    same = TaskTemplate.objects.filter(user_id=user.pk, name=row.name, deleted_at__isnull=True)
    same.update(deleted_at=now)
    row.deleted_at = None
    row.save(update_fields=["deleted_at"])
    return row


def _own(user: AbstractBaseUser, handle: object, *, is_deleted: bool) -> TaskTemplate:
    rows = TaskTemplate.objects.filter(user_id=user.pk, deleted_at__isnull=not is_deleted)
    row = rows.filter(handle=handle).first() if isinstance(handle, str) else None
    if row is None:
        raise NotFound(f"No template {str(handle)[:80]!r} of yours.", pointer="/template")
    return row
