"""From a look at the federation to a result, by the command line alone; every end has its exit code."""

import json
import signal
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Facet, World

pytestmark = pytest.mark.services

SCRIPT = """#!/bin/bash
#SBATCH --job-name=hello
#SBATCH --gpus=1
#SBATCH --time=00:10:00
echo out
echo err >&2
"""
SMALL = ("--cpus", "1", "--walltime", "10m")


def script(facet: Facet, text: str = SCRIPT) -> str:
    path = facet.home / "job.sbatch"
    path.write_text(text)
    return str(path)


def test_the_federation_is_shown_to_people_and_to_programs(facet: Facet) -> None:
    told, data = facet("systems"), facet("systems", "--json")

    assert (told.code, data.code) == (0, 0)
    assert data.json["systems"][0]["id"] == "delta"
    head, row = told.out.splitlines()
    assert head.split() == [
        "SYSTEM",
        "STATE",
        "GPUS",
        "FREE",
        "CPUS",
        "FREE",
        "RUNNING",
        "PENDING",
        "AGE",
        "YOURS",
    ]
    assert row.startswith("delta   online")
    assert "\x1b" not in told.out


def test_a_script_becomes_a_draft_a_preview_and_a_task_that_succeeds(facet: Facet) -> None:
    path = script(facet)

    draft = facet("draft", path, "--json").json
    preview = facet("preview", path, "--gpus", "1..4", "--walltime", "20m", "--json").json
    ran = facet("submit", path, "--envelope-id", draft["id"], "--json")

    assert draft["source"] == "script"
    assert draft["said"]["gpus"] == {"min": 1, "max": 1}
    assert preview["selected"]["system"] == "delta"
    assert preview["selected"]["shape"]["gpus"] == 4
    assert ran.code == 0
    task = ran.json["id"]
    waited = facet("wait", task, "--json")
    assert waited.code == 0
    assert [each["state"] for each in waited.json["results"]] == ["succeeded"]
    assert waited.json["timed_out"] is False
    assert facet("log", task).out == "out\n"
    assert facet("log", task, "--stderr", "-f", "--json").lines[0]["text"] == "err\n"
    result = facet("result", task, "--json").json
    assert (result["state"], result["attempts"][0]["exit_code"]) == ("succeeded", 0)
    assert facet("status", task).out.startswith(f"{task} succeeded on delta/")
    assert task in facet("status").out


def test_a_failing_command_ends_with_one_and_its_log_says_why(facet: Facet) -> None:
    ran = facet(
        "submit", *SMALL, "--name", "bad", "--wait", "--json", "--", "sh", "-c", "echo broken >&2; exit 3"
    )

    assert ran.code == 1
    task = ran.json["results"][0]
    assert (task["state"], task["cause"], task["attempt"]["exit_code"]) == ("failed", "exit_code", 3)
    assert facet("log", task["id"], "--stderr").out == "broken\n"
    assert facet("log", task["id"], "--stderr", "--tail", "4").out == "ken\n"
    assert facet("wait", task["id"]).code == 1
    told = facet("result", task["id"]).out.splitlines()
    assert told[2].startswith("  why: unknown: ")
    assert "    stderr | broken" in told
    assert any(line.startswith("  next: read_log {") for line in told)


def test_the_same_work_is_submitted_again_with_what_differs(facet: Facet) -> None:
    first = facet("submit", *SMALL, "--name", "same", "--wait", "--json", "--", "sh", "-c", "exit 3")
    task = first.json["results"][0]["id"]

    again = facet("submit", "--like", task, "--walltime", "15m", "--json")
    shown = facet("preview", "--like", task, "--json")

    assert (again.code, shown.code) == (0, 0)
    assert again.json["id"] != task
    assert (again.json["task"]["name"], again.json["shape"]["walltime_s"]) == ("same", 900)
    assert facet("wait", again.json["id"], "--timeout", "1m").code == 1


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("#SBATCH --job-name=inside", "inside"),
        ("#SBATCH -n 1 -J inside", "inside"),
        ("#PBS -N inside", "inside"),
        ("#SBATCH --ntasks=1", "job"),
    ],
)
def test_a_script_names_its_task_else_its_file_does(facet: Facet, still: None, head: str, name: str) -> None:
    path = script(facet, f"#!/bin/bash\n{head}\ntrue\n")

    ran = facet("submit", path, *SMALL, "--wait-s", "0", "--json")

    assert ran.json["task"]["name"] == name


