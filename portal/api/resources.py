"""What can be read: each kind of object with its rows for one user, how it is shown, and its filters."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Q, QuerySet
from django.http import QueryDict
from pydantic import BaseModel

from federation import selectors as federation
from federation.shown import AllocationShown, ChargeShown, SnapshotShown, SystemShown
from federation.types import Health
from orchestrator import budget_selectors as spending
from orchestrator import selectors as orchestrator
from orchestrator import shown
from orchestrator import transfer_selectors as moved
from orchestrator.budget_models import ApprovalState
from orchestrator.budgets_shown import ApprovalShown, BudgetShown
from orchestrator.lifecycle import AttemptState, GroupState, TaskState, TransferState
from orchestrator.models import DeliveryState, SubscriptionState
from orchestrator.services import subscriptions as subscribed
from portal import subscriptions, task_templates, tokens
from portal.api.paging import MAX_LIMIT, Page, bad_parameter, filters, newest_first, whole_number, words
from portal.skills.events import check_cursor, check_types
from portal.skills.registry import Caller
from providers.errors import NotFound
from providers.reading import nearest

PAGING = ("cursor", "limit")


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object."""

    name: str
    summary: str
    value: type[BaseModel]
    rows: Callable[[AbstractBaseUser], QuerySet[Any]]
    show: Callable[[Any, datetime], BaseModel]
    filters: Mapping[str, str] = field(default_factory=dict)
    """Query parameter to lookup."""
    states: Collection[str] | None = None
    """What `state` may be."""
    show_in_list: Callable[[Any, datetime], BaseModel] | None = None
    extra: tuple[str, ...] = ()
    """Query parameters besides filters and paging."""
    place: str = ""
    """Lookup of the system at which one lies; empty: it lies at none."""

    def parameters(self) -> tuple[str, ...]:
        """Return every query parameter of the list."""
        return (*self.filters, *self.extra, *PAGING)

    def reached(self, caller: Caller) -> QuerySet[Any]:
        """Return the user's rows; for a narrowed token those at its systems, or at none."""
        rows = self.rows(caller.user)
        if caller.systems is None or not self.place:
            return rows
        here = Q(**{f"{self.place}__in": caller.systems})
        nowhere = Q(**{self.place: ""}) | Q(**{f"{self.place}__isnull": True})
        return rows.filter(here | nowhere)

    def page(self, caller: Caller, query: QueryDict, *, now: datetime) -> tuple[list[BaseModel], str | None]:
        """Return one page as values, and the cursor of the next."""
        self.check_state(query)
        limit = whole_number(query, "limit", default=50, least=1, most=MAX_LIMIT)
        rows = self.reached(caller).filter(**filters(query, self.filters))
        page = newest_first(rows, query, limit)
        show = self.show_in_list or self.show
        return [show(row, now) for row in page.rows], page.following

    def one(self, caller: Caller, handle: str, *, now: datetime) -> BaseModel:
        """Return one object.

        Raises:
            NotFound: none of this caller's.
        """
        row = self.reached(caller).filter(handle=handle).first()
        if row is None:
            raise self.missing(handle)
        return self.show(row, now)

    @property
    def singular(self) -> str:
        """Return the word for one of them."""
        return self.name[:-3] + "y" if self.name.endswith("ies") else self.name.removesuffix("s")

    def missing(self, handle: str) -> NotFound:
        """Return the refusal of an unknown handle."""
        return NotFound(f"No {self.singular} {handle[:80]!r}.")

    def check_state(self, query: QueryDict) -> None:
        """Refuse a state that these objects never have."""
        known = self.states
        if known is None:
            return
        for word in words(query, "state"):
            if word not in known:
                text = f"No state `{word[:60]}`." + nearest(word[:60], known)
                raise bad_parameter("state", "unknown_state", text)


class Systems(Resource):
    """Systems are few, named by slug, and made from what was probed."""

    def page(self, caller: Caller, query: QueryDict, *, now: datetime) -> tuple[list[BaseModel], str | None]:
        """Return the systems after the cursor, by slug."""
        self.check_state(query)
        limit = whole_number(query, "limit", default=50, least=1, most=MAX_LIMIT)
        after = query.get("cursor", "")
        states, slugs = words(query, "state"), words(query, "system")
        found: list[BaseModel] = [
            each
            for each in self._shown(caller, now=now)
            if each.id > after and (each.state in states or not states) and (each.id in slugs or not slugs)
        ]
        more = len(found) > limit
        return found[:limit], getattr(found[limit - 1], "id", None) if more else None

    def one(self, caller: Caller, handle: str, *, now: datetime) -> BaseModel:
        """Return one system by slug."""
        for each in self._shown(caller, now=now):
            if each.id == handle:
                return each
        raise self.missing(handle)

    def _shown(self, caller: Caller, *, now: datetime) -> list[SystemShown]:
        return [each for each in federation.systems_shown(caller.user, now=now) if caller.reaches(each.id)]


