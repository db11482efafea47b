"""The lab itself: jobs really run, accounting sees them, faults bite and heal, and nothing is left behind."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.slurm.lab.cluster import Cluster, Refused
from tests.slurm.lab.laboratory import Lab
from tests.slurm.lab.layout import PortRange
from tests.slurm.lab.namespace import Namespace, until
from tests.slurm.lab.sites import SITES, VISTA

ROOT = Path(__file__).parents[2]
GG = ("-A", "ASC24001", "-p", "gg", "-t", "5")
GPU = ("-A", "bbka-delta-gpu", "-p", "gpuA100x4", "-t", "5")


def accounted(cluster: Cluster, job: str) -> str:
    """Return `STATE|exit:signal` once accounting has the job's end."""
    argv = ("sacct", "-XPn", "-j", job, "-o", "state,exitcode")
    until(lambda: cluster.ask(*argv).split("|")[0] not in {"", "PENDING", "RUNNING"}, f"sacct of {job}")
    return cluster.ask(*argv)


def test_every_node_of_every_cluster_is_idle_at_the_start(lab: Lab) -> None:
    counts = {name: len(cluster.idle_or_busy_nodes()) for name, cluster in lab.clusters.items()}

    assert counts == {site.name: len(site.node_names) for site in SITES}
    assert sum(counts.values()) == 61


def test_a_job_runs_as_its_user_and_leaves_its_output(vista: Cluster) -> None:
    job = vista.submit("bob", "id -un; id -u; hostname; echo $SLURM_JOB_NODELIST", *GG)

    assert accounted(vista, job) == "COMPLETED|0:0"
    name, uid, _, node = (vista.jobs_dir / f"{job}.out").read_text().split()
    assert (name, uid, node) == ("bob", "20002", "c640-001")
    assert (vista.jobs_dir / f"{job}.out").stat().st_uid == vista.uid("bob")


def test_accounting_tells_exit_codes_from_signals(vista: Cluster) -> None:
    fails = vista.submit("alice", "exit 3", *GG)
    dies = vista.submit("alice", "kill -9 $$", *GG)

    assert accounted(vista, fails) == "FAILED|3:0"
    assert accounted(vista, dies) == "FAILED|0:9"


def test_gpus_are_given_by_type_and_index(delta: Cluster) -> None:
    job = delta.submit("alice", "sleep 100", *GPU[:2], "-p", "gpuMixed", "--gres=gpu:a40:1", "-t", "5")
    delta.wait_state(job, "RUNNING")

    used = delta.ask("sinfo", "-hN", "-n", "gpux001", "-p", "gpuMixed", "-O", "GresUsed:60").strip()

    assert used == "gpu:a100:0(IDX:N/A),gpu:a40:1(IDX:2)"


def test_a_user_without_the_account_is_refused(anvil: Cluster) -> None:
    with pytest.raises(Refused, match="Invalid account") as refusal:
        anvil.submit("dave", "true", "-A", "cis220051", "-p", "shared")

    assert refusal.value.answer.rc == 1


def test_a_qos_limit_of_gpus_holds_a_job_back(anvil: Cluster) -> None:
    words = ("--gpus-per-node=4", "-c", "4")
    jobs = anvil.fill("ai", user="alice", account="cis220051-ai", jobs=3, options=words)

    anvil.wait_state(jobs[1], "RUNNING")

    until(lambda: anvil.ask("squeue", "-h", "-j", jobs[2], "-o", "%r") == "QOSGrpGRES", "the limit")


def test_a_dead_controller_comes_back_with_its_queue(delta: Cluster) -> None:
    job = delta.submit("alice", "sleep 100", *GPU)
    delta.wait_state(job, "RUNNING")
    saved = delta.place.root / "state" / "job_state"
    delta.ask("scontrol", "update", f"jobid={job}", "comment=saved-while-running")
    until(lambda: saved.exists() and b"saved-while-running" in saved.read_bytes(), "the state to be saved")

    delta.kill("slurmctld")

    assert "DOWN" in delta.client("alice", ("scontrol", "ping")).stdout
    assert delta.client("alice", ("squeue", "-h"), timeout=1).rc is None
    delta.restart("slurmctld")
    assert delta.state(job) == "RUNNING"


def test_a_frozen_controller_answers_nothing_until_it_thaws(deltaai: Cluster) -> None:
    deltaai.freeze("slurmctld")

    assert deltaai.client("alice", ("scontrol", "ping"), timeout=1).rc is None
    deltaai.thaw("slurmctld")
    assert "UP" in deltaai.ask("scontrol", "ping")


def test_without_slurmdbd_the_queue_answers_and_accounting_does_not(vista: Cluster) -> None:
    vista.kill("slurmdbd")

    assert vista.client("alice", ("squeue", "-h"), timeout=5).rc == 0
    assert vista.client("alice", ("sacct", "-n"), timeout=5).rc == 1


