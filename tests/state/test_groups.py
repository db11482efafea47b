"""Groups and rounds on emulated clusters: spread, order, sweeps, cancel, and the story of a stalled child."""

import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from structlog.contextvars import bound_contextvars

from federation.models import Event, System
from orchestrator.lifecycle import AttemptState, GroupState, TaskState
from orchestrator.models import Attempt, Group, Task
from orchestrator.services import groups, tasks
from orchestrator.services.placing import diversity_load
from providers.errors import InvalidInput
from tests.state.conftest import Sites
from tests.stepping import step

pytestmark = pytest.mark.django_db(transaction=True)

ONE_GPU = {"gpus": 1, "cpus": 2, "walltime_s": 600}


@pytest.fixture
def two(sites: Sites, alice: User) -> Sites:
    sites.add("delta", alice, account="bbka-delta-gpu", granted=Decimal(1000))
    sites.add("vista", alice, account="ASC24001", granted=Decimal(1000))
    return sites


def submit(user: User, **given: Any) -> Group:
    wanted = {"envelope": ONE_GPU, **given}
    return groups.submit_group(user, wanted, actor="user:alice", now=timezone.now()).group


def advance(group: Group) -> None:
    while groups.advance_group(group.pk, now=timezone.now()):
        pass
    group.refresh_from_db()


@pytest.fixture
def until_group() -> Callable[..., Group]:
    """Step until a group has ended; fails after `timeout` seconds."""

    def wait(group: Group, timeout: float = 60) -> Group:
        deadline = time.monotonic() + timeout
        while True:
            advance(group)
            if group.state != GroupState.RUNNING:
                return group
            step()
            if time.monotonic() > deadline:
                pytest.fail(f"{group.state}: {list(group.tasks.values_list('group_key', 'state', 'reason'))}")
            time.sleep(0.3)

    return wait


def types_of(group: Group) -> list[str]:
    return list(Event.objects.filter(subject=group.handle).order_by("id").values_list("type", flat=True))


def _submitted(group: Group) -> str:
    return Event.objects.get(subject=group.handle, type="group.submitted").summary


def test_children_run_in_rounds_and_the_group_answers_once(
    two: Sites, alice: User, until_group: Callable[..., Group]
) -> None:
    group = submit(
        alice,
        name="study",
        children=[
            {"key": "a", "command": "true"},
            {"key": "b", "command": "true"},
            {"key": "sum", "command": "true", "round": 2, "after": ["a", "b"]},
        ],
    )
    advance(group)
    assert dict(group.tasks.values_list("group_key", "state")) == {
        "a": "placing",
        "b": "placing",
        "sum": "accepted",
    }

    until_group(group)

    assert group.state == GroupState.SUCCEEDED
    assert types_of(group) == [
        "group.submitted",
        "group.round_completed",
        "group.round_completed",
        "group.succeeded",
    ]
    assert _submitted(group) == "study: 3 tasks in 2 rounds"
    ends = [task.finished_at for task in group.tasks.filter(group_round=1) if task.finished_at]
    assert len(ends) == 2
    assert group.tasks.get(group_key="sum").attempts.get().planned_at >= max(ends)


def test_what_a_later_round_logs_names_the_request_that_brought_the_group(
    two: Sites, alice: User, until_group: Callable[..., Group], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="federation.ledger")
    with bound_contextvars(request_id="req-of-the-group"):
        group = submit(
            alice,
            children=[{"name": "one", "command": "true"}, {"name": "two", "command": "true", "round": 2}],
        )

    until_group(group)

    second = group.tasks.get(name="two").handle
    said = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    placed = [line for line in said if (line["event"], line.get("task")) == ("task.placed", second)]
    assert [line.get("request_id") for line in placed] == ["req-of-the-group"]


@pytest.mark.parametrize(("diversity", "spread"), [("soft", {1}), ("hard", {1})])
def test_two_children_go_to_two_systems_when_diversity_is_asked(
    two: Sites, alice: User, diversity: str, spread: set[int]
) -> None:
    group = submit(alice, diversity=diversity, children=[{"command": "true"}, {"command": "true"}])

    advance(group)

    assert _submitted(group).endswith(": 2 tasks")
    where = Counter(group.tasks.values_list("attempt__system__slug", flat=True))
    assert set(where.values()) == spread
    assert set(where) == {"delta", "vista"}


def test_hard_diversity_leaves_the_third_child_unschedulable(two: Sites, alice: User) -> None:
    group = submit(alice, diversity="hard", children=[{"command": "true"}] * 3)

    advance(group)

    assert sorted(group.tasks.values_list("state", flat=True)) == ["placing", "placing", "unschedulable"]


def test_a_failed_sibling_ends_those_that_wait_for_it(
    two: Sites, alice: User, until_group: Callable[..., Group]
) -> None:
    group = submit(
        alice,
        children=[
            {"key": "bad", "command": "exit 3"},
            {"key": "good", "command": "true"},
            {"key": "next", "command": "true", "after": ["bad"]},
        ],
    )

    until_group(group)

    assert group.state == GroupState.PARTIALLY_SUCCEEDED
    assert dict(group.tasks.values_list("group_key", "state")) == {
        "bad": "failed",
        "good": "succeeded",
        "next": "cancelled",
    }
    assert group.tasks.get(group_key="next").reason == "Its sibling bad did not succeed."


