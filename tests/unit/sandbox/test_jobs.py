"""Submitted scripts really run, and every way of ending is told as Slurm tells it."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from providers.sandbox.slurm.controller import read_mark
from providers.sandbox.slurm.store import Store
from tests.unit.sandbox.conftest import Site, eventually


def accounted(site: Site, job: str, fields: str = "State,ExitCode") -> str:
    return site.ask("sacct", "-nXPj", job, "-o", fields).strip()


def written(path: Path) -> str:
    """The file's text, "" while it is not there."""
    return path.read_text() if path.exists() else ""


def start_daemon(site: Site) -> subprocess.Popen[bytes]:
    daemon = subprocess.Popen(
        [sys.executable, "-m", "providers.sandbox.slurm.daemon", str(site.directory)],
        cwd=Path(__file__).parents[3],
    )
    eventually((site.directory / "daemon.beat").exists, bool)
    return daemon


def test_a_script_runs_in_its_directory_with_its_environment_and_output_file(site: Site) -> None:
    job = site.submit(
        "pwd; echo oops >&2\n"
        'echo "$SLURM_JOB_ID $SLURM_JOB_NAME $SLURM_JOB_PARTITION $SLURM_GPUS_ON_NODE $MINE"',
        *("-J", "hello", "-p", "gpu", "--gres=gpu:a100:2", "-o", "%x-%j_%u%%.out", "--export=ALL,MINE=yes"),
    )

    site.wait(job, "COMPLETED", seconds=5)

    text = (site.work / f"hello-{job}_alice%.out").read_text()
    assert text == f"{site.work}\noops\n{job} hello gpu 2 yes\n"
    assert accounted(site, job) == "COMPLETED|0:0"


def test_exit_codes_and_signals_are_told_apart(site: Site) -> None:
    three, killed = site.submit("exit 3"), site.submit("kill -9 $$")
    no_output = site.submit("true", "-o", "/nowhere/at/all.out")
    no_directory = site.submit("pwd", "-D", "/nowhere/at/all", "-o", str(site.work / "cwd.out"))

    for job in (three, killed, no_output):
        site.wait(job, "FAILED")
    site.wait(no_directory, "COMPLETED")

    assert accounted(site, three) == "FAILED|3:0"
    assert accounted(site, killed) == "FAILED|0:9"
    assert accounted(site, no_output) == "FAILED|0:53"
    assert (site.work / "cwd.out").read_text().splitlines()[-1] == "/tmp"
    assert site.ask("squeue", "-t", "all", "-h", "-j", three, "-o", "%T %R") == "FAILED (NonZeroExitCode)\n"


def test_the_time_limit_ends_a_job_and_its_children(site: Site) -> None:
    job = site.submit("sleep 300 & echo $! > child; wait", "-t", "1")
    site.wait(job, "RUNNING")
    child = int(eventually(lambda: written(site.work / "child"), bool))
    site.ask("scontrol", "update", f"JobId={job}", "Comment=x")
    with_less_time(site, job)

    site.wait(job, "TIMEOUT")

    site.gone(job)
    assert accounted(site, job) == "TIMEOUT|0:0"
    eventually(lambda: Path(f"/proc/{child}").exists(), lambda there: not there)
    assert "DUE TO TIME LIMIT ***" in (site.work / f"slurm-{job}.out").read_text()


def with_less_time(site: Site, job: str) -> None:
    """Move the start of a job back, so that its minute is nearly over."""
    store = Store(str(site.directory))
    with store.change(time.time()) as cluster:
        for each in cluster.jobs:
            if each.id == int(job):
                each.limit = int(time.time()) - each.start + 1
                cluster.touch(each)
    store.close()


def test_a_cancelled_job_is_terminated_and_names_who_did_it(site: Site) -> None:
    running, waiting = (
        site.submit("trap 'echo term; exit 7' TERM; sleep 300 & wait"),
        site.submit("true", "-H"),
    )
    site.wait(running, "RUNNING")
    eventually(lambda: list(site.directory.glob("spool/*/run-*/child")), bool)
    time.sleep(0.3)

    site.ask("scancel", running, waiting)

    site.gone(running)
    assert accounted(site, running) == "CANCELLED by 20001|0:0"
    assert accounted(site, waiting, "State,Start") == "CANCELLED by 20001|None"
    assert "term" in (site.work / f"slurm-{running}.out").read_text()


def test_nobody_cancels_the_job_of_another(site: Site) -> None:
    job = site.submit("sleep 60")

    done = site.run("scancel", job, user="bob")

    assert done.returncode == 210
    assert done.stderr == f"scancel: error: Kill job error on job id {job}: Access/permission denied\n"
    assert site.run("scancel", "99999").returncode == 0
    assert site.state(job) == "RUNNING"


def test_a_signal_reaches_the_script_and_leaves_it_running(site: Site) -> None:
    job = site.submit("trap 'echo got' USR1; for i in $(seq 100); do sleep 0.1; done")
    eventually(lambda: list(site.directory.glob("spool/*/run-*/child")), bool)
    time.sleep(0.4)

    site.ask("scancel", "-b", "-s", "USR1", job)

    eventually((site.work / f"slurm-{job}.out").read_text, lambda text: "got" in text)
    assert site.state(job) == "RUNNING"


