"""What each skill answers, from a real (emulated) cluster: views, drafts, previews, the main job, logs."""

import json
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from federation import collector
from federation.models import Event, PartitionSample, System
from federation.services import allocate
from orchestrator.models import Envelope, Task
from portal.skills.bounds import LIMIT_BYTES
from portal.skills.logs import _whole_characters
from tests.api.conftest import Api
from tests.state.conftest import Sites
from tests.stepping import step

pytestmark = pytest.mark.django_db(transaction=True)

DIRECTIVES = "#SBATCH --gpus=2\n#SBATCH --time=02:00:00\n#SBATCH --cpus-per-task=8\nsrun python train.py\n"


def test_the_federation_is_one_timestamped_normalized_view(api: Api, delta: System) -> None:
    view = api.skill("inspect_federation").json()

    assert view["generated_at"].endswith("Z")
    system = view["systems"][0]
    assert (system["id"], system["state"], system["scheduler"]) == ("delta", "online", "slurm 22.05.8")
    assert system["age_s"] >= 0
    assert system["figures"]["gpus_by_type"] == {
        "a100": {"total": 64, "free": 64},
        "a40": {"total": 64, "free": 64},
    }
    best = view["records"][0]
    assert (best["system"], best["partition"], best["account"]) == ("delta", "gpuA100x4", "bbka-delta-gpu")
    assert best["usable"] is True
    assert best["figures"]["largest_free_gpus_on_one_node"] == 4
    assert best["credit"] == {"unit": "SU", "granted": "100.0000", "left": "100.0000"}
    assert best["charge"]["per_gpu"] == "1"
    shut = next(record for record in view["records"] if record["partition"] == "cpu")
    assert shut["blocked"] == ["accounts here must match *-cpu"]
    assert view["summary"]["gpus_by_type"]["a100"] == {"total": 64, "free": 64}


def test_a_user_without_a_connection_sees_the_system_and_why_it_is_closed(
    delta: System, bob: User, caller: Callable[..., Api]
) -> None:
    view = caller(bob).skill("inspect_federation").json()

    assert view["systems"][0]["is_connected"] is False
    assert all(
        "you hold no working connection to the system" in record["blocked"] for record in view["records"]
    )
    assert view["summary"]["gpus_by_type"] == {}


def test_only_the_systems_asked_for_are_shown_and_unknown_ones_named(
    api: Api, sites: Sites, alice: User
) -> None:
    sites.add("delta", alice, account="bbka-delta-gpu")
    sites.add("vista", alice, account="vista")

    assert [s["id"] for s in api.skill("inspect_federation").json()["systems"]] == ["delta", "vista"]
    one = api.skill("inspect_federation", {"systems": ["vista"]}).json()
    assert [s["id"] for s in one["systems"]] == ["vista"]
    assert {r["system"] for r in one["records"]} == {"vista"}
    answer = api.skill("inspect_federation", {"systems": ["vista", "detla"]})
    assert answer.status_code == 422
    assert answer.json()["errors"] == [
        {
            "pointer": "/systems/1",
            "code": "unknown_system",
            "message": "No system `detla`. Did you mean `delta`?",
        }
    ]


def test_history_is_means_over_equal_stretches(api: Api, delta: System) -> None:
    PartitionSample.objects.all().delete()
    hour = timezone.now().replace(minute=5, second=0, microsecond=0) - timedelta(hours=2)
    for minute, free in ((0, 10), (10, 20)):
        PartitionSample.objects.create(
            system=delta,
            partition="gpuA100x4",
            at=hour + timedelta(minutes=minute),
            gpus_total=64,
            gpus_free=free,
            pending=minute,
        )

    view = api.skill("inspect_federation", {"include_history": True}).json()

    [history] = view["history"]
    assert (history["system"], history["partition"]) == ("delta", "gpuA100x4")
    [point] = history["points"]
    assert (point["gpus_free"], point["pending"]) == (15.0, 5.0)
    assert "history" not in view["omitted"]
    assert api.skill("inspect_federation").json()["history"] == []


def test_a_wide_federation_is_shortened_to_sixteen_kib_with_a_way_on(
    api: Api, delta: System, alice: User
) -> None:
    for number in range(40):
        allocate(alice, delta, f"acct{number}-delta-gpu", unit="SU", granted=Decimal(1), now=timezone.now())

    short = api.skill("inspect_federation")
    full = api.post("skills/inspect_federation?full=1")

    assert len(short.content) <= LIMIT_BYTES < len(full.content)
    view = short.json()
    assert len(view["records"]) + view["omitted"]["records"] == len(full.json()["records"]) == 123
    assert view["next"]["skill"] == "inspect_federation"
    assert view["summary"] == full.json()["summary"]