def test_what_no_system_can_run_ends_with_six_and_the_reasons(facet: Facet) -> None:
    asked = ("--gpus", "4000", "--walltime", "10m")

    preview, ran = facet("preview", *asked), facet("submit", *asked, "--json", "--", "true")

    assert preview.code == 6
    assert "not delta/gpuA100x4: gpus: needs 4000" in preview.out
    assert ran.code == 6
    assert ran.json["state"] == "unschedulable"
    assert facet("wait", ran.json["id"]).code == 6
    assert "closest: delta/" in preview.out
    assert preview.out.splitlines()[-1].endswith("Then it would run there.")
    smaller = facet("replan", ran.json["id"], "--gpus", "1", "--walltime", "10m", "--json")
    assert (smaller.code, smaller.json["state"] != "unschedulable") == (0, True)
    assert facet("wait", ran.json["id"]).code == 0


def test_a_cancelled_task_ends_with_seven(facet: Facet) -> None:
    task = facet("submit", *SMALL, "--json", "--", "sleep", "600").json["id"]

    cancelled = facet("cancel", task, "--json")

    assert cancelled.code == 0
    assert cancelled.json["id"] == task
    assert facet("wait", task).code == 7
    assert (
        facet("cancel", task).code == 5
        or facet("status", task, "--json").json["results"][0]["state"] == "cancelled"
    )


def test_the_first_of_several_ends_the_waiting_when_any_is_enough(facet: Facet) -> None:
    slow = facet("submit", *SMALL, "--json", "--", "sleep", "600").json["id"]
    quick = facet("submit", *SMALL, "--json", "--", "true").json["id"]

    ran = facet("wait", slow, quick, "--any", "--json")

    assert ran.code == 0
    assert {each["id"]: each["state"] for each in ran.json["results"]}[quick] == "succeeded"
    facet("cancel", slow)
    assert facet("wait", slow, quick).code == 7


def test_waiting_that_is_cut_short_ends_with_eleven(facet: Facet, world: World, still: None) -> None:
    task = world.ask("tasks", count=1)["tasks"][0]

    began = time.monotonic()
    ran = facet("wait", task, "--timeout", "1", "--json")

    assert ran.code == 11
    assert time.monotonic() - began < 10
    assert ran.json["timed_out"] is True
    assert facet("wait", task, "--timeout", "1", "--poll").code == 11


def test_a_task_that_needs_a_decision_ends_with_eight(facet: Facet, world: World, still: None) -> None:
    task = world.ask("tasks", count=1)["tasks"][0]
    waiting = facet.start("wait", task, "--json")
    time.sleep(2)

    world.ask("state", task=task, state="attention")

    assert facet.ended(waiting).code == 8


def test_a_task_that_begins_to_need_a_persons_approval_ends_with_eight(
    facet: Facet, world: World, still: None
) -> None:
    task = world.ask("tasks", count=1)["tasks"][0]
    waiting = facet.start("wait", task, "--json", "--timeout", "30s")
    time.sleep(2)

    world.ask("state", task=task, state="pending_approval", type="approval.requested", subject="appr_1")

    assert facet.ended(waiting).code == 8


def test_another_users_task_is_not_found(facet: Facet, world: World, still: None) -> None:
    task = world.ask("tasks", count=1)["tasks"][0]

    ran = facet.at(world.tokens["bob"])("wait", task, "--json")

    assert ran.code == 4
    assert ran.json["error"]["code"] == "not_found"
    assert ran.json["exit"] == 4


def test_no_token_a_bad_one_and_a_missing_scope_end_with_three(facet: Facet, world: World) -> None:
    nobody, expired, reader = (
        facet.at(""),
        facet.at(world.tokens["expired"]),
        facet.at(world.tokens["reader"]),
    )

    assert nobody("systems").code == 3
    assert "facet login" in nobody("systems").err
    assert "expired at" in expired("systems").err
    assert expired("systems").code == 3
    assert reader("systems").code == 0
    refused = reader("submit", *SMALL, "--", "true")
    assert refused.code == 3
    assert "`submit`" in refused.err


def test_a_refused_input_ends_with_five_and_names_the_place(facet: Facet) -> None:
    envelope = facet.home / "envelope.json"
    envelope.write_text(json.dumps({"gpsu": 1}))

    ran = facet("submit", "--envelope", str(envelope), "--", "true")
    data = facet("submit", "--envelope", str(envelope), "--json", "--", "true")

    assert (ran.code, data.code) == (5, 5)
    assert "/envelope/gpsu" in ran.err
    assert "'gpus'" in ran.err
    assert "→" in ran.err
    assert data.json["error"]["errors"][0]["pointer"] == "/envelope/gpsu"


@pytest.mark.parametrize(
    "words",
    [
        ("submit",),
        ("submit", "/no/such/file"),
        ("submit", "--gpus", "many", "--", "true"),
        ("submit", "--gpus", "4..1", "--", "true"),
        ("wait",),
        ("wait", "delta"),
        ("nonsense",),
        ("systems", "--", "true"),
        ("draft",),
        ("bundle",),
    ],
)
def test_wrong_usage_ends_with_two(facet: Facet, words: tuple[str, ...]) -> None:
    assert facet(*words).code == 2


