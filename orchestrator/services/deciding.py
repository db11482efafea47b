"""Deciding where work goes, over what a user may use now, and keeping the decision. Touches no site."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Q
from django.db.models.functions import Coalesce
from pydantic import ValidationError

from federation.handles import new_handle
from federation.selectors import records_for
from federation.types import ResourceRecord
from orchestrator.data_reach import with_data, with_rates
from orchestrator.envelope.types import Envelope as EnvelopeValue
from orchestrator.environments import environment_of
from orchestrator.experience import placement_model
from orchestrator.lifecycle import ATTEMPT_MOVES, AttemptState, terminal_states
from orchestrator.models import Attempt, Decision, Task
from orchestrator.placement.cache import PlanCache
from orchestrator.placement.estimate import Work
from orchestrator.placement.place import place, reserve_shape
from orchestrator.placement.store import PlanStore
from orchestrator.placement.types import Decision as DecisionValue
from orchestrator.placement.types import Shape

ENDED = [state.value for state in terminal_states(ATTEMPT_MOVES)]
_UNSENT = frozenset({AttemptState.PLANNED.value, AttemptState.DISPATCHING.value})
_FAILED_HERE = "an earlier attempt of this task failed here"
_IN_FLIGHT = 200
"""Newest placed attempts that a decision looks at beyond the snapshots."""
PLANS = PlanStore()
"""Plans of the newest snapshots, shared by all decisions of this process."""


def decide(
    user: AbstractBaseUser,
    envelope: EnvelopeValue,
    *,
    now: datetime,
    exclude_systems: Sequence[str] = (),
    avoid: frozenset[tuple[str, str, str]] = frozenset(),
    kind: str = "",
    environment: Mapping[str, Any] | None = None,
    diversity_load: Mapping[str, int] | None = None,
    budgets: Mapping[str, Decimal] | None = None,
) -> DecisionValue:
    """Return the decision over this user's records now; nothing is kept.

    `avoid` names places (system, partition, account) that an earlier attempt found wanting; `environment` is
    what the task states of it, beside the envelope's container; `budgets` is what may be charged at most, by
    system.
    """
    return placement_for(
        user,
        envelope,
        now=now,
        exclude_systems=exclude_systems,
        avoid=avoid,
        kind=kind,
        environment=environment,
        diversity_load=diversity_load,
        budgets=budgets,
    )(envelope)


def placement_for(
    user: AbstractBaseUser,
    envelope: EnvelopeValue,
    *,
    now: datetime,
    exclude_systems: Sequence[str] = (),
    avoid: frozenset[tuple[str, str, str]] = frozenset(),
    kind: str = "",
    environment: Mapping[str, Any] | None = None,
    diversity_load: Mapping[str, int] | None = None,
    budgets: Mapping[str, Decimal] | None = None,
) -> Callable[[EnvelopeValue], DecisionValue]:
    """Return placement over this user's records now, to be asked about this envelope and variants of it."""
    image = envelope.container.image if envelope.container is not None else None
    ready = environment_of(environment, image)
    found = with_data(user, envelope.data, records_for(user, now=now))
    records = tuple(
        replace(record, blocked=_FAILED_HERE) if record.key in avoid else record for record in found
    )
    learned = placement_model(user, kind=kind, environment=ready, now=now)
    model = with_rates(user, envelope.data, learned)
    cache = in_flight(records)

    def ask(wanted: EnvelopeValue) -> DecisionValue:
        return place(
            wanted,
            records,
            now=now,
            model=model,
            cache=cache,
            work=Work(kind=kind or None, environment=ready),
            budgets=budgets,
            exclude_systems=tuple(exclude_systems),
            diversity_load=diversity_load,
        )

    return ask


def in_flight(records: Sequence[ResourceRecord]) -> PlanCache:
    """Return a plan that already holds what we placed and each system's snapshot does not show.

    That is what was sent since, and what waits to be sent, however long ago it was placed: its inputs may be
    on their way for hours. Without it, everything submitted between two probes would be sent to the same free
    GPU. Charges are not put in: they are reserved already.
    """
    cache = PlanCache(PLANS)
    places = {(record.system, record.partition): record for record in reversed(records)}
    taken = {record.system: record.observed_at for record in records if record.observed_at is not None}
    if not taken:
        return cache
    rows = (
        Attempt.objects.filter(
            Q(dispatch_started_at=None) | Q(dispatch_started_at__gt=min(taken.values())),
        )
        .exclude(state__in=ENDED)
        .order_by("-planned_at", "-id")
        .values_list(
            "system__slug",
            "partition",
            "state",
            Coalesce("dispatch_started_at", "planned_at"),
            "shape",
            "predicted",
            "task__envelope__body",
            "connection__remote_user",
        )[:_IN_FLIGHT]
    )
    for system, partition, state, sent_at, shape, predicted, body, remote_user in reversed(rows):
        record, observed_at = places.get((system, partition)), taken.get(system)
        if record is None or observed_at is None or (state not in _UNSENT and sent_at <= observed_at):
            continue
        with suppress(LookupError, ValidationError):  # the partition may have changed since
            reserve_shape(
                cache,
                record,
                Shape.model_validate(shape),
                envelope=EnvelopeValue.model_validate(body),
                runtime_s=predicted["runtime_s"] + predicted.get("preparation_s", 0),
                is_own=remote_user == (record.user or ""),
            )
    return cache


def keep(value: DecisionValue, *, user_id: int, task: Task | None, purpose: str, now: datetime) -> Decision:
    """Store a decision under a handle of its own."""
    handle = new_handle("dec", now)
    body = value.model_copy(update={"id": handle}).model_dump(mode="json", by_alias=True)
    chosen = value.selected
    return Decision.objects.create(
        handle=handle,
        user_id=user_id,
        task=task,
        purpose=purpose,
        input_hash=value.input_hash,
        system=chosen.system if chosen else "",
        partition=chosen.partition if chosen else "",
        body=body,
        created_at=now,
    )