def test_no_other_users_name_or_job_is_ever_shown(api: Api, sites: Sites, delta: System) -> None:
    job = "#!/bin/sh\nsleep 60\n"
    path = sites.root / "secretly.sh"
    path.write_text(job)
    env = {"FACET_SLURM_USER": "mallory"}
    sites.env["delta"] = {**sites.env["delta"], **env}
    sites.run("delta", "sbatch", "-J", "secretly", "-p", "cpu", "-A", "bbka-delta-cpu", str(path))
    collector.refresh(delta.pk, now=timezone.now(), force_full=True)

    answers = [
        api.post("skills/inspect_federation?full=1"),
        api.get("systems"),
        api.get("snapshots"),
        api.post("skills/preview_placement?full=1", {"gpus": 1}),
    ]

    assert (
        answers[0].json()["systems"][0]["queue"]["running"]
        + (answers[0].json()["systems"][0]["queue"]["pending"])
        == 1
    )
    for answer in answers:
        assert "secretly" not in answer.content.decode()
        assert "mallory" not in answer.content.decode()


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("shebang", ["#!/bin/bash\n", ""])
def test_a_script_is_drafted_with_or_without_shebang_and_carriage_returns(
    api: Api, ending: str, shebang: str
) -> None:
    script = (shebang + DIRECTIVES).replace("\n", ending)

    draft = api.skill("draft_envelope", {"script": script}).json()

    assert (draft["source"], draft["dialect"], draft["state"]) == ("script", "slurm", "drafted")
    assert draft["envelope"]["gpus"] == {"min": 2, "max": 2}
    assert draft["envelope"]["walltime_s"] == {"min": 7200, "max": 7200}
    assert 0 < draft["confidence"] <= 1
    assert "line" in draft["rationale"]["gpus"]
    assert draft["validation"] == {"valid": True, "errors": []}
    assert Envelope.objects.get().handle == draft["id"]
    assert not Task.objects.exists()
    event = Event.objects.get(type="envelope.drafted")
    assert (event.subject, event.actor) == (draft["id"], "token:test")


def test_words_are_drafted_by_rules_and_what_is_left_is_told(api: Api) -> None:
    draft = api.skill("draft_envelope", {"text": "4 A100 for 2 hours with frobnication", "code_context": "x"})

    found = draft.json()
    assert found["source"] == "rules"
    assert found["envelope"]["accelerator"]["types"] == ["a100"]
    assert found["not_understood"]
    assert [note["text"] for note in found["warnings"]] == ["code_context"]


def test_a_draft_that_cannot_be_valid_is_not_kept(api: Api) -> None:
    answer = api.skill("draft_envelope", {"script": "#!/bin/sh\n#SBATCH --gpus=9999999999\necho\n"})

    if answer.status_code == 200:
        assert answer.json()["id"] is None or answer.json()["refusals"] or answer.json()["not_understood"]
    assert answer.status_code in (200, 422)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, "not_exactly_one"),
        ({"text": "1 gpu", "script": DIRECTIVES}, "not_exactly_one"),
        ({"text": " "}, "empty_text"),
        ({"script": ""}, ""),
        ({"script": "echo hello\n"}, "no_directives"),
        ({"script": DIRECTIVES, "dialect": "slrum"}, ""),
        ({"txt": "1 gpu"}, "unknown_field"),
    ],
)
def test_a_draft_of_nothing_says_why(api: Api, given: dict[str, Any], code: str) -> None:
    answer = api.skill("draft_envelope", given)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["code"] == code or not code


def test_a_drafted_envelope_can_be_submitted_by_its_handle(api: Api, delta: System) -> None:
    handle = api.skill("draft_envelope", {"text": "2 a100 for 1 hour"}).json()["id"]

    task = api.post("tasks?wait_s=0", {"command": "true", "envelope_id": handle}).json()

    assert task["partition"] == "gpuA100x4"
    assert task["shape"]["gpus"] == 2