def test_skills_that_the_server_lacks_end_with_nine(facet: Facet) -> None:
    offered = {each["name"] for each in facet("skills", "--json").json}
    plan = facet.home / "group.json"
    plan.write_text("{}")
    for skill, words in (
        ("submit_group", ("group", str(plan))),
        ("move_data", ("move", "file:///a", "file:///b")),
    ):
        ran = facet(*words)
        if skill in offered:
            assert ran.code != 9
        else:
            assert ran.code == 9
            assert f"This server has no skill {skill}." in ran.err
    assert facet("skills", "no_such_skill").code == 9


def test_data_is_moved_waited_for_and_refused_outside_the_roots(facet: Facet, shelf: Path) -> None:
    (shelf / "in").mkdir(exist_ok=True)
    (shelf / "in" / "a.txt").write_text("some data")

    moved = facet("move", f"file://{shelf}/in/a.txt", f"file://{shelf}/out/", "--wait", "--json")
    outside = facet("move", f"file://{shelf}/in/a.txt", f"file://{facet.home}/b.txt", "--json")

    assert moved.code == 0, moved.out + moved.err
    (transfer,) = moved.json["results"]
    assert transfer["id"].startswith("xfer_")
    assert transfer["state"] == "succeeded"
    assert (shelf / "out" / "a.txt").read_text() == "some data"
    assert outside.code == 3, outside.out
    assert outside.json["error"]["code"] == "not_authorized", outside.out


def test_a_server_that_is_not_there_ends_with_ten(facet: Facet) -> None:
    away = Facet(facet.home, "http://127.0.0.1:9", facet.token)

    ran = away("submit", *SMALL, "--json", "--", "true")

    assert ran.code == 10
    assert ran.json["error"]["code"] == "unreachable"


def test_the_same_command_after_no_answer_makes_one_task(facet: Facet) -> None:
    """The first run had no answer: its key lies in wait for the second."""
    words = ("submit", *SMALL, "--name", "once only", "--json", "--", "true")
    first = facet(*words).json["id"]
    away = Facet(facet.home, "http://127.0.0.1:9", facet.token)
    assert away(*words).code == 10
    unanswered = facet.home / "state" / "facet" / "unanswered"
    (kept,) = unanswered.iterdir()
    key = json.loads(kept.read_text())["key"]

    assert away(*words).code == 10
    assert json.loads(next(unanswered.iterdir()).read_text())["key"] == key
    same = [
        facet("submit", *SMALL, "--idempotency-key", key, "--json", "--", "true").json["id"] for _ in "ab"
    ]
    assert same[0] == same[1] != first


def test_any_skill_can_be_called_by_name(facet: Facet) -> None:
    shown = facet("skills", "wait_for_events").json
    called = facet("skills", "wait_for_events", "--input", '{"timeout_s": 0}')

    assert shown["scopes"] == ["read"]
    assert called.json["events"] == []
    assert facet("skills", "wait_for_events", "--input", '{"timeout": 0}').code == 5


def test_events_are_one_line_each_and_can_be_followed(facet: Facet, world: World) -> None:
    head = facet("skills", "wait_for_events", "--input", '{"timeout_s": 0}').json["next"]
    following = facet.start(
        "events", "-f", "--after", str(head), "--types", "task.*", "--timeout", "4", "--json"
    )
    time.sleep(1.5)

    made = world.happen(
        {"type": "task.started", "subject": "task_a", "task": "task_a", "state": "running"},
        {"type": "system.online", "subject": "delta"},
        {
            "type": "task.failed",
            "subject": "task_a",
            "task": "task_a",
            "state": "failed",
            "summary": "\x1b[2Jbad",
        },
    )

    ran = facet.ended(following)
    assert ran.code == 11
    assert [each["id"] for each in ran.lines if "cursor" in each] == [made[0], made[2]]
    listed = facet("events", "--after", str(head), "--json").lines
    assert [each["id"] for each in listed] == made
    assert "\x1b" not in facet("events", "--after", str(head)).out


def test_a_pipe_that_closes_early_is_no_failure(facet: Facet, tmp_path: Path) -> None:
    process = facet.start("skills")
    assert process.stdout is not None
    process.stdout.close()

    assert process.wait(30) == 0
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


def test_a_stopped_wait_says_so_by_its_code(facet: Facet, world: World, still: None) -> None:
    task = world.ask("tasks", count=1)["tasks"][0]
    waiting = facet.start("wait", task)
    time.sleep(2)

    waiting.send_signal(signal.SIGINT)

    assert facet.ended(waiting).code == 130
