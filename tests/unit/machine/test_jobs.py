"""Jobs on this machine, run for real through the local link."""

import signal
from itertools import pairwise

from providers.links.local import LocalLink
from providers.types import JobState
from tests.unit.machine.conftest import Host, is_alive


def test_a_job_runs_in_its_folder_and_its_end_is_recorded(host: Host) -> None:
    result = host.submit(
        "k1", "pwd; echo $FACET_JOB_ID $FACET_JOB_CPUS; echo oops >&2", cpus=2, memory_mib=64
    )

    assert result.outcome == "accepted"
    assert result.job_id == "1"
    ended = host.until("k1")
    assert ended.state is JobState.COMPLETED
    assert ended.source == "accounting"
    assert (ended.exit_code, ended.exit_signal, ended.reason_explained) == (0, None, "")
    assert (ended.job_id, ended.submit_key, ended.partition) == ("1", "k1", "local")
    assert (ended.cpus, ended.gpus, ended.nodes, ended.walltime_s) == (2, 0, 1, 60)
    assert ended.submit_at is not None
    assert ended.start_at is not None
    assert ended.end_at is not None
    assert ended.submit_at <= ended.start_at <= ended.end_at
    assert host.text("k1") == f"{host.root}/work/k1\n1 2\n"
    assert host.text("k1", "err") == "oops\n"


def test_an_exit_code_is_the_jobs(host: Host) -> None:
    host.submit("k1", argv=("bash", "-c", "exit 3"))

    ended = host.until("k1")

    assert (ended.state, ended.exit_code) == (JobState.FAILED, 3)
    assert ended.reason_explained == "The program ended with exit code 3."


def test_a_killed_program_failed_by_that_signal(host: Host) -> None:
    host.submit("k1", "kill -9 $$")

    ended = host.until("k1")

    assert (ended.state, ended.exit_code, ended.exit_signal) == (JobState.FAILED, None, 9)
    assert ended.reason_explained == "The program was ended by signal 9."


def test_the_wall_time_ends_a_job_even_one_that_ignores_the_first_signal(host: Host) -> None:
    host.submit("k1", "trap 'echo asked' TERM; while true; do sleep 0.1; done", walltime_s=1)

    ended = host.until("k1")

    assert (ended.state, ended.state_raw, ended.exit_signal) == (JobState.TIMEOUT, "TIMEOUT", None)
    assert ended.start_at is not None
    assert ended.end_at is not None
    ran_s = (ended.end_at - ended.start_at).total_seconds()
    assert 2.9 <= ran_s < 15
    assert "asked" in host.text("k1")


def test_a_signal_comes_before_the_end(host: Host) -> None:
    host.submit(
        "k1",
        "trap 'echo saved; exit 7' USR1; while true; do sleep 0.1; done",
        walltime_s=9,
        signal="B:USR1@8",
    )

    ended = host.until("k1")

    assert (ended.state, ended.exit_code) == (JobState.FAILED, 7)
    assert host.text("k1") == "saved\n"


def test_a_running_job_is_cancelled_with_all_its_processes(host: Host) -> None:
    host.submit("k1", "setsid sleep 300 & echo $! ; sleep 300 & echo $!; wait")
    host.wait(lambda: len(host.text("k1").split()) == 2)
    children = [int(word) for word in host.text("k1").split()]
    assert all(is_alive(pid) for pid in children)

    assert host.cancel("k1") == {"k1": ""}
    ended = host.until("k1")

    assert (ended.state, ended.reason_explained) == (JobState.CANCELLED, "The job was cancelled.")
    assert not any(is_alive(pid) for pid in children)


def test_what_a_job_leaves_behind_ends_with_it(host: Host) -> None:
    host.submit("k1", "(setsid sleep 300 & echo $!) ; true")

    ended = host.until("k1")

    assert ended.state is JobState.COMPLETED
    assert not is_alive(int(host.text("k1")))


def test_jobs_beyond_the_cpus_wait_and_run_in_the_order_they_came(host: Host) -> None:
    cpus = host.probe().nodes[0].cpus_total
    keys = [f"k{number}" for number in range(5)]
    for key in keys:
        host.submit(key, f"{host.gate}; echo {key} >> {host.root}/order; sleep 0.2", cpus=cpus)

    seen = host.look(*keys)
    assert [look and look.state for look in seen.values()] == [JobState.RUNNING] + [JobState.QUEUED] * 4
    last = seen["k4"]
    assert last is not None
    assert last.source == "queue"
    assert last.reason_explained == "It waits for its turn; open jobs before it: 4."
    node = host.probe().nodes[0]
    assert (node.state, node.cpus_free) == ("allocated", 0)
    host.open_gate()
    for key in keys:
        assert host.until(key).state is JobState.COMPLETED

    assert (host.root / "order").read_text().split() == keys
    times = [host.see(key) for key in keys]
    for earlier, later in pairwise(times):
        assert earlier.end_at is not None
        assert later.start_at is not None
        assert earlier.end_at <= later.start_at


def test_the_queue_moves_on_although_nobody_looks(host: Host) -> None:
    cpus = host.probe().nodes[0].cpus_total
    for key in ("k1", "k2", "k3"):
        host.submit(key, f"echo {key} >> {host.root}/order", cpus=cpus)

    host.wait(lambda: (host.root / "order").exists() and len((host.root / "order").read_text().split()) == 3)


def test_a_queued_job_is_cancelled_before_it_ever_ran(host: Host) -> None:
    cpus = host.probe().nodes[0].cpus_total
    host.submit("k1", "sleep 30", cpus=cpus)
    host.submit("k2", "echo ran", cpus=cpus)
    assert host.see("k2").state is JobState.QUEUED

    assert host.cancel("k2") == {"k2": ""}
    ended = host.see("k2")

    assert (ended.state, ended.start_at, ended.elapsed_s) == (JobState.CANCELLED, None, None)
    assert host.see("k1").state is JobState.RUNNING
    host.cancel("k1")
    host.until("k1")
    assert host.text("k2") == ""