def test_a_preview_is_the_decision_a_submission_gets_and_keeps_nothing(api: Api, delta: System) -> None:
    preview = api.skill("preview_placement", {"gpus": 2, "walltime_s": "1:00:00"}).json()
    wrapped = api.skill("preview_placement", {"envelope": {"gpus": 2, "walltime_s": 3600}}).json()

    assert preview["result"] == "placed"
    assert preview["id"] == ""
    assert preview["selected"]["partition"] == wrapped["selected"]["partition"] == "gpuA100x4"
    assert preview["selected"]["estimates"]["wait_s"].keys() == {"p50", "p90"}
    assert len(preview["candidates"]) == 3
    assert not Task.objects.exists()
    assert not Envelope.objects.exists()
    submitted = api.post(
        "tasks?wait_s=0", {"command": "x", "envelope": {"gpus": 2, "walltime_s": 3600}}
    ).json()
    assert submitted["decision"]["selected"]["shape"] == preview["selected"]["shape"]


def test_a_long_preview_keeps_every_candidate_and_code(api: Api, delta: System, alice: User) -> None:
    for number in range(25):
        allocate(alice, delta, f"acct{number}-delta-gpu", unit="SU", granted=Decimal(50), now=timezone.now())
    envelope = {"gpus": {"min": 1, "max": 16}}

    short = api.skill("preview_placement", envelope)
    full = api.post("skills/preview_placement?full=1", envelope)

    def told(body: dict[str, Any]) -> list[Any]:
        return [
            (c["system"], c["partition"], c["account"], c["feasible"], [r["code"] for r in c["rejections"]])
            for c in body["candidates"]
        ]

    assert len(short.content) <= LIMIT_BYTES * 1.1 < len(full.content) / 2
    assert told(short.json()) == told(full.json())
    assert short.json()["selected"]["shape"] == full.json()["selected"]["shape"]
    assert "full=1" in short.json()["warnings"][-1]


def test_a_task_that_fits_nowhere_lists_every_candidate_and_the_smallest_change(
    api: Api, delta: System
) -> None:
    answer = api.post("tasks", {"command": "true", "envelope": {"gpus": 5000}})

    assert answer.status_code == 201
    body = answer.json()
    assert (body["state"], body["system"]) == ("unschedulable", None)
    assert len(body["decision"]["candidates"]) == body["decision"]["considered"] == 3
    assert all(c["rejections"] and not c["feasible"] for c in body["decision"]["candidates"])
    assert body["decision"]["closest"]["changes"][0]["field"]
    action = body["task"]["next_actions"][1]
    changes = {each["field"]: each["proposed"] for each in body["decision"]["closest"]["changes"]}
    wanted = {name: {"min": changes[f"{name}.min"], "max": 5000} for name in ("gpus", "cpus")}
    assert action["skill"] == "replan"
    assert action["why"].startswith("place it anew: Change gpus.min from 5000 to ")
    assert action["arguments"] == {"task": body["id"], "changes": wanted}
    event = api.skill("wait_for_events", {"after": 0, "types": ["task.unschedulable"], "timeout_s": 0}).json()
    assert action in event["events"][0]["next_actions"]

    followed = api.skill("replan?wait_s=0", action["arguments"]).json()
    assert followed["state"] == "submitted" or followed["state"] == "placing", followed


def test_a_changed_envelope_says_only_what_changes(api: Api, delta: System) -> None:
    said = {"gpus": 5000, "walltime_s": 1200, "memory_mib": "4G"}
    task = api.post("tasks?wait_s=0", {"command": "true", "envelope": said}).json()["id"]

    def envelope_of(answer: Any) -> dict[str, Any]:
        found: dict[str, Any] = api.get(f"envelopes/{answer.json()['envelope']}").json()["envelope"]
        return {name: found[name] for name in ("gpus", "cpus", "walltime_s", "memory_mib")}

    def exactly(count: int) -> dict[str, int]:
        return {"min": count, "max": count}

    first = envelope_of(api.get(f"tasks/{task}"))
    smaller = envelope_of(api.skill("replan?wait_s=0", {"task": task, "changes": {"gpus": 4000}}))
    unsaid = envelope_of(api.skill("replan?wait_s=0", {"task": task, "changes": {"memory_mib": None}}))
    whole = envelope_of(api.skill("replan?wait_s=0", {"task": task, "envelope": {"gpus": 3000}}))
    both = api.skill("replan", {"task": task, "envelope": {"gpus": 1}, "changes": {"gpus": 1}})

    assert first == {
        "gpus": exactly(5000),
        "cpus": exactly(5000),
        "walltime_s": exactly(1200),
        "memory_mib": exactly(4096),
    }
    # Nobody said a number of CPUs: it follows the GPUs.
    assert smaller == {**first, "gpus": exactly(4000), "cpus": exactly(4000)}
    assert unsaid == {**smaller, "memory_mib": None}
    assert whole == {
        "gpus": exactly(3000),
        "cpus": exactly(3000),
        "walltime_s": exactly(3600),
        "memory_mib": None,
    }
    assert (both.status_code, both.json()["errors"][0]["code"]) == (422, "envelope_and_changes")


