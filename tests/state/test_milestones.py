"""What a job itself reports, what it leaves in files, and why it failed: kept, bounded, without its token."""

import json
import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from federation.models import Event
from orchestrator import job_tokens
from orchestrator.dispatch import _milestone_url, dispatch
from orchestrator.job_tokens import JobTokenRefused
from orchestrator.lifecycle import TaskState
from orchestrator.models import Attempt, Decision, Manifest, Task
from orchestrator.services import tasks
from orchestrator.services.milestones import MOST, PER_MINUTE, note_dropped, reach_milestone
from portal.skills import every  # noqa: F401  # registers the skills
from portal.skills.registry import Caller, Options, Scope, skill
from providers.errors import InvalidInput, RateLimited
from tests.state.conftest import Sites

pytestmark = pytest.mark.django_db(transaction=True)
NOWHERE = "http://127.0.0.1:9/api/v1/milestones"
TOKEN = re.compile(r"fjt_[A-Za-z0-9_:.=-]{20,}")


@pytest.fixture(autouse=True)
def _told(settings: Any) -> None:
    settings.MILESTONE_URL = NOWHERE


def _submit(user: User, command: str, **given: object) -> Task:
    wanted = {"name": "work", "command": command, "envelope": {"gpus": 1, "walltime_s": 600}, **given}
    return tasks.submit_task(user, wanted, actor="user:alice", now=timezone.now()).task


def _dispatched(sites: Sites, alice: User) -> tuple[Attempt, str]:
    """Return an attempt that its site holds, and the token its job was given."""
    sites.add("delta", alice, account="bbka-delta-gpu", granted=Decimal(100))
    task = _submit(alice, "sleep 30")
    attempt = task.attempts.get()
    dispatch(attempt.pk, now=timezone.now())
    attempt.refresh_from_db()
    return attempt, (Path(attempt.stdout_path).parent / ".facet/token").read_text()


def _milestones(task: Task) -> list[Event]:
    return list(Event.objects.filter(task=task.handle, type="milestone.reached").order_by("id"))


def test_a_job_without_network_leaves_its_milestones_for_the_end(
    sites: Sites, alice: User, until: Callable[..., Task]
) -> None:
    sites.add("delta", alice, account="bbka-delta-gpu", granted=Decimal(100))
    command = '"$FACET_MILESTONE" "epoch 1"; echo by hand > .facet-milestones/z.txt; echo "rc $?"; sleep 1'

    task = until(_submit(alice, command))

    assert task.state == TaskState.SUCCEEDED, task.reason
    noted = _milestones(task)
    assert [event.data for event in noted] == [
        {"text": "epoch 1", "untrusted": True, "number": 1, "source": "file"},
        {"text": "by hand", "untrusted": True, "number": 2, "source": "file"},
    ]
    assert noted[0].summary == "work reports (untrusted): “epoch 1”"
    attempt = task.attempts.get()
    assert (noted[0].actor, noted[0].on_behalf_of) == (f"job:{attempt.handle}", "user:alice")
    assert (noted[0].subject, noted[0].wake) == (task.handle, "milestone")
    assert Path(attempt.stdout_path).read_text() == "rc 0\n"
    paths = {entry["path"] for entry in task.manifest.body["files"]}
    assert {"stdout.log", "stderr.log", ".facet-milestones/z.txt"} <= paths
    assert not any(path.startswith(".facet/") for path in paths)


def test_a_failed_job_says_why_and_its_token_is_nowhere(
    sites: Sites, alice: User, until: Callable[..., Task], tmp_path: Path
) -> None:
    sites.add("delta", alice, account="bbka-delta-gpu", granted=Decimal(100))
    command = (
        'env; env >&2; echo "work.py: line 3: gmx_mpi: command not found $FACET_JOB_TOKEN" >&2; exit 127'
    )

    task = until(_submit(alice, command))

    assert task.state == TaskState.FAILED
    attempt = task.attempts.get()
    token = (Path(attempt.stdout_path).parent / ".facet/token").read_text()
    assert token in Path(attempt.stderr_path).read_text()
    triage = task.manifest.body["triage"]
    assert triage["cause"] == "command_not_found"
    assert triage["evidence"][0]["from"] == "stderr"
    failed = Event.objects.get(task=task.handle, type="task.failed")
    assert failed.data["triage"] == "command_not_found"
    assert "gmx_mpi" not in json.dumps([failed.data, failed.summary])

    caller = Caller(alice, "user:alice", frozenset({Scope.READ}))
    now = timezone.now()
    result = skill("get_result").call({"task": task.handle}, caller, now=now).value.model_dump_json()
    log = skill("read_log").call({"task": task.handle, "stream": "stderr"}, caller, now=now).value
    assert json.loads(result)["triage"]["cause"] == "command_not_found"
    assert "FACET_JOB_TOKEN=****" in log.model_dump()["text"]
    kept = [
        *Event.objects.values_list("data", "summary", "next_actions"),
        *Manifest.objects.values_list("body"),
        *Decision.objects.values_list("body"),
        *Task.objects.values_list("spec", "plan"),
        *Attempt.objects.values_list("reason_raw", "reason_explained", "predicted"),
        (result, log.model_dump_json()),
    ]
    assert not TOKEN.search(json.dumps(kept, default=str))
    places = {Path(attempt.stdout_path).parent, tmp_path}  # its folder, and all that the scheduler keeps
    files = {path for place in places for path in place.rglob("*") if path.is_file()}
    holders = {path.name for path in files if token.encode() in path.read_bytes()}
    assert holders == {"token", "stdout.log", "stderr.log"}
    assert (Path(attempt.stdout_path).parent / ".facet/token").stat().st_mode & 0o777 == 0o600


