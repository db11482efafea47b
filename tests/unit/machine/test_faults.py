"""What goes wrong on a host, and what is then said of the jobs: the truth, or that it is not known."""

import ast
import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from providers.dialects.machine.host import supervise
from providers.dialects.machine.program import SOURCES
from providers.types import JobState
from tests.unit.machine.conftest import Host, is_alive


def test_one_key_submitted_twice_is_one_job(host: Host) -> None:
    first = host.submit("k1", f"echo ran >> {host.root}/count")
    host.until("k1")

    second = host.submit("k1", f"echo ran >> {host.root}/count")

    assert first.job_id == second.job_id == "1"
    assert second.outcome == "accepted"
    assert (host.root / "count").read_text() == "ran\n"


def test_submissions_from_many_processes_at_once_lose_and_double_nothing(host: Host) -> None:
    together = threading.Barrier(4)

    def submit(number: int) -> tuple[str | None, str | None]:
        together.wait(20)
        command = f"echo ran >> {host.root}/count-"
        same = host.submit("same", command + "same")
        own = host.submit(f"own-{number}", command + str(number))
        return same.job_id, own.job_id

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(submit, range(4)))

    assert len({same for same, _ in found}) == 1
    numbers = {own for _, own in found} | {found[0][0]}
    assert numbers == {"1", "2", "3", "4", "5"}
    for key in ("same", "own-0", "own-1", "own-2", "own-3"):
        assert host.until(key).state is JobState.COMPLETED
    for name in ("same", "0", "1", "2", "3"):
        assert (host.root / f"count-{name}").read_text() == "ran\n"


def test_an_unknown_key_is_no_job(host: Host) -> None:
    host.submit("k1")

    assert host.look("k2") == {"k2": None}
    assert host.cancel("k2") == {"k2": ""}  # nothing is left to cancel, which is no refusal


def test_a_job_goes_on_without_its_supervisor_and_its_end_is_called_unknown(host: Host) -> None:
    host.submit("k1", f"{host.gate}; exit 0")
    host.until("k1", "RUNNING")
    _kill_supervisor(host, "k1")

    assert host.see("k1").state is JobState.RUNNING
    host.open_gate()
    ended = host.until("k1")

    assert (ended.state, ended.state_raw, ended.exit_code) == (JobState.NODE_FAIL, "UNWATCHED", None)
    assert ended.reason_explained.endswith("how it ended is not known.")


def test_a_new_supervisor_holds_an_unwatched_job_to_its_wall_time(host: Host) -> None:
    host.submit("k1", "sleep 300", walltime_s=6)
    host.until("k1", "RUNNING")
    _kill_supervisor(host, "k1")

    ended = host.until("k1")

    assert ended.state is JobState.TIMEOUT
    assert not is_alive(host.process("k1")["pid"])


def test_an_unwatched_job_can_be_cancelled(host: Host) -> None:
    host.submit("k1", "sleep 300")
    host.until("k1", "RUNNING")
    _kill_supervisor(host, "k1")

    assert host.cancel("k1") == {"k1": ""}
    ended = host.until("k1")

    assert ended.state is JobState.CANCELLED
    assert not is_alive(host.process("k1")["pid"])


def test_supervisor_and_job_killed_together_is_not_taken_for_success(host: Host) -> None:
    host.submit("k1", "sleep 300")
    host.until("k1", "RUNNING")
    process = host.process("k1")
    os.kill(process["supervisor"], signal.SIGSTOP)
    os.killpg(process["pid"], signal.SIGKILL)
    os.kill(process["supervisor"], signal.SIGKILL)

    ended = host.until("k1")

    assert (ended.state, ended.state_raw) == (JobState.NODE_FAIL, "UNWATCHED")


def test_a_recycled_process_number_is_not_the_job(host: Host) -> None:
    host.submit("k1", "sleep 300")
    host.until("k1", "RUNNING")
    process = host.process("k1")
    os.kill(process["supervisor"], signal.SIGSTOP)
    os.killpg(process["pid"], signal.SIGKILL)
    os.kill(process["supervisor"], signal.SIGKILL)
    host.wait(lambda: not is_alive(process["supervisor"]))
    recycled = {**process, "pid": os.getpid()}  # now the number of a process that is not the job
    (host.queue / "jobs" / "k1" / "process.json").write_text(json.dumps(recycled))

    host.cancel("k1")
    ended = host.see("k1")
    (host.queue / "jobs" / "k1" / "process.json").write_text(json.dumps(process))

    assert ended.state_raw == "UNWATCHED"


def test_a_restart_of_the_host_is_seen(host: Host) -> None:
    host.submit("k1", "sleep 300")
    host.until("k1", "RUNNING")
    process = host.process("k1")
    _kill_supervisor(host, "k1")
    os.killpg(process["pid"], signal.SIGKILL)
    start = host.queue / "jobs" / "k1" / "start.json"
    start.write_text(json.dumps({**json.loads(start.read_text()), "boot": "an earlier boot"}))

    ended = host.see("k1")

    assert (ended.state, ended.state_raw) == (JobState.NODE_FAIL, "REBOOTED")
    assert ended.reason_explained == "The host restarted while the job ran."


def test_a_job_given_its_turn_but_never_begun_begins_once(host: Host) -> None:
    cpus = host.probe().nodes[0].cpus_total
    host.submit("k1", "sleep 300", cpus=cpus)
    host.submit("k2", f"echo ran >> {host.root}/count", cpus=cpus)
    start = host.queue / "jobs" / "k1" / "start.json"
    (host.queue / "jobs" / "k2" / "start.json").write_text(start.read_text())

    assert host.see("k2").state is JobState.QUEUED  # not taken for running
    host.cancel("k1")

    assert host.until("k2").state is JobState.COMPLETED
    assert (host.root / "count").read_text() == "ran\n"


def test_a_supervisor_told_to_end_stops_its_job_and_says_so(host: Host) -> None:
    host.submit("k1", "sleep 300")
    host.until("k1", "RUNNING")
    process = host.process("k1")

    os.kill(process["supervisor"], signal.SIGTERM)
    ended = host.until("k1")

    assert (ended.state, ended.state_raw) == (JobState.NODE_FAIL, "STOPPED")
    assert not is_alive(process["pid"])


def test_a_host_whose_queue_cannot_be_kept_refuses_and_takes_nothing(host: Host) -> None:
    (host.root / "queue").write_text("in the way")

    result = host.submit("k1")

    assert result.outcome == "rejected"
    assert "Not a directory" in result.said or "File exists" in result.said
    (host.root / "queue").unlink()


@pytest.mark.parametrize(
    ("ending", "killed"),
    [
        ({"signal": 9}, True),
        ({"exit_code": 137}, True),
        ({"signal": 15}, False),
        ({"exit_code": 1}, False),
        ({"exit_code": 0}, False),
    ],
)
def test_only_a_kill_can_have_been_for_memory(ending: dict[str, int], killed: bool) -> None:
    assert supervise.was_killed(ending) is killed  # type: ignore[no-untyped-call]  # ships to old Pythons


def test_the_shipped_program_is_python_3_6() -> None:
    for name, text in SOURCES:
        ast.parse(text, filename=name, feature_version=(3, 6))
        path = Path(supervise.__file__).with_name(f"{name}.py")
        assert path.read_text() == text


def _kill_supervisor(host: Host, key: str) -> None:
    process = host.process(key)
    os.kill(process["supervisor"], signal.SIGKILL)
    host.wait(lambda: not is_alive(process["supervisor"]))
    assert is_alive(process["pid"])