def test_a_sweep_of_sixty_is_sent_in_a_handful_of_requests(
    two: Sites, alice: User, until_group: Callable[..., Group]
) -> None:
    group = submit(
        alice,
        matrix={
            "task": {
                "name": "lr {lr} seed {seed}",
                "command": 'test "$FACET_LR" = {lr}',
                "envelope": {"gpus": 0, "policy": {"allow_systems": ["delta"]}},
            },
            "parameters": {"lr": [0.1, 0.01, 0.001], "seed": list(range(20))},
        },
        envelope={"cpus": 1, "walltime_s": 600},
    )

    until_group(group, timeout=150)

    assert group.state == GroupState.SUCCEEDED
    assert group.tasks.count() == 60
    assert group.tasks.filter(name="lr 0.01 seed 7").exists()
    requests = Attempt.objects.values("dispatch_started_at").distinct().count()
    assert requests <= 6
    assert len(two.jobs("delta")) == 60


def test_cancelling_a_group_is_confirmed_by_every_site(
    two: Sites, alice: User, until_group: Callable[..., Group]
) -> None:
    group = submit(
        alice,
        diversity="soft",
        children=[{"command": "sleep 100"}, {"command": "sleep 100"}, {"command": "true", "round": 2}],
    )
    advance(group)
    step()
    step()

    groups.cancel_group(alice, group.handle, actor="user:alice", now=timezone.now())
    until_group(group)

    assert group.state == GroupState.CANCELLED
    assert set(group.tasks.values_list("state", flat=True)) == {"cancelled"}
    assert two.squeue("delta") == ""
    assert two.squeue("vista") == ""


def test_a_stalled_child_joins_its_siblings_system_and_the_group_says_so(
    two: Sites, alice: User, until_group: Callable[..., Group]
) -> None:
    group = submit(alice, diversity="soft", children=[{"command": "sleep 3"}, {"command": "sleep 3"}])
    advance(group)
    stuck = group.tasks.get(attempt__system__slug="delta")
    step()
    started = "RUNNING" in two.squeue("delta", "-o", "%T")
    two.run("delta", "scontrol", "requeuehold" if started else "hold", stuck.attempts.get().job_id)
    other = group.tasks.exclude(pk=stuck.pk).get()
    deadline = time.monotonic() + 30
    while other.state != TaskState.SUCCEEDED and time.monotonic() < deadline:
        step()
        other.refresh_from_db()
        time.sleep(0.3)
    step()
    assert stuck.attempts.get().state == AttemptState.PENDING

    groups.advance_group(group.pk, now=timezone.now() + timedelta(minutes=5))
    told = Event.objects.get(subject=group.handle, type="group.constraint_relaxed")
    assert told.data == {"task": stuck.handle, "system": "vista"}
    Attempt.objects.filter(task=stuck).update(due_at=timezone.now(), cancel_requested_at=timezone.now())
    until_group(group)

    assert group.state == GroupState.SUCCEEDED
    assert types_of(group)[1:3] == ["group.child_stalled", "group.constraint_relaxed"]
    old, new = stuck.attempts.order_by("number")
    assert (old.state, new.system.slug) == (AttemptState.SUPERSEDED, "vista")


@pytest.mark.parametrize("kept", ["hard", "disabled"])
def test_a_stalled_child_stays_where_a_rule_or_its_own_word_keeps_it(
    two: Sites, alice: User, kept: str
) -> None:
    child = {"command": "true", "replacement": {"enabled": kept != "disabled"}}
    diversity = "hard" if kept == "hard" else "soft"
    group = submit(alice, diversity=diversity, children=[child, child])
    advance(group)
    stuck = group.tasks.get(attempt__system__slug="delta")
    _wait_in_vain(stuck)
    end_well(group.tasks.exclude(pk=stuck.pk).get())

    for minutes in (5, 10):
        groups.advance_group(group.pk, now=timezone.now() + timedelta(minutes=minutes))

    stuck.refresh_from_db()
    assert types_of(group)[1:] == ["group.child_stalled"]
    assert stuck.attempts.get().cancel_requested_at is None
    assert diversity_load(stuck) == ({"vista": 1} if kept == "hard" else {})


def test_of_two_stalled_children_one_moves_at_a_time(two: Sites, alice: User) -> None:
    child = {"command": "true", "envelope": {"policy": {"allow_systems": ["delta"]}}}
    group = submit(alice, diversity="soft", children=[{"command": "true"}, child, child])
    advance(group)
    first, *stuck = group.tasks.order_by("pk")
    for task in stuck:
        _wait_in_vain(task)
    end_well(first)

    at = timezone.now() + timedelta(minutes=5)
    told = []
    for _ in range(3):
        groups.advance_group(group.pk, now=at)
        told.append([event.data["task"] for event in _stalled(group)])

    assert told == [[stuck[0].handle], [each.handle for each in stuck], [each.handle for each in stuck]]