class Events(Resource):
    """Events come oldest first: a reader goes on where it stopped. Cursors are places in commit order."""

    def page(self, caller: Caller, query: QueryDict, *, now: datetime) -> tuple[list[BaseModel], str | None]:
        """Return the events after a cursor (`after`, or `cursor`), in commit order."""
        if "after" in query and "cursor" in query:
            raise bad_parameter("after", "not_exactly_one", "Give `after` or `cursor`, not both.")
        limit = whole_number(query, "limit", default=50, least=1, most=MAX_LIMIT)
        name = "after" if "after" in query else "cursor"
        after = whole_number(query, name, default=0, least=0, most=2**63 - 1)
        types = tuple(words(query, "type"))
        check_types(types, pointer="?type")
        if after:
            check_cursor(after)
        rows = self.reached(caller).filter(position__seq__gt=after, **filters(query, self.filters))
        found = list(orchestrator.of_types(rows, types).order_by("position__seq")[: limit + 1])
        page = Page(found[:limit], str(found[limit - 1].position.seq) if len(found) > limit else None)
        return [self.show(row, now) for row in page.rows], page.following


class Budgets(Resource):
    """Budgets lie at no system, but their charges, tasks and groups do."""

    def reached(self, caller: Caller) -> QuerySet[Any]:
        """Return the user's budgets; to a narrowed token nothing of other systems."""
        return spending.budgets(caller.user, systems=caller.systems)


class Envelopes(Resource):
    """An envelope lies at no system, but the tasks that ran with it do."""

    def reached(self, caller: Caller) -> QuerySet[Any]:
        """Return the user's envelopes; to a narrowed token none that was used at other systems alone."""
        rows = self.rows(caller.user)
        if caller.systems is None:
            return rows
        used = orchestrator.tasks(caller.user)
        elsewhere = used.filter(attempt__isnull=False).exclude(attempt__system__slug__in=caller.systems)
        here = used.exclude(pk__in=elsewhere.values("pk"))
        return rows.exclude(Q(pk__in=elsewhere.values("envelope_id")) & ~Q(pk__in=here.values("envelope_id")))


class Deliveries(Resource):
    """A delivery lies where what it tells happened."""

    def reached(self, caller: Caller) -> QuerySet[Any]:
        """Return the user's deliveries; to a narrowed token none of what happened at other systems."""
        rows = self.rows(caller.user)
        if caller.systems is None:
            return rows
        heard = orchestrator.events(caller.user).filter(system__in=["", *caller.systems])
        return rows.filter(event__in=heard.values("handle"))


def _states(kind: Any) -> tuple[str, ...]:
    return tuple(state.value for state in kind)


