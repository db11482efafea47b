"""The published scenario on four real clusters: a study of four, one of them stuck until a wish is given up.

Four single-GPU tasks of fifteen minutes (here: seconds) are spread over four systems. One waits on while
its siblings end; then distinct systems buy nothing more, so it joins one of them, and all four succeed.
"""

import time
from datetime import timedelta

from django.contrib.auth.models import User
from django.utils import timezone

from federation.models import Event
from orchestrator.lifecycle import AttemptState, GroupState, TaskState
from orchestrator.models import Attempt, Group
from orchestrator.services import groups
from tests.slurm.federation import Federation
from tests.slurm.lab.laboratory import Lab
from tests.stepping import all_step_until, step

QUARTER = 15
"""Of an hour in the paper, of seconds here."""


def advance(group: Group, *, later: timedelta = timedelta(0)) -> None:
    while groups.advance_group(group.pk, now=timezone.now() + later):
        pass
    group.refresh_from_db()


def test_four_tasks_on_four_systems_one_stuck_relaxed_and_placed_anew_all_succeed(
    federation: Federation, researcher: User, lab: Lab
) -> None:
    for cluster in (lab["delta"], lab["deltaai"], lab["vista"]):
        federation.add(cluster, researcher)
    federation.add(lab["anvil"], researcher, "cis220051-gpu")
    wanted = {
        "name": "study",
        "objective": "four runs side by side",
        "diversity": "soft",
        "envelope": {"gpus": 1, "cpus": 2, "walltime_s": 900},
        "children": [{"key": f"run{n}", "command": f"sleep {QUARTER}; echo run {n}"} for n in range(4)],
    }
    group = groups.submit_group(researcher, wanted, actor="user:alice", now=timezone.now()).group
    advance(group)
    tasks = list(group.tasks.order_by("pk"))
    assert {task.attempt.system.slug for task in tasks if task.attempt} == {
        *("delta", "deltaai", "anvil", "vista")
    }

    step()
    stuck = tasks[0]
    first = stuck.attempts.get()
    cluster = federation.cluster(first)
    has_started = "PENDING" not in cluster.ask("squeue", "-h", "-j", first.job_id, "-o", "%T")
    cluster.ask("scontrol", "requeuehold" if has_started else "hold", first.job_id, user="alice")
    all_step_until(tasks[1:], timeout=90)
    all_step_until([stuck], TaskState.PENDING)
    advance(group)
    assert group.state == GroupState.RUNNING

    advance(group, later=timedelta(minutes=5))
    Attempt.objects.filter(task=stuck).update(due_at=timezone.now())
    until = time.monotonic() + 90
    while group.state == GroupState.RUNNING and time.monotonic() < until:
        step()
        advance(group)
        time.sleep(0.3)

    assert group.state == GroupState.SUCCEEDED
    told = list(Event.objects.filter(subject=group.handle).order_by("id").values_list("type", flat=True))
    assert told == [
        *("group.submitted", "group.child_stalled", "group.constraint_relaxed"),
        *("group.round_completed", "group.succeeded"),
    ]
    old, new = stuck.attempts.order_by("number")
    assert (old.state, new.state) == (AttemptState.SUPERSEDED, AttemptState.SUCCEEDED)
    assert new.system.slug != old.system.slug
    rows = federation.accounted(*Attempt.objects.filter(task__group=group))
    ends = sorted(row.state.split()[0] for row in rows if row.state != "REQUEUED")
    assert ends == ["CANCELLED", *["COMPLETED"] * 4]
    for task in tasks:
        task.refresh_from_db()
        assert task.state == TaskState.SUCCEEDED