def _stalled(group: Group) -> list[Event]:
    return list(Event.objects.filter(subject=group.handle, type="group.child_stalled").order_by("id"))


def _wait_in_vain(task: Task) -> None:
    """Let a placed task's job wait since now; no site is asked."""
    at = timezone.now()
    for state in (AttemptState.DISPATCHING, AttemptState.SUBMITTED, AttemptState.PENDING):
        Attempt.objects.filter(task=task).update(state=state.value)
    Attempt.objects.filter(task=task).update(
        job_id=f"{task.pk}", submitted_at=at, observed_at=at, due_at=None
    )
    for moved in (TaskState.SUBMITTED, TaskState.PENDING):
        Task.objects.filter(pk=task.pk).update(state=moved.value)


def end_well(task: Task) -> None:
    """Let a placed task have succeeded; no site is asked."""
    at = timezone.now()
    for state in (AttemptState.DISPATCHING, AttemptState.SUBMITTED, AttemptState.SUCCEEDED):
        Attempt.objects.filter(task=task).update(state=state.value, started_at=at, ended_at=at, due_at=None)
    for moved in (TaskState.SUBMITTED, TaskState.SUCCEEDED):
        Task.objects.filter(pk=task.pk).update(state=moved.value, finished_at=at)


def test_tasks_that_join_a_group_on_their_own_are_children_like_the_others(two: Sites, alice: User) -> None:
    group = submit(alice, children=[{"command": "true"}])
    advance(group)
    joined = [
        tasks.submit_task(
            alice,
            {"command": "true", "envelope": ONE_GPU, "group": group.handle},
            actor="user:alice",
            now=timezone.now(),
        ).task
        for _ in range(2)
    ]
    assert [task.group_key for task in joined] == [task.handle for task in joined]
    Task.objects.filter(pk__in=[task.pk for task in joined]).update(group_key="")  # as written before
    first = group.tasks.get(group_key="1")
    for ended in (first, joined[1]):
        end_well(ended)

    advance(group)
    assert group.state == GroupState.RUNNING

    end_well(joined[0])
    advance(group)
    assert group.state == GroupState.SUCCEEDED
    assert Event.objects.get(subject=group.handle, type="group.succeeded").data["children"]["succeeded"] == 3


@pytest.mark.parametrize(
    ("given", "pointer", "code"),
    [
        ({"children": []}, "", "not_valid"),
        ({"children": [{"command": "true", "after": ["x"]}]}, "/children/0/after/0", "unknown_sibling"),
        (
            {
                "children": [
                    {"key": "a", "command": "true", "after": ["b"]},
                    {"key": "b", "command": "true", "after": ["a"]},
                ]
            },
            "/children",
            "circle",
        ),
        ({"children": [{"command": "true"}, {"comand": "true"}]}, "/children/1/comand", "unknown_field"),
        (
            {"matrix": {"task": {"command": "true"}, "parameters": {"x": list(range(2000))}}},
            "/matrix/parameters",
            "too_many",
        ),
        ({"children": [{"command": "true", "envelope": {"gpus": -1}}]}, "/children/0/envelope/gpus", None),
    ],
)
def test_a_bad_group_names_the_child_and_writes_nothing(
    alice: User, given: dict[str, Any], pointer: str, code: str | None
) -> None:
    with pytest.raises(InvalidInput) as caught:
        groups.submit_group(alice, given, actor="user:alice", now=timezone.now())

    found = {where: kind for where, kind, _ in caught.value.problems}
    assert pointer in found
    assert code is None or found[pointer] == code
    assert not Task.objects.exists()
    assert not Group.objects.exists()
    assert not System.objects.exists()


def test_a_transaction_that_took_long_places_no_more_but_one_child_at_least(
    two: Sites, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = submit(alice, children=[{"key": key, "command": ["true"]} for key in "abc"])
    monkeypatch.setattr(groups, "PLACING_S", -1.0)

    placed = []
    for _ in range(3):
        more = groups.advance_group(group.pk, now=timezone.now())
        placed.append((more, group.tasks.exclude(state=TaskState.ACCEPTED).count()))

    assert placed == [(True, 1), (True, 2), (False, 3)]


def test_children_that_were_never_placed_are_cancelled_in_one_write(
    two: Sites, alice: User, django_assert_max_num_queries: Any
) -> None:
    group = submit(alice, matrix={"task": {"command": ["echo", "{x}"]}, "parameters": {"x": list(range(40))}})

    with django_assert_max_num_queries(30):
        groups.cancel_group(alice, group.handle, actor="user:alice", now=timezone.now())
    advance(group)

    assert group.state == GroupState.CANCELLED
    told = set(group.tasks.values_list("state", "cause", "reason"))
    assert told == {("cancelled", "cancelled_by_user", "Cancelled as asked.")}
    assert not group.tasks.filter(finished_at=None).exists()
    events = Event.objects.filter(type="task.cancelled", group=group.handle)
    assert (events.count(), set(events.values_list("state", "actor"))) == (40, {("cancelled", "user:alice")})