def test_the_same_work_is_submitted_again_with_what_triage_would_change(
    sites: Sites, alice: User, until: Callable[..., Task]
) -> None:
    sites.add("delta", alice, account="bbka-delta-gpu", granted=Decimal(100))
    envelope = {"gpus": 1, "cpus": 4, "memory_mib": 8192, "walltime_s": 600}
    first = _submit(alice, "echo std::bad_alloc >&2; exit 1", envelope=envelope, client_ref="mine")
    until(first)
    caller = Caller(alice, "user:alice", frozenset({Scope.READ, Scope.SUBMIT}))
    triage = first.manifest.body["triage"]
    assert triage["cause"] == "host_memory_exhausted"

    for call in triage["next_actions"][:2]:
        answer = skill(call["skill"]).call(
            call["arguments"], caller, now=timezone.now(), options=Options(wait_s=0)
        )

    second = Task.objects.get(handle=answer.value.model_dump()["id"])
    assert triage["next_actions"][1]["skill"] == "submit_task"
    assert second.spec == {**first.spec, "client_ref": ""}
    assert second.name == "work"
    assert second.envelope.body["memory_mib"]["min"] == triage["changes"]["memory_mib"]["min"] == 12_288
    assert second.envelope.body["cpus"] == first.envelope.body["cpus"]


def test_a_reported_milestone_is_cleaned_cut_and_marked(sites: Sites, alice: User) -> None:
    attempt, token = _dispatched(sites, alice)
    now = timezone.now()

    reach_milestone(token, "epoch 3\x1b[31m\nloss\u202e 0.1 password=hunter2 " + "x" * 500, now=now)

    event = _milestones(attempt.task)[0]
    assert event.data["text"].startswith("epoch 3 loss 0.1 password=[redacted] xxx")
    assert len(event.data["text"]) == 200
    assert (event.data["source"], event.data["number"]) == ("job", 1)
    with pytest.raises(InvalidInput):
        reach_milestone(token, " \x00 ", now=now)


def test_a_job_cannot_flood_the_log(sites: Sites, alice: User) -> None:
    attempt, token = _dispatched(sites, alice)
    now = timezone.now()

    for number in range(PER_MINUTE):
        reach_milestone(token, f"step {number}", now=now)
    with pytest.raises(RateLimited):
        reach_milestone(token, "one too fast", now=now)
    reach_milestone(token, "a minute later", now=now + timedelta(minutes=1, seconds=1))

    attempt.task = Task.objects.get(pk=attempt.task_id)

    with transaction.atomic():
        noted = note_dropped(attempt, [f"file {number}" for number in range(500)], now=now)
    assert noted == MOST - PER_MINUTE - 1
    with pytest.raises(RateLimited):
        reach_milestone(token, "one too many", now=now + timedelta(hours=1))
    assert len(_milestones(attempt.task)) == MOST


def test_a_token_ends_with_its_attempt_its_wall_time_and_its_age(sites: Sites, alice: User) -> None:
    attempt, token = _dispatched(sites, alice)
    now = timezone.now()

    for wrong in ("facet_abc", "fjt_abc", token[:-1] + ("A" if token[-1] != "A" else "B"), ""):
        with pytest.raises(JobTokenRefused):
            reach_milestone(wrong, "x", now=now)
    with pytest.raises(JobTokenRefused, match="too old"):
        reach_milestone(token, "x", now=now + job_tokens.LONGEST + timedelta(minutes=1))
    walltime = timedelta(seconds=attempt.shape["walltime_s"])
    Attempt.objects.filter(pk=attempt.pk).update(started_at=now)
    reach_milestone(token, "still good", now=now + walltime + timedelta(minutes=59))
    with pytest.raises(JobTokenRefused, match="wall time"):
        reach_milestone(token, "x", now=now + walltime + timedelta(minutes=61))
    Attempt.objects.filter(pk=attempt.pk).update(finished_at=now)
    with pytest.raises(JobTokenRefused, match="has ended"):
        reach_milestone(token, "x", now=now)


def test_where_jobs_cannot_reach_us_they_are_given_nothing(
    sites: Sites, alice: User, until: Callable[..., Task], settings: Any
) -> None:
    settings.MILESTONE_URL = ""
    sites.add("delta", alice, account="bbka-delta-gpu", granted=Decimal(100))

    task = until(_submit(alice, 'echo "<$FACET_JOB_TOKEN$FACET_MILESTONE>"'))

    attempt = task.attempts.get()
    assert Path(attempt.stdout_path).read_text() == "<>\n"
    ours = [each.name for each in (Path(attempt.stdout_path).parent / ".facet").iterdir()]
    assert ours == [f"submitted-{attempt.submit_key}-1"]


@pytest.mark.parametrize(
    ("url", "kind", "given"),
    [
        ("http://127.0.0.1:8000/api/v1/milestones", "local", True),
        ("http://127.0.0.1:8000/api/v1/milestones", "globus_compute", False),
        ("https://facet.example.org/api/v1/milestones", "globus_compute", True),
        ("", "local", False),
    ],
)
def test_an_address_of_this_machine_is_given_to_no_other(
    settings: Any, url: str, kind: str, given: bool
) -> None:
    settings.MILESTONE_URL = url

    assert _milestone_url(kind) == (url if given else "")