def test_a_node_that_dies_loses_its_job(vista: Cluster) -> None:
    job = vista.submit("alice", "sleep 100", *GG, "--no-requeue")
    vista.wait_state(job, "RUNNING")

    vista.node_down("c640-001")

    assert vista.wait_state(job, "NODE_FAIL") == "NODE_FAIL"
    assert vista.node_states()["c640-001"] == "down"


def test_reset_undoes_jobs_reservations_states_and_dead_daemons(deltaai: Cluster) -> None:
    deltaai.fill("ghx4", user="bob", account="bbka-dtai-gh", jobs=5, options=("--gpus-per-node=4",))
    deltaai.ask("sbatch", "-A", "bbka-dtai-gh", "-H", "--array=0-99", "--wrap", "true", user="bob")
    deltaai.drain("gh001")
    deltaai.node_down("gh002")
    deltaai.ask("scontrol", "update", "partitionname=ghx4", "state=drain")
    words = ("starttime=now", "duration=60", "nodes=gh012", "users=bob")
    deltaai.ask("scontrol", "create", "reservation", "reservationname=course", *words)
    deltaai.freeze("slurmdbd")
    deltaai.kill("slurmd:gh004")

    deltaai.reset()

    assert set(deltaai.node_states().values()) == {"idle"}
    assert deltaai.queue() == []
    assert "course" not in deltaai.ask("scontrol", "show", "reservation")
    assert deltaai.ask("sinfo", "-h", "-p", "ghx4", "-o", "%a") == "up"
    job = deltaai.submit("bob", "true", "-A", "bbka-dtai-gh", "-w", "gh004")
    assert accounted(deltaai, job) == "COMPLETED|0:0"


def test_stop_leaves_no_process_and_no_file(slurm_packages: None) -> None:
    lab = Lab.start([VISTA], accounting=False)
    ran = lab["vista"].submit("alice", "sleep 1000 & setsid sleep 1000 & wait", "-p", "gg")
    lab["vista"].wait_state(ran, "RUNNING")
    until(lambda: sum("sleep 1000" in line for line in lab.space.processes().values()) >= 2, "the job")

    lab.stop()

    assert lab.space.processes() == {}
    assert not lab.layout.root.exists()


def test_a_killed_test_run_takes_its_lab_along(slurm_packages: None, tmp_path: Path) -> None:
    code = """
        import sys, time
        from tests.slurm.lab.laboratory import Lab
        from tests.slurm.lab.sites import VISTA
        lab = Lab.start([VISTA], accounting=False)
        print(lab.layout.root, lab.space.owner, lab.space.inode, flush=True)
        time.sleep(100)
    """
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        if run.stdout is None:
            pytest.fail("no pipe")
        root, owner, inode = run.stdout.readline().split()
        space = Namespace(root=Path(root), owner=int(owner), inode=inode)
        assert len(space.processes()) >= 18

        os.kill(run.pid, signal.SIGKILL)

        until(lambda: not space.processes(), "the lab to end", timeout_s=10)
    until(lambda: not space.is_running(), "its owner to end", timeout_s=10)
    shutil.rmtree(root)


def test_two_labs_never_share_a_port(slurm_packages: None) -> None:
    first, second = PortRange(size=300), PortRange(size=300)
    try:
        assert abs(first.base - second.base) >= 300
    finally:
        first.release()
        second.release()


def test_a_controller_alone_holds_two_hundred_nodes_and_ten_thousand_jobs(slurm_packages: None) -> None:
    lab = Lab.scale_controller(nodes=200, jobs=10_000)
    try:
        rows = lab["scale"].ask("squeue", "-ah", "-o", "%i|%T").splitlines()

        assert len(rows) == 10_000
        assert {row.split("|", 1)[1] for row in rows} == {"PENDING"}
        assert len(lab["scale"].node_states()) == 200
    finally:
        lab.stop()


def test_the_command_line_starts_a_lab_that_outlives_it(slurm_packages: None) -> None:
    root = Path(f"/tmp/facet-slurm-{os.getpid()}")
    lab = [sys.executable, "-m", "tests.slurm.lab"]

    def run(*words: str) -> str:
        done = subprocess.run(
            [*lab, *words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    assert '"clusters": ["vista"]' in run("start", str(root), "--clusters", "vista", "--no-accounting")
    attached = Lab.attach(root)
    try:
        assert '"slurmd": 16' in run("status", str(root))
        assert f"export SLURM_CONF={root}/vista/slurm.conf\n" in run("env", "vista", "--root", str(root))
    finally:
        run("stop", str(root))
    assert attached.space.processes() == {}
