"""Waiting work moves by the margin, at most three times, and never because of itself."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from federation.models import Connection, Event, System
from federation.selectors import records_for
from orchestrator.envelope.types import Data, DataRef
from orchestrator.lifecycle import AttemptState
from orchestrator.models import Attempt, Task
from orchestrator.observation import Fold
from orchestrator.services import replacement, tasks
from orchestrator.services.attempts import apply_fold
from orchestrator.services.placing import envelope_now
from orchestrator.services.replacement import MAX_MOVES, next_comparison, reconsider
from orchestrator.services.spending import Purse
from providers.types import GpuPool, JobState, Node, Probe, QueueJob
from tests.web.world import make_system, probe, profile, see

pytestmark = pytest.mark.django_db(transaction=True)

WORK: dict[str, Any] = {
    "command": "true",
    "envelope": {
        "gpus": 4,
        "cpus": 32,
        "walltime_s": 7200,
        "runtime": {"estimate_s": 3600},
    },
}
OURS = "4711"


def _waiting(user: User, *, now: datetime, **envelope: object) -> Task:
    """Return a task whose job waits at Anvil, the only system so far."""
    make_system(user, "anvil", "Anvil", "a100", "40G", free=4, now=now)
    wanted = {**WORK, "envelope": {**WORK["envelope"], **envelope}}
    task = tasks.submit_task(user, wanted, actor="user", now=now).task
    attempt = task.attempts.get()
    for state in ("dispatching", "submitted", "pending"):
        Attempt.objects.filter(pk=attempt.pk).update(state=state)
    Attempt.objects.filter(pk=attempt.pk).update(job_id=OURS, submitted_at=now)
    for moved in ("submitted", "pending"):
        Task.objects.filter(pk=task.pk).update(state=moved)
    return Task.objects.get(pk=task.pk)


def _seen(
    slug: str,
    user: User,
    *,
    busy_s: int,
    now: datetime,
    ours: bool = False,
    free: int = 0,
    clock_ahead_s: int = 0,
) -> None:
    """Let a system be seen with one node of four GPUs, held but for `free` for so long; ours may wait."""
    usable = {"partitions": ("gpu",), "state": "mixed" if free else "allocated", "usable": True}
    held = Node(
        name="g0",
        cpus_total=64,
        cpus_free=16 * free,
        memory_total_mib=262_144,
        memory_free_mib=65_536 * free,
        gpus=(GpuPool(type="a100", total=4, used=4 - free, free=free),),
        **usable,
    )
    job = QueueJob(
        job_id="11",
        state=JobState.RUNNING,
        state_raw="RUNNING",
        user="kofi",
        partitions=("gpu",),
        gpus=4 - free,
        cpus=64 - 16 * free,
        nodes=1,
        node_names=("g0",),
        walltime_s=busy_s,
        start_at=now,
    )
    own = job.model_copy(
        update={
            "job_id": OURS,
            "user": "mira",
            "gpus": 4,
            "cpus": 32,
            "state": JobState.QUEUED,
            "state_raw": "PENDING",
            "node_names": (),
            "walltime_s": 7200,
            "start_at": None,
            "submit_at": now,
            "priority": 100,
        }
    )
    usual: Probe = probe("a100", free=0, now=now, pending=0)
    jobs = (job, own) if ours else (job,)
    found = usual.model_copy(update={"nodes": (held,), "jobs": jobs, "clock_ahead_s": clock_ahead_s})
    system = System.objects.get(slug=slug)
    link = Connection.objects.get(system=system, user=user)
    see(system, link, profile(slug, slug.title(), "a100", "40G", 4), found, now=now)


def _leaves(task: Task) -> bool:
    return Attempt.objects.get(task=task).cancel_requested_at is not None


@pytest.mark.parametrize(("other_busy_s", "moves"), [(3000, False), (600, True)])
def test_a_waiting_job_moves_only_for_more_than_the_margin(
    alice: User, now: datetime, other_busy_s: int, moves: bool
) -> None:
    task = _waiting(alice, now=now)
    make_system(alice, "delta", "Delta", "a100", "40G", free=4, now=now)
    later = now + timedelta(seconds=30)
    _seen("anvil", alice, busy_s=3600, now=later, ours=True)
    _seen("delta", alice, busy_s=other_busy_s, now=later)

    with transaction.atomic():
        assert reconsider(task, now=later) is moves

    assert _leaves(task) is moves
    told = [event.data["other"] for event in Event.objects.filter(type="attempt.moved")]
    assert told == (["delta"] if moves else [])


ELASTIC = {
    "gpus": {"min": 1, "max": 4},
    "cpus": 8,
    "walltime_s": 14_400,
    "runtime": {"estimate_s": 3600, "at": {"gpus": 4}},
}
"""An hour on four GPUs, three and a half on one."""


@pytest.mark.parametrize(("busy_s", "moves"), [(7200, False), (12 * 3600, True)])
def test_a_waiting_job_takes_another_legal_shape_where_that_ends_it_earlier(
    alice: User, now: datetime, busy_s: int, moves: bool
) -> None:
    task = _waiting(alice, now=now, **ELASTIC)
    attempt = task.attempts.get()
    assert attempt.shape["gpus"] == 4
    later = now + timedelta(seconds=30)
    _seen("anvil", alice, busy_s=busy_s, now=later, ours=True, free=1)
    Attempt.objects.filter(pk=attempt.pk).update(
        predicted={**attempt.predicted, "wait_s": {"p50": 10, "p90": 60}}
    )

    with transaction.atomic():
        assert reconsider(Task.objects.get(pk=task.pk), now=later) is moves

    told = [event.data.get("shape") for event in Event.objects.filter(type="attempt.moved")]
    assert (_leaves(task), told) == (moves, [{"nodes": 1, "gpus": 1, "cpus": 8}] if moves else [])
    if not moves:
        return
    Attempt.objects.filter(pk=attempt.pk).update(ended_at=later)
    _gives_way(Attempt.objects.get(pk=attempt.pk), later)
    _seen("anvil", alice, busy_s=busy_s, now=later, free=1)
    tasks.advance_task(task.pk, now=later)
    new = task.attempts.get(number=2)
    assert (new.system.slug, new.shape["gpus"]) == ("anvil", 1)


def _gives_way(attempt: Attempt, now: datetime) -> None:
    """Let the site confirm that a job is gone."""
    with transaction.atomic():
        apply_fold(attempt, Fold(target=AttemptState.SUPERSEDED), now=now, due_at=None)


@pytest.mark.parametrize("kept_from", ["never", "avoid", "resume"])
def test_a_waiting_job_gives_no_way_to_a_place_that_it_would_not_be_sent_to(
    alice: User, now: datetime, kept_from: str
) -> None:
    task = _waiting(alice, now=now)
    make_system(alice, "delta", "Delta", "a100", "40G", free=4, now=now)
    later = now + timedelta(seconds=30)
    _seen("anvil", alice, busy_s=3600, now=later, ours=True)
    _seen("delta", alice, busy_s=600, now=later)
    places = [list(each.key) for each in records_for(alice, now=later) if each.key[0] == "delta"]
    assert places
    task.plan = {"resume": "anvil"} if kept_from == "resume" else {kept_from: places}
    task.save()

    with transaction.atomic():
        assert not reconsider(task, now=later)

    assert not _leaves(task)


def test_a_waiting_job_is_not_planned_behind_itself(alice: User, now: datetime) -> None:
    task = _waiting(alice, now=now)
    make_system(alice, "delta", "Delta", "a100", "40G", free=4, now=now)
    later = now + timedelta(seconds=30)
    _seen("anvil", alice, busy_s=1200, now=later, ours=True)
    _seen("delta", alice, busy_s=1200, now=later)

    # Behind its own two hours a fresh job at Anvil would end far later than at Delta.
    assert not reconsider(task, now=later)


def test_inputs_that_were_brought_are_not_brought_again_where_the_job_waits(
    alice: User, now: datetime
) -> None:
    task = _waiting(alice, now=now)
    attempt = Attempt.objects.get(task=task)
    later = now + timedelta(seconds=30)
    _seen("anvil", alice, busy_s=1200, now=later, ours=True)
    given = replacement._same_size(envelope_now(task), attempt)
    brought = given.model_copy(update={"data": Data(inputs=(DataRef(uri="globus://abc/big", bytes=10**12),))})

    stays = replacement._in_place(task, attempt, brought, Purse(), now=later)

    assert stays is not None
    assert stays == replacement._in_place(task, attempt, given, Purse(), now=later)
    attempt.predicted = {**attempt.predicted, "transfer_s": 9000, "completion_s": 20_000}
    attempt.expected_start_at = later + timedelta(seconds=700)
    assert replacement._remaining_s(attempt, None, now=later) == 700 + 3600


def test_a_job_waits_by_our_clock_whatever_the_sites_says(alice: User, now: datetime) -> None:
    task = _waiting(alice, now=now)
    off = timedelta(hours=2)
    Attempt.objects.update(submitted_at=now - off, dispatch_started_at=now)
    attempt = Attempt.objects.select_related("system").get(task=task)
    soon = now + timedelta(seconds=30)

    assert replacement._waited_s(attempt, now=soon) == 30
    assert next_comparison(task, attempt, now=soon) == now + timedelta(seconds=300)

    _seen("anvil", alice, busy_s=1200, now=soon, ours=True, clock_ahead_s=-7200)
    attempt.refresh_from_db()
    attempt.expected_start_at = soon - off + timedelta(seconds=700)
    assert replacement._remaining_s(attempt, None, now=soon) == 700 + 3600


def test_after_three_moves_a_job_stays_and_a_job_that_may_not_move_is_never_compared(
    alice: User, now: datetime
) -> None:
    task = _waiting(alice, now=now)
    attempt = Attempt.objects.get(task=task)
    soon = now + timedelta(seconds=10)
    assert next_comparison(task, attempt, now=soon) == now + timedelta(seconds=300)
    assert next_comparison(task, attempt, now=now + timedelta(hours=9)) == now + timedelta(hours=13)

    task.replacements = MAX_MOVES

    assert MAX_MOVES == 3
    assert next_comparison(task, attempt, now=soon) is None
    task.replacements, task.spec["replacement"]["enabled"] = 0, False
    assert next_comparison(task, attempt, now=soon) is None


@pytest.mark.parametrize("kept", ["not allowed", "moved enough"])
def test_a_job_that_may_not_move_gives_no_way_whoever_asks(alice: User, now: datetime, kept: str) -> None:
    task = _waiting(alice, now=now)
    make_system(alice, "delta", "Delta", "a100", "40G", free=4, now=now)
    later = now + timedelta(seconds=30)
    _seen("anvil", alice, busy_s=3600, now=later, ours=True)
    _seen("delta", alice, busy_s=600, now=later)
    if kept == "not allowed":
        task.spec["replacement"]["enabled"] = False
    else:
        task.replacements = MAX_MOVES

    with transaction.atomic():
        assert not reconsider(task, now=later)

    assert not _leaves(task)


def test_a_job_on_its_way_out_is_not_asked_twice(alice: User, now: datetime) -> None:
    task = _waiting(alice, now=now)
    Attempt.objects.filter(task=task).update(cancel_requested_at=now)

    assert not reconsider(Task.objects.get(pk=task.pk), now=now)
    assert Task.objects.get(pk=task.pk).due_at is None
