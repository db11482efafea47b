"""The second placement of a hedged task heeds all that the first one did."""

from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from federation import collector
from federation.models import Event
from federation.profile import ProfileDocument
from federation.services import store_profile
from orchestrator.models import Task
from orchestrator.services import groups, tasks
from orchestrator.services.placing import decide_beside
from tests.state.conftest import PROFILES, Sites

pytestmark = pytest.mark.django_db(transaction=True)

HEDGE = {"enabled": True, "min_wait_s": 0}
ENVELOPE = {"gpus": 1, "cpus": 2, "walltime_s": 600}


@pytest.fixture(autouse=True)
def _both(sites: Sites, alice: User) -> None:
    """Two systems whose sites allow hedging, and take ten minutes to fetch an image."""
    for slug, account in (("delta", "bbka-delta-gpu"), ("vista", "ASC24001")):
        system = sites.add(slug, alice, account=account, granted=Decimal(1000))
        rules = {"policy": {"allow_hedging": True}, "preparation_s": 600, "containers": ["apptainer"]}
        document = ProfileDocument.model_validate({**PROFILES[slug], **rules})
        store_profile(document, str(document), now=timezone.now())
        collector.refresh(system.pk, now=timezone.now(), force_full=True)


def submit(user: User, **given: Any) -> Task:
    wanted = {"command": "true", "envelope": ENVELOPE, "hedge": HEDGE, **given}
    return tasks.submit_task(user, wanted, actor="user:alice", now=timezone.now()).task


def other_than(task: Task) -> str:
    assert task.attempt is not None
    return {"delta": "vista", "vista": "delta"}[task.attempt.system.slug]


def beside(task: Task) -> tuple[str | None, dict[str, set[str]]]:
    """Return where the second placement goes, and the codes each partition of the other system fails."""
    assert task.attempt is not None
    found = decide_beside(task, barred={task.attempt.system.slug}, now=timezone.now())
    codes = {
        each.partition: {rejection.code for rejection in each.rejections}
        for each in found.candidates
        if each.system == other_than(task)
    }
    return found.selected.system if found.selected else None, codes


def test_where_the_task_failed_before_is_no_second_place(alice: User) -> None:
    task = submit(alice)
    other = other_than(task)
    assert beside(task)[0] == other
    account = {"delta": "bbka-delta-gpu", "vista": "ASC24001"}[other]

    for why in ("never", "avoid"):
        task.plan = {why: [[other, name, account] for name in PROFILES[other]["partitions"]]}
        place, codes = beside(task)

        assert place is None
        assert all("partition_blocked" in found for found in codes.values())


def test_work_whose_checkpoint_lies_at_one_system_has_no_second_place(alice: User) -> None:
    task = submit(alice)
    assert task.attempt is not None
    task.plan = {"resume": task.attempt.system.slug}

    assert beside(task)[0] is None


def test_the_image_that_the_environment_names_is_prepared_at_the_second_place_too(alice: User) -> None:
    task = submit(alice, environment={"container": "docker://ubuntu:24.04"})

    found = decide_beside(task, barred=(), now=timezone.now())

    assert found.selected is not None
    assert found.selected.estimates.preparation_s == 300  # half: it may be there


def test_a_child_that_must_be_alone_at_its_system_is_not_hedged_and_says_why(alice: User) -> None:
    child = {"command": "true", "hedge": HEDGE}
    given = {"envelope": ENVELOPE, "diversity": "hard", "children": [child, child]}
    group = groups.submit_group(alice, given, actor="user:alice", now=timezone.now()).group
    while groups.advance_group(group.pk, now=timezone.now()):
        pass

    placed = list(group.tasks.order_by("id"))

    assert [task.attempts.count() for task in placed] == [1, 1]
    assert len({task.attempt.system_id for task in placed if task.attempt}) == 2
    told = Event.objects.filter(task=placed[0].handle, type="attempt.moved").latest("id")
    assert told.summary == "not hedged: its group keeps every task at a system of its own"
