"""The parts of the command line that need no server: options, streams, payloads, files."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from facet_cli import files, work_input
from facet_cli.bridge.payload import LIMIT_BYTES, compact, fitting, payload, prompt
from facet_cli.bridge.runner import signature
from facet_cli.commands import account, work
from facet_cli.errors import CliError
from facet_cli.exits import Exit, of_states
from facet_cli.output import Output, duration, harmless, one_line
from facet_cli.program import main
from facet_cli.sse import Message, Reader
from facet_cli.work_input import waiting_time
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.conftest import CLI


@pytest.mark.parametrize(
    ("text", "value"),
    [("2h", 7200), ("1h30m", 5400), ("90s", 90), ("1d", 86_400), ("1-12:00:00", "1-12:00:00"), ("90", "90")],
)
def test_wall_times_are_read_as_people_write_them(text: str, value: object) -> None:
    assert work_input.wall_time(text) == value


def test_ranges_keep_both_ends() -> None:
    assert work_input.count_range("1..4") == {"min": 1, "max": 4}
    assert work_input.wall_time("1h..04:00:00") == {"min": 3600, "max": "04:00:00"}
    assert work_input.memory("2048..64G") == {"min": 2048, "max": "64G"}
    for wrong in ("", "4..1", "a", "1..", "..4", "-1", "1.5"):
        with pytest.raises(CliError):
            work_input.count_range(wrong)


def test_the_worst_end_decides() -> None:
    assert of_states(["succeeded", "succeeded"]) is Exit.OK
    assert of_states(["succeeded", "cancelled"]) is Exit.CANCELLED
    assert of_states(["cancelled", "failed"]) is Exit.FAILED
    assert of_states(["failed", "unschedulable"]) is Exit.UNSCHEDULABLE
    assert of_states(["unschedulable", "attention"]) is Exit.ATTENTION
    assert of_states(["partially_succeeded"]) is Exit.FAILED


def test_a_stream_is_read_as_the_standard_says() -> None:
    reader = Reader()
    lines = [
        "retry: 2000",
        ": from 0",
        "",
        "id: 7",
        "event: a.b",
        "data: {",
        "data:  }",
        "",
        "data: x",
        "",
        "data",
    ]

    found = [message for line in lines if (message := reader.feed(line)) is not None]

    assert found == [Message("7", "a.b", "{\n }"), Message("7", "message", "x")]
    assert (reader.last_id, reader.retry_ms) == ("7", 2000)


def test_durations_are_told_in_two_units() -> None:
    told = [duration(s) for s in (None, 0, 59, 60, 3661, 90_061)]
    assert told == ["?", "0s", "59s", "1m", "1h 1m", "1d 1h"]


@given(st.text(max_size=300))
def test_nothing_printed_can_take_over_a_terminal(text: str) -> None:
    shown = one_line(text)

    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in shown)
    assert len(shown) <= 200
    assert "\x1b" not in harmless(text)
    assert not set(harmless(text)) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068")


def event(number: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "id": f"evt_{number}",
        "cursor": number,
        "type": "task.failed",
        "subject": f"task_{number}",
        "state": "failed",
        **more,
    }


@given(
    st.lists(
        st.builds(
            lambda n, text, data, group: event(
                n, summary=text, data={"x": data}, group=group, next_actions=[{"a": text}] * 9
            ),
            st.integers(0, 10**9),
            st.text(max_size=3000),
            st.text(max_size=3000),
            st.text(max_size=100),
        ),
        min_size=1,
        max_size=60,
    )
)
def test_no_wake_is_over_eight_kilobytes_or_can_leave_its_fence(events: list[dict[str, Any]]) -> None:
    kept = [compact(each) for each in events]
    kept = kept[: fitting(kept)]

    document = payload("wake_1", "all", kept, {})
    told = prompt("wake_1", document, kept)

    assert len(document.encode()) < LIMIT_BYTES
    assert len(told.encode()) < LIMIT_BYTES
    assert "<" not in document
    assert ">" not in document
    assert told.count("<facet-data-") == told.count("</facet-data-") == 1
    assert [each["id"] for each in json.loads(document)["events"]] == [each["id"] for each in kept]


def test_a_webhook_is_signed_as_standard_webhooks_says() -> None:
    """The example of the specification's reference libraries."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    signed = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')

    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_lock_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    program = (
        "import sys; from pathlib import Path; from facet_cli import files\n"
        "lock = files.take(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        env={"PYTHONPATH": str(CLI), "PATH": "/usr/bin:/bin"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert files.is_held(path)
        assert files.take(path, shared=True) is None
        holder.kill()
        holder.wait(10)

    assert not files.is_held(path)


def test_a_file_is_replaced_whole_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "file.json"

    files.write_json(path, {"a": 1})
    files.write_json(path, {"a": 2})

    assert files.read_json(path) == {"a": 2}
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]
    assert files.read_json(tmp_path / "none") is None
    assert files.safe_name("../../etc/passwd") == "_.._etc_passwd"


def test_a_shortened_reason_is_told_by_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    rejections = [{"rule": "capacity", "code": "gpus"}, {"rule": "capacity", "code": "cpus", "required": 9}]
    candidate = {"system": "delta", "partition": "cpu", "feasible": False, "rejections": rejections}

    work.tell_decision(Output(as_json=False), {"selected": None, "candidates": [candidate]})

    assert capsys.readouterr().out.splitlines()[1:] == ["  not delta/cpu: gpus; cpus: needs 9, has None"]


def test_a_partition_is_told_once_and_only_where_no_account_may_use_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def candidate(partition: str, *codes: str, observed: object = 0) -> dict[str, Any]:
        rejections = [{"code": code, "required": 4, "observed": observed} for code in codes]
        return {"system": "anvil", "partition": partition, "feasible": not codes, "rejections": rejections}

    candidates = [
        candidate("gpu", "not_authorized", observed="accounts here must match *-gpu"),
        candidate("gpu"),
        candidate("shared", "not_authorized", "gpus"),
        candidate("shared", "gpus", "gpus"),
        candidate("ai", "not_authorized", observed="accounts here must match *-ai"),
    ]
    chosen = {"system": "anvil", "partition": "gpu"}
    decision = {"selected": chosen, "candidates": candidates}

    work.tell_decision(Output(as_json=False), decision)
    whole = capsys.readouterr().out.splitlines()
    work.tell_decision(Output(as_json=False), decision, why_not=False)
    short = capsys.readouterr().out.splitlines()

    assert whole[2:] == [
        "  not anvil/shared: gpus: needs 4, has 0",
        "  not anvil/ai: not_authorized: accounts here must match *-ai",
    ]
    assert short == whole[:2]


@pytest.mark.parametrize(("text", "value"), [("90", 90.0), ("2.5", 2.5), ("5m", 300.0), ("1h30m", 5400.0)])
def test_times_to_wait_are_read_as_people_write_them(text: str, value: float) -> None:
    assert waiting_time(text) == value


@pytest.mark.parametrize("text", ["", "soon", "-1", "nan", "inf", "1:00"])
def test_what_is_no_time_to_wait_is_refused(text: str) -> None:
    with pytest.raises(CliError, match="is no time to wait"):
        waiting_time(text)


def test_an_answer_that_is_not_understood_does_not_read_as_a_failed_task(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing: dict[str, str] = {}
    monkeypatch.setattr(account, "version", lambda: nothing["facet_cli"])  # any command that trips over a key

    code = main(["version"])

    assert code == Exit.SERVER_FAILED
    assert "The server's answer is not understood: KeyError 'facet_cli'." in capsys.readouterr().err


def test_the_version_is_told_where_people_look_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("facet ")
