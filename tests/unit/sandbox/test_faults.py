"""Every switchable fault does to the clients what the real one does."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from providers.sandbox.slurm import faults
from providers.sandbox.slurm.events import happen
from providers.sandbox.slurm.store import Store
from tests.unit.sandbox.conftest import Site, eventually

ROOT = Path(__file__).parents[3]
CONNECT = "Unable to contact slurm controller (connect failure)"


def on(site: Site, name: str, **setting: object) -> None:
    faults.switch_on(str(site.directory), name, **setting)


def event(site: Site, kind: str, subject: str) -> None:
    store = Store(str(site.directory))
    happen(store, kind, subject, now=time.time())
    store.close()


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("sinfo",), 1, f"slurm_load_partitions: {CONNECT}\n"),
        (("squeue",), 1, f"slurm_load_jobs error: {CONNECT}\n"),
        (("scontrol", "show", "node"), 1, f"slurm_load_node error: {CONNECT}\n"),
        (("sbatch", "--wrap", "true"), 1, f"sbatch: error: Batch job submission failed: {CONNECT}\n"),
        (("scancel", "1"), 8, f"scancel: error: Kill job error on job id 1: {CONNECT}\n"),
    ],
)
def test_a_dead_controller_hangs_clients_and_then_says_so(
    site: Site, argv: tuple[str, ...], code: int, words: str
) -> None:
    on(site, "controller_dead", seconds=0.4)
    began = time.monotonic()

    done = site.run(*argv)

    assert (done.returncode, done.stdout, done.stderr) == (code, "", words)
    assert time.monotonic() - began >= 0.4


def test_a_dead_controller_is_seen_by_a_ping_at_once(site: Site) -> None:
    on(site, "controller_dead", seconds=20)
    began = time.monotonic()

    done = site.run("scontrol", "ping")

    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == "Slurmctld(primary) at ctl is DOWN"
    assert time.monotonic() - began < 5
    assert site.run("sacct", "-nX").returncode == 0


def test_a_frozen_controller_hangs_the_ping_too(site: Site) -> None:
    on(site, "controller_frozen", seconds=0.4)
    began = time.monotonic()

    assert site.run("scontrol", "ping").returncode == 1
    assert time.monotonic() - began >= 0.4
    assert site.run("squeue").stderr == "slurm_load_jobs error: Socket timed out on send/recv operation\n"


def test_nothing_starts_while_the_controller_is_dead_and_all_goes_on_after(site: Site) -> None:
    running = site.submit("sleep 0.5")
    on(site, "controller_dead", seconds=0)
    time.sleep(1)
    faults.switch_off(str(site.directory), "controller_dead")

    site.wait(running, "COMPLETED")


def test_a_dead_database_costs_accounting_alone(site: Site) -> None:
    on(site, "database_dead")

    done = site.run("sacct", "-X", "-n")

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "sacct: error: Problem talking to the database: Connection refused"
    assert site.run("sacctmgr", "-nP", "show", "assoc").returncode == 1
    assert site.run("squeue").returncode == 0
    assert site.submit("true")


def test_output_is_cut_spoiled_or_preceded_by_a_banner_when_told_so(site: Site) -> None:
    whole = site.ask("sinfo", "-h")
    on(site, "truncated", bytes=10, programs=["sinfo"], times=1)
    assert site.ask("sinfo", "-h") == whole[:10]
    assert site.ask("sinfo", "-h") == whole

    on(site, "garbage", times=1)
    assert site.run("sinfo").stdout.startswith("\x00\x1b[31m<html>")

    on(site, "localized", times=1)
    assert site.ask("sinfo", "-h") == faults.BANNER + whole


def test_slow_answers_are_late_and_right(site: Site) -> None:
    on(site, "slow", seconds=0.5)
    began = time.monotonic()

    assert site.ask("squeue", "-h") == ""
    assert time.monotonic() - began >= 0.5


def test_a_lost_answer_leaves_one_job_behind(site: Site) -> None:
    on(site, "answer_lost", seconds=60, times=1)

    with pytest.raises(subprocess.TimeoutExpired):
        site.run("sbatch", "--parsable", "-J", "marker-1", "--wrap", "true", timeout=2)

    eventually(
        lambda: site.ask("sacct", "-nXP", "--name", "marker-1", "-o", "State").split(),
        lambda s: s == ["COMPLETED"],
    )


def test_a_refusal_is_in_the_words_asked_for(site: Site) -> None:
    on(site, "submit_refused", words="Socket timed out on send/recv operation", times=1)

    assert site.run("sbatch", "--wrap", "true").stderr == (
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"
    )
    assert site.submit("true")


def test_yesterdays_output_is_repeated_until_the_fault_is_over(site: Site) -> None:
    on(site, "yesterday", programs=["squeue"])
    before = site.ask("squeue", "-h")
    job = site.submit("sleep 30")

    assert site.ask("squeue", "-h") == before == ""
    faults.switch_off(str(site.directory), "yesterday")
    assert site.ask("squeue", "-h", "-o", "%i").split() == [job]


def test_a_failing_node_requeues_its_job_or_ends_it(site: Site) -> None:
    again = site.submit("sleep 60", "-p", "gpu", "-w", "g01")
    ended = site.submit("sleep 60", "-p", "gpu", "-w", "g01", "--no-requeue")
    site.wait(ended, "RUNNING")

    event(site, "node-fail", "g01")

    assert site.ask("sacct", "-nXPDj", again, "-o", "State").split() == ["NODE_FAIL", "PENDING"]
    assert site.state(ended) == "NODE_FAIL"
    assert site.ask("sinfo", "-h", "-N", "-n", "g01", "-p", "gpu", "-o", "%t %E") == "down* Not responding\n"
    event(site, "node-resume", "g01")
    site.wait(again, "RUNNING")


def test_a_preempted_job_comes_back_and_an_oversized_one_is_killed(site: Site) -> None:
    preempted, hungry = site.submit("sleep 60"), site.submit("sleep 60")
    site.wait(hungry, "RUNNING")

    event(site, "preempt", preempted)
    event(site, "oom", hungry)

    assert site.ask("sacct", "-nXPDj", preempted, "-o", "State").split()[0] == "PREEMPTED"
    site.wait(preempted, "RUNNING")
    site.gone(hungry)
    assert site.ask("sacct", "-nXPj", hungry, "-o", "State,ExitCode") == "OUT_OF_MEMORY|0:125\n"


def test_recycled_ids_name_another_job(site: Site) -> None:
    first = site.submit("true", "-J", "old")
    site.wait(first, "COMPLETED")

    event(site, "recycle-ids", first)
    second = site.submit("exit 2", "-J", "new")

    assert second == first
    site.wait(second, "FAILED")
    assert site.ask("sacct", "-nXPDj", first, "-o", "JobName").split() == ["old", "new"]


def test_faults_are_switched_from_the_command_line(site: Site) -> None:
    def fault(*words: str) -> str:
        argv = [sys.executable, "-m", "providers.sandbox.slurm", "fault", str(site.directory), *words]
        return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    fault("on", "slow", "seconds=0", "programs=sinfo,squeue")
    assert fault("list").startswith("slow {'seconds': '0', 'programs': ['sinfo', 'squeue']")
    fault("off", "slow")
    assert fault("list") == ""