def test_memory_and_exclusive_use_are_waited_for(host: Host) -> None:
    node = host.probe().nodes[0]
    assert node.memory_total_mib is not None
    host.submit("k1", "sleep 30", memory_mib=node.memory_total_mib - 10)
    host.submit("k2", "true", memory_mib=20)
    assert host.see("k2").state is JobState.QUEUED
    assert host.probe().nodes[0].memory_free_mib == 10

    host.cancel("k1")
    assert host.until("k2").state is JobState.COMPLETED
    host.submit("k3", "sleep 30")
    host.submit("k4", "true", exclusive=True)
    assert host.see("k4").state is JobState.QUEUED
    host.cancel("k3")

    assert host.until("k4").state is JobState.COMPLETED


def test_more_than_the_machine_has_is_refused_with_the_figures(host: Host) -> None:
    node = host.probe().nodes[0]

    result = host.submit("k1", cpus=node.cpus_total + 1, memory_mib=10**9)

    assert result.outcome == "rejected"
    assert result.retryable is False
    assert result.said == (
        f"the job wants {node.cpus_total + 1} CPUs of {node.cpus_total} "
        f"and 1000000000 MiB of memory of {node.memory_total_mib}"
    )
    assert host.look("k1") == {"k1": None}


def test_an_unknown_signal_is_refused(host: Host) -> None:
    result = host.submit("k1", signal="NOSUCH@5")

    assert (result.outcome, result.said) == ("rejected", "no such signal: NOSUCH")


def test_an_output_that_cannot_be_opened_fails_the_launch(host: Host) -> None:
    (host.root / "work" / "k1" / "out").mkdir(parents=True)

    host.submit("k1", "true")
    ended = host.until("k1")

    assert (ended.state, ended.state_raw, ended.exit_code) == (JobState.FAILED, "LAUNCH_FAILED", None)
    assert "Is a directory" in ended.reason_raw


def test_hostile_names_and_paths_are_only_text(host: Host) -> None:
    work = host.root / "a b'$(touch pwned)`touch pwned`;&ü"
    hostile = "x'; touch pwned; $(touch pwned) \n`touch pwned`"

    host.submit(
        "k-1.x_y",
        name=hostile,
        argv=("printf", "%s", hostile),
        workdir=str(work),
        stdout_path=f"{work}/out $HOME",
        stderr_path=f"{work}/out $HOME",
        variables={"HOSTILE": hostile},
    )

    assert host.until("k-1.x_y").state is JobState.COMPLETED
    assert (work / "out $HOME").read_text() == hostile
    assert list(host.root.rglob("pwned")) == []


def test_a_whole_script_runs_under_its_own_interpreter(host: Host) -> None:
    host.submit(
        "k1",
        script="#!/usr/bin/env python3\n#SBATCH -n 4\nimport sys\nprint('from', 'python'); sys.exit(5)\n",
    )

    ended = host.until("k1")

    assert ended.exit_code == 5
    assert host.text("k1") == "from python\n"


def test_a_program_meets_ordinary_signals_and_none_of_our_marks(host: Host) -> None:
    host.env |= {"FACET_ENGINE": "mark", "KEPT": "yes"}
    host.link = LocalLink(env=host.env)

    host.submit(
        "k1",
        "grep -E 'SigBlk|SigIgn' /proc/self/status; env | grep -cE '^FACET_(ENGINE|MACHINE)'; echo $KEPT",
    )
    host.until("k1")

    lines = host.text("k1").split()
    assert int(lines[1], 16) == 0
    assert int(lines[3], 16) & (1 << (signal.SIGPIPE - 1)) == 0
    assert lines[4:] == ["0", "yes"]


def test_a_job_outlives_the_request_and_holds_nothing_of_it(host: Host) -> None:
    host.submit("k1", "ls -l /proc/self/fd | grep -c -- '->'; sleep 30")
    host.wait(lambda: host.text("k1"))

    process = host.process("k1")

    assert int(host.text("k1")) <= 4  # stdin, stdout, stderr and the listing itself
    assert is_alive(process["supervisor"])
    host.cancel("k1")
    host.until("k1")
    host.wait(lambda: not is_alive(process["supervisor"]))


def test_a_small_job_does_not_overtake_a_large_one_that_waits(host: Host) -> None:
    memory_mib = host.probe().nodes[0].memory_total_mib or 0
    host.submit("k1", "sleep 30", memory_mib=memory_mib - 10)
    host.submit("k2", f"echo k2 >> {host.root}/order", memory_mib=20)
    host.submit("k3", f"echo k3 >> {host.root}/order", memory_mib=5)

    seen = host.look("k2", "k3")
    assert [look and look.state for look in seen.values()] == [JobState.QUEUED, JobState.QUEUED]
    host.cancel("k1")
    for key in ("k2", "k3"):
        assert host.until(key).state is JobState.COMPLETED


def test_a_job_started_on_anothers_end_keeps_its_own_variables(host: Host) -> None:
    cpus = host.probe().nodes[0].cpus_total
    host.link = LocalLink(env={**host.env, "WHOSE": "first"})
    host.submit("k1", f"{host.gate}; echo $WHOSE", cpus=cpus)
    host.link = LocalLink(env={**host.env, "WHOSE": "second"})
    host.submit("k2", "echo $WHOSE", cpus=cpus)

    host.open_gate()
    host.wait(lambda: host.text("k2"))  # nobody looked: the first one's supervisor started it

    assert host.text("k1") == "first\n"
    assert host.text("k2") == "second\n"