def test_a_task_is_called_as_its_script_calls_the_job(api: Api, delta: System) -> None:
    script = "#!/bin/bash\n#SBATCH --job-name=train-7\n#SBATCH --time=5\ntrue\n"

    named = api.post("tasks?wait_s=0", {"script": script}).json()["task"]["name"]
    given = api.post("tasks?wait_s=0", {"script": script, "name": "mine"}).json()["task"]["name"]

    assert (named, given) == ("train-7", "mine")


@pytest.mark.parametrize(
    "text", ["echo hello\n", "#SBATCH --gpus=1\r\necho hi\r\n", "#!/bin/bash\r\necho x\r\n"]
)
def test_a_script_without_shebang_or_with_carriage_returns_is_submitted(
    api: Api, delta: System, text: str
) -> None:
    answer = api.post("tasks?wait_s=0", {"script": text, "envelope": {"cpus": 1}})

    assert answer.status_code == 202
    assert answer.json()["shape"]["gpus"] == ("--gpus=1" in text)


def test_a_script_that_contradicts_its_envelope_is_told(api: Api, delta: System) -> None:
    answer = api.post(
        "tasks?wait_s=0", {"script": "#!/bin/sh\n#SBATCH --gpus=2\necho\n", "envelope": {"gpus": 1}}
    )

    [conflict] = answer.json()["understood"]["conflicts"]
    assert conflict["field"] == "gpus"
    assert answer.json()["shape"]["gpus"] == 1


@pytest.mark.parametrize(
    ("raw", "limit", "text", "following"),
    [
        ("aé".encode(), 2, "a", 1),
        ("aé".encode(), 3, "aé", 3),
        ("a€b".encode(), 3, "a", 1),
        (b"a\xff\xc3\xa9", 3, "a\ufffd\ufffd", 3),
        (b"ab\xc3", 9, "ab\ufffd", 3),
    ],
)
def test_a_log_is_cut_between_characters(raw: bytes, limit: int, text: str, following: int) -> None:
    cut = raw[:limit]

    assert _whole_characters(cut.decode("utf-8", "replace"), 0, len(cut), len(raw)) == (text, following)


def _until(api: Api, handle: str, state: str, timeout_s: float = 40) -> dict[str, Any]:
    until = time.monotonic() + timeout_s
    while True:
        step()
        task: dict[str, Any] = api.get(f"tasks/{handle}").json()
        if task["state"] == state:
            return task
        assert time.monotonic() < until, task
        time.sleep(0.3)


def test_the_main_job_by_the_api(api: Api, delta: System) -> None:
    task = api.post(
        "tasks?wait_s=0",
        {
            "name": "hello",
            "script": "#!/bin/bash\n#SBATCH --gpus=1\n#SBATCH --time=5\n"
            "echo hello; echo oops >&2; echo 1 > a.txt\n",
        },
    ).json()
    assert task["shape"]["gpus"] == 1
    cursor = api.get(f"events?task={task['id']}").json()["results"][0]["cursor"]

    _until(api, task["id"], "succeeded")

    result = api.skill("get_result", {"task": task["id"]}).json()
    assert (result["state"], result["system"]) == ("succeeded", "delta")
    assert result["manifest"]["exit_code"] == 0
    assert "a.txt" in {file["path"] for file in result["manifest"]["files"]}
    assert [attempt["number"] for attempt in result["attempts"]] == [1]
    assert result["omitted"] == {}
    out = api.skill("read_log", {"task": task["id"]}).json()
    assert "hello" in out["text"]
    assert (out["is_complete"], out["untrusted"], out["next_offset"]) == (True, True, out["size"])
    part = api.skill("read_log", {"task": task["id"], "offset": 1, "limit": 3}).json()
    assert (part["text"], part["next_offset"]) == (out["text"][1:4], 4)
    assert "oops" in api.skill("read_log", {"task": task["id"], "stream": "stderr"}).json()["text"]
    heard = api.skill("wait_for_events", {"after": cursor, "subject": task["id"], "timeout_s": 0}).json()
    types = [event["type"] for event in heard["events"]]
    assert types[-1] == "task.succeeded"
    assert "task.accepted" not in types
    ended = next(event for event in heard["events"] if event["type"] == "task.succeeded")
    assert len(json.dumps(ended)) < 8192
    late = api.post(f"tasks/{task['id']}/replan")
    assert (late.status_code, late.json()["code"]) == (409, "conflict")
    assert api.post(f"tasks/{task['id']}/cancel").json()["state"] == "succeeded"