def test_a_requeued_job_runs_again_under_its_id_and_keeps_its_former_run(site: Site) -> None:
    job = site.submit("echo run $SLURM_RESTART_COUNT >> runs; test $SLURM_RESTART_COUNT = 1 || sleep 300")
    eventually((site.work / "runs").exists, bool)

    site.ask("scontrol", "requeue", job)

    assert site.ask("squeue", "-h", "-j", job, "-o", "%t %r") == "PD BeginTime\n"
    site.wait(job, "COMPLETED")
    assert site.ask("sacct", "-nXPDj", job, "-o", "State").split() == ["REQUEUED", "COMPLETED"]
    assert (site.work / "runs").read_text() == "run 0\nrun 1\n"


def test_an_array_is_one_compact_record_and_its_tasks_run_within_the_throttle(site: Site) -> None:
    job = site.submit("echo $SLURM_ARRAY_TASK_ID >> done; sleep 0.6", "-a", "1-4%2", "-p", "cpu")
    rows = site.ask("squeue", "-h", "-o", "%i %t %r").splitlines()

    assert sorted(rows) == sorted(
        [f"{job}_1 R None", f"{job}_2 R None", f"{job}_[3-4%2] PD JobArrayTaskLimit"]
    )
    eventually(lambda: written(site.work / "done").split(), lambda lines: len(lines) == 4)
    eventually(
        lambda: site.ask("sacct", "-nXPj", job, "-o", "JobID,State").split(),
        lambda lines: lines == [f"{job}_{task}|COMPLETED" for task in range(1, 5)],
    )


def test_a_dependent_job_waits_for_the_end_it_asked_for(site: Site) -> None:
    first = site.submit("until [ -e go ]; do sleep 0.1; done; exit 1")  # however slow the next commands are
    after_ok = site.submit("true", "-d", f"afterok:{first}")
    after_not_ok = site.submit("true", "-d", f"afternotok:{first}")
    assert (
        site.ask("squeue", "-h", "-j", after_ok, "-o", "%r %E")
        == f"Dependency afterok:{first}(unfulfilled)\n"
    )

    (site.work / "go").touch()
    site.wait(after_not_ok, "COMPLETED")

    assert site.ask("squeue", "-h", "-j", after_ok, "-o", "%t %r") == "PD DependencyNeverSatisfied\n"


def test_a_daemon_killed_at_once_loses_nothing_and_its_successor_goes_on(site: Site) -> None:
    daemon = start_daemon(site)
    job = site.submit("echo start >> runs; sleep 2; echo end >> runs")
    eventually((site.work / "runs").exists, bool, seconds=5)
    daemon.kill()
    daemon.wait()
    waiting = site.submit("echo later >> runs", "-b", "now+1")

    daemon = start_daemon(site)
    try:
        site.wait(job, "COMPLETED")
        site.wait(waiting, "COMPLETED")
    finally:
        daemon.terminate()
        assert daemon.wait(10) == 0
    assert sorted((site.work / "runs").read_text().split()) == ["end", "later", "start"]
    assert not (site.directory / "daemon.beat").exists()


def test_the_daemon_starts_a_job_within_two_seconds(site: Site) -> None:
    daemon = start_daemon(site)
    try:
        began = time.monotonic()
        site.submit("touch started")
        eventually((site.work / "started").exists, bool, seconds=5)
        assert time.monotonic() - began < 2
    finally:
        daemon.terminate()
        daemon.wait(10)


def test_a_job_whose_step_process_is_killed_is_requeued_and_its_orphans_end(site: Site) -> None:
    job = site.submit("echo $$ >> pids; sleep 300")
    eventually(lambda: written(site.work / "pids"), bool)
    mark = next(site.directory.glob("spool/*/run-*/started"))

    os.kill(int(str(read_mark(str(mark))["pid"])), signal.SIGKILL)

    def site_sees() -> list[str]:
        return site.ask("sacct", "-nXPDj", job, "-o", "State").split()

    eventually(site_sees, lambda states: states[0] == "NODE_FAIL")
    orphan = int((site.work / "pids").read_text().split()[0])
    eventually(lambda: Path(f"/proc/{orphan}").exists(), lambda there: not there)
    eventually(site_sees, lambda states: states == ["NODE_FAIL", "RUNNING"])


def test_fifty_submissions_from_eight_at_once_give_fifty_ids(site: Site) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: site.submit("true", "-p", "cpu"), range(50)))

    assert len(set(ids)) == 50
    assert set(site.ask("sacct", "-nXP", "-o", "JobID").split()) == set(ids)


def test_a_step_runs_once_per_task_and_passes_its_failure_on(site: Site) -> None:
    job = site.submit('srun sh -c "echo task $SLURM_PROCID; echo p$SLURM_PROCID >> tasks; exit 4"', "-n", "3")

    site.wait(job, "FAILED")

    assert accounted(site, job) == "FAILED|4:0"
    assert len((site.work / "tasks").read_text().split()) == 3