RESOURCES: dict[str, Resource] = {
    each.name: each
    for each in (
        Systems(
            "systems",
            "Systems as they stand for you.",
            SystemShown,
            lambda user: orchestrator.tasks(user).none(),
            lambda row, _now: row,
            filters={"system": "slug", "state": "health"},
            states=_states(Health),
        ),
        Resource(
            "snapshots",
            "What each probe of your systems saw, in counts.",
            SnapshotShown,
            federation.snapshots,
            lambda row, _now: federation.show_snapshot(row),
            filters={"system": "system__slug", "state": "availability"},
            states=("available", "scheduler_down", "unreachable", "unparsable"),
            place="system__slug",
        ),
        Envelopes(
            "envelopes",
            "Envelopes kept: drafted, or given with a task.",
            shown.EnvelopeShown,
            orchestrator.envelopes,
            lambda row, _now: orchestrator.show_envelope(row),
            filters={"source": "source"},
        ),
        Resource(
            "tasks",
            "Your tasks.",
            shown.TaskShown,
            orchestrator.tasks,
            lambda row, _now: orchestrator.show_task(row),
            filters={
                "state": "state",
                "system": "attempt__system__slug",
                "partition": "attempt__partition",
                "group": "group__handle",
                "cause": "cause",
                "name": "name",
                "client_ref": "client_ref",
                "project": "project",
            },
            states=_states(TaskState),
            place="attempt__system__slug",
        ),
        Resource(
            "groups",
            "Your groups of tasks.",
            shown.GroupShown,
            orchestrator.groups,
            lambda row, _now: orchestrator.show_group(row),
            filters={"state": "state", "name": "name"},
            states=_states(GroupState),
        ),
        Resource(
            "attempts",
            "Every try of your tasks at a placement.",
            shown.AttemptShown,
            orchestrator.attempts,
            lambda row, _now: orchestrator.show_attempt(row),
            filters={
                "task": "task__handle",
                "group": "task__group__handle",
                "state": "state",
                "system": "system__slug",
                "partition": "partition",
                "job_id": "job_id",
            },
            states=_states(AttemptState),
            place="system__slug",
        ),
        Resource(
            "decisions",
            "Placement decisions with their whole trace.",
            shown.DecisionShown,
            orchestrator.decisions,
            lambda row, _now: orchestrator.show_decision(row),
            filters={
                "task": "task__handle",
                "system": "system",
                "partition": "partition",
                "purpose": "purpose",
                "state": "body__result",
            },
            states=("placed", "unschedulable"),
            show_in_list=lambda row, _now: orchestrator.show_decision_in_list(row),
            place="system",
        ),
        Resource(
            "transfers",
            "Movements of your data.",
            shown.TransferShown,
            moved.transfers,
            lambda row, _now: moved.show_transfer(row),
            filters={
                "task": "task__handle",
                "attempt": "attempt__handle",
                "state": "state",
                "purpose": "purpose",
                "mover": "mover",
            },
            states=_states(TransferState),
            place="task__attempt__system__slug",
        ),
        Events(
            "events",
            "What happened to your work and your systems, in commit order.",
            shown.EventShown,
            orchestrator.events,
            lambda row, _now: orchestrator.show_event(row),
            filters={
                "task": "task",
                "group": "group",
                "attempt": "attempt",
                "transfer": "transfer",
                "system": "system",
                "subject": "subject",
                "state": "state",
            },
            extra=("type", "after"),
            place="system",
        ),
        Resource(
            "allocations",
            "What you may spend, by system and account, each in its site's own unit.",
            AllocationShown,
            federation.allocations,
            lambda row, now: federation.show_allocation(row, now=now),
            filters={"system": "system__slug", "account": "account"},
            place="system__slug",
        ),
        Resource(
            "charges",
            "The ledger lines of your allocations.",
            ChargeShown,
            federation.charges,
            lambda row, _now: federation.show_charge(row),
            filters={
                "system": "allocation__system__slug",
                "account": "allocation__account",
                "allocation": "allocation__handle",
                "attempt": "attempt_handle",
                "kind": "kind",
            },
            place="allocation__system__slug",
        ),
        Budgets(
            "budgets",
            "What your tasks, groups, projects and tokens may use, and what they have used.",
            BudgetShown,
            spending.budgets,
            lambda row, _now: spending.show_budget(row),
            filters={"scope": "scope", "subject": "subject"},
        ),
        Resource(
            "approvals",
            "Placements that wait, or waited, for a person.",
            ApprovalShown,
            spending.approvals,
            lambda row, _now: spending.show_approval(row),
            filters={"state": "state", "task": "task__handle"},
            states=_states(ApprovalState),
            place="decision__system",
        ),
        Resource(
            "subscriptions",
            "Who is told of your events, and how far that is.",
            subscriptions.SubscriptionShown,
            subscribed.subscriptions,
            lambda row, now: subscriptions.watch(row, now=now),
            filters={"target": "target", "state": "state", "name": "name", "subject": "subject"},
            states=_states(SubscriptionState),
            show_in_list=lambda row, _now: subscriptions.show(row),
        ),
        Deliveries(
            "deliveries",
            "The delivery log of your webhooks.",
            subscriptions.DeliveryShown,
            subscribed.deliveries,
            lambda row, _now: subscriptions.show_delivery(row),
            filters={
                "subscription": "subscription__handle",
                "state": "state",
                "event": "event",
                "type": "event_type",
            },
            states=_states(DeliveryState),
        ),
        Resource(
            "templates",
            "Templates of tasks that you may use: yours, your projects', everyone's.",
            task_templates.TemplateShown,
            task_templates.templates,
            lambda row, _now: task_templates.show_template(row),
            filters={"name": "name", "owner": "user__username", "sharing": "sharing", "project": "project"},
        ),
        Resource(
            "tokens",
            "Your API tokens, never their secrets.",
            tokens.TokenShown,
            tokens.tokens,
            lambda row, now: tokens.show_token(row, now=now),
            filters={"name": "name"},
        ),
    )
}