def test_submit_waits_for_the_site_when_asked(api: Api, delta: System) -> None:
    stop = threading.Event()

    def work() -> None:
        try:
            while not stop.wait(0.1):
                step()
        finally:
            connection.close()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        answer = api.post("tasks?wait_s=20", {"command": ["sleep", "30"], "envelope": {"gpus": 1}})
    finally:
        stop.set()
        worker.join()

    assert answer.status_code == 201
    assert answer.json()["state"] in ("submitted", "pending", "running")
    assert answer.json()["task"]["attempt"]["job_id"]


def test_a_waiting_task_is_replanned_elsewhere(api: Api, sites: Sites, alice: User) -> None:
    sites.add("delta", alice, account="bbka-delta-gpu")
    sites.add("vista", alice, account="vista")
    task = api.post("tasks?wait_s=0", {"command": "true", "envelope": {"gpus": 1}}).json()
    other = {"delta": "vista", "vista": "delta"}[task["system"]]

    moved = api.post(f"tasks/{task['id']}/replan?wait_s=0", {"exclude_systems": [task["system"]]}).json()

    assert (moved["system"], moved["attempts"]) == (other, 2)
    assert moved["attempt"]["number"] == 2
    states = [a["state"] for a in api.get(f"attempts?task={task['id']}").json()["results"]]
    assert states == ["planned", "superseded"]
    fault = api.post(f"tasks/{task['id']}/replan", {"exclude_systems": ["vsita"]})
    assert fault.json()["errors"][0]["pointer"] == "/exclude_systems/0"


def test_a_cancel_names_exactly_one_thing(api: Api, delta: System) -> None:
    task = api.post("tasks?wait_s=0", {"command": "true"}).json()["id"]

    assert api.skill("cancel", {}).status_code == 422
    assert api.skill("cancel", {"task": task, "group": "grp_x"}).status_code == 422
    assert api.skill("cancel", {"group": "grp_x"}).json()["errors"][0]["pointer"] == "/group"
    assert api.skill("cancel", {"task": task}).json()["state"] == "cancelled"
    contradiction = api.post(f"tasks/{task}/cancel", {"task": "task_other"})
    assert contradiction.json()["errors"][0]["code"] == "contradiction"


def test_waiting_ends_when_something_happens(api: Api, delta: System) -> None:
    head = api.skill("wait_for_events", {"timeout_s": 0}).json()["next"]
    answers: list[tuple[float, dict[str, Any]]] = []

    def wait() -> None:
        try:
            given = {"after": head, "types": ["task.accepted"], "timeout_s": 20}
            answers.append((0.0, api.skill("wait_for_events", given).json()))
            answers[0] = (time.monotonic(), answers[0][1])
        finally:
            connection.close()

    waiter = threading.Thread(target=wait)
    waiter.start()
    time.sleep(1)
    assert not answers
    task = api.post("tasks?wait_s=0", {"command": "true"}).json()["id"]
    made_at = time.monotonic()
    waiter.join(20)

    [(heard_at, heard)] = answers
    assert [event["task"] for event in heard["events"]] == [task]
    assert heard["timed_out"] is False
    assert heard["next"] == heard["events"][-1]["cursor"] or heard["next"] > head
    assert heard_at - made_at < 1.5


def test_a_wait_that_hears_nothing_says_so_and_moves_on(api: Api, delta: System) -> None:
    api.post("tasks?wait_s=0", {"command": "true"})
    started = time.monotonic()

    heard = api.skill("wait_for_events", {"after": 0, "types": ["group.*"], "timeout_s": 1}).json()

    assert 0.9 < time.monotonic() - started < 4
    assert (heard["events"], heard["timed_out"]) == ([], True)
    assert heard["next"] == 4  # profile, system online, task accepted, task placed
    again = api.skill("wait_for_events", {"after": "0", "limit": 3, "timeout_s": 0}).json()
    assert (len(again["events"]), again["next"]) == (3, 3)


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"timeout_s": 51}, "/timeout_s"),
        ({"timeout_s": -1}, "/timeout_s"),
        ({"after": -1}, "/after"),
        ({"after": "soon"}, "/after"),
        ({"types": ["task.succeded"]}, "/types/0"),
        ({"limit": 0}, "/limit"),
    ],
)
def test_a_faulty_wait_names_the_field(api: Api, given: dict[str, Any], pointer: str) -> None:
    answer = api.skill("wait_for_events", given)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
