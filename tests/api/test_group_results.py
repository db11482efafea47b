"""One answer for a whole group: state, rounds, what its children left together, and what they cost."""

import time
from decimal import Decimal

import pytest
from django.utils import timezone

from federation.models import System
from orchestrator.models import Attempt, Group, Manifest
from orchestrator.services.groups import advance_group
from tests.api.conftest import Api
from tests.stepping import step

pytestmark = pytest.mark.django_db(transaction=True)


def until_over(handle: str) -> Group:
    deadline = time.monotonic() + 60
    while True:
        group = Group.objects.get(handle=handle)
        while advance_group(group.pk, now=timezone.now()):
            pass
        group.refresh_from_db()
        if group.finished_at is not None:
            return group
        assert time.monotonic() < deadline, list(group.tasks.values_list("state", "reason"))
        step()
        time.sleep(0.3)


def test_a_group_answers_once_for_all_its_children(api: Api, delta: System) -> None:
    child = {"envelope": {"gpus": 1, "cpus": 2, "walltime_s": 600}}
    children = [
        {"key": "good", "command": "head -c 1000 /dev/zero > out", **child},
        {"key": "bad", "command": "head -c 24 /dev/zero > out; exit 3", **child},
        {"key": "next", "command": "true", "after": ["bad"], **child},
    ]
    handle = api.skill("submit_group", {"children": children, "require": 2}).json()["id"]
    before = api.skill("get_result", {"group": handle}).json()["manifest"]

    until_over(handle)
    found = api.skill("get_result", {"group": handle}).json()

    nothing = {"manifests": 0, "unlisted": 0, "files": 0, "bytes": 0, "started_at": None, "ended_at": None}
    assert before == {**nothing, "cost": []}
    assert (found["state"], found["group"]["require"]) == ("partially_succeeded", 2)
    assert [(each["key"], each["state"], each["exit_code"]) for each in found["results"]] == [
        ("good", "succeeded", 0),
        ("bad", "failed", 3),
        ("next", "cancelled", None),
    ]
    left = found["manifest"]
    listed = [file for manifest in Manifest.objects.all() for file in manifest.body["files"]]
    assert (left["manifests"], left["files"]) == (2, len(listed))
    assert left["bytes"] == sum(file["bytes"] for file in listed) >= 1024
    (cost,) = left["cost"]
    attempts = list(Attempt.objects.all())
    assert (cost["system"], cost["unit"], Decimal(cost["reserved"])) == ("delta", "SU", Decimal(0))
    assert Decimal(cost["settled"]) == sum((each.charge_cost or Decimal(0) for each in attempts), Decimal(0))
    most = sum(Decimal(each.predicted["charge"]["amount"]) for each in attempts)
    assert Decimal(cost["predicted_most"]) == most > 0
    assert left["started_at"] <= left["ended_at"]


def test_files_that_a_site_could_not_list_are_told_apart(api: Api, delta: System) -> None:
    child = {"command": "true", "envelope": {"gpus": 1, "cpus": 2, "walltime_s": 600}}
    handle = api.skill("submit_group", {"children": [child]}).json()["id"]
    until_over(handle)
    row = Manifest.objects.get()
    Manifest.objects.filter(pk=row.pk).update(body={**row.body, "files": None})

    left = api.skill("get_result", {"group": handle}).json()["manifest"]

    assert (left["manifests"], left["unlisted"], left["files"], left["bytes"]) == (1, 1, 0, 0)
