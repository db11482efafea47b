"""The Slurm dialect held to a site: what it says is understood, and what it understands is so.

The same tests run against real daemons and against the emulated Slurm.
"""

import shutil
from datetime import UTC, datetime, timedelta

from providers.dialects.slurm.shares import SHOW_SHARES, read_shares
from providers.types import FinishedJob, GpuPool, JobState
from tests.slurm.lab.cluster import Cluster
from tests.slurm.lab.namespace import until
from tests.slurm.sites import SLEEP, RealSite, Site, Speaker, node, queued

ONE_GPU = ("-A", "bbka-delta-gpu", "-p", "gpuA100x4", "--gpus-per-node=1", "-t", "60", "-o", "/dev/null")


# --- the probe -------------------------------------------------------------------------------------


def test_every_node_is_seen_once_with_its_shape(alice: Speaker) -> None:
    probe = alice.probe(full=True)

    assert len(probe.nodes) == 22
    assert len({each.name for each in probe.nodes}) == 22
    seen = node(probe, "gpua003")
    assert (seen.state, seen.usable, seen.cpus_total, seen.cpus_free) == ("idle", True, 64, 64)
    assert (seen.memory_total_mib, seen.memory_free_mib) == (256_000, 256_000)
    assert seen.features == ("a100", "nvlink", "x86")
    assert set(seen.partitions) >= {"gpuA100x4", "gpuA100x4-interactive", "gpuA100x4-preempt"}


def test_free_gpus_are_counted_by_type(alice: Speaker) -> None:
    probe = alice.probe()

    assert node(probe, "gpua001").gpus == (GpuPool(type="a100", total=4, used=0, free=4),)
    assert {pool.type: pool.free for pool in node(probe, "gpux001").gpus} == {"a100": 2, "a40": 2}
    assert node(probe, "cn001").gpus == ()
    assert sum(pool.free for each in probe.nodes for pool in each.gpus if pool.type == "a100") == 42


def test_partitions_carry_their_limits(alice: Speaker) -> None:
    probe = alice.probe(full=True)

    assert probe.partitions is not None
    parts = {part.name: part for part in probe.partitions}
    assert parts["gpuA100x4"].is_default
    assert parts["gpuA100x4"].max_walltime_s == 172_800
    assert parts["gpuA100x4-interactive"].max_walltime_s == 3_600
    assert parts["gpuA100x4-interactive"].default_walltime_s == 1_800
    assert parts["gpuA100x4"].nodes_total == 8
    assert parts["gpuMixed"].node_names == ("gpux001",)
    assert parts["cpu"].allow_accounts is None


def test_the_user_sees_their_own_accounts(alice: Speaker) -> None:
    probe = alice.probe(full=True)

    assert probe.user == "alice"
    assert probe.cluster == "delta"
    assert probe.scheduler == "slurm 22.05.8"
    assert probe.accounting_up
    assert probe.associations is not None
    assert {each.account for each in probe.associations if each.user == "alice"} == {
        "bbka-delta-cpu",
        "bbka-delta-gpu",
    }


def test_sshare_tells_what_the_users_accounts_may_use_and_have_used(site: Site) -> None:
    shares = {
        each.account: each
        for each in read_shares(site.run("alice", *SHOW_SHARES), user="alice", tres="billing")
    }

    assert shares.keys() == {"bbka-delta-cpu", "bbka-delta-gpu"}
    assert shares["bbka-delta-gpu"].used_min >= 0
    assert shares["bbka-delta-gpu"].granted_min is None


def test_a_full_probe_tells_which_share_of_their_limits_jobs_used(alice: Speaker, bob: Speaker) -> None:
    ref = bob.start("sleep 1.5", walltime_s=120)
    end = bob.wait_end(ref).end_at
    assert end is not None

    def told() -> list[FinishedJob]:
        since = end - timedelta(seconds=2)
        probe = alice.dialect.read_probe(alice.ask(alice.dialect.probe(full=True, since=since)), now=end)
        assert probe.finished_unknown == ""
        return [each for each in probe.finished or () if each.user == "bob" and each.ended_at == end]

    until(lambda: bool(told()), "accounting tells it", timeout_s=30)
    (job,) = told()
    assert (job.partition, job.walltime_s) == ("gpuA100x4", 120)
    assert 1 <= job.elapsed_s <= 30


def test_a_running_job_takes_its_gpus_from_the_node(alice: Speaker, bob: Speaker) -> None:
    ref = alice.start(SLEEP, partition="gpuMixed", gpus=1, gpu_type="a40", cpus=4, memory_mib=8000)
    alice.wait(ref, JobState.RUNNING)

    probe = bob.probe()

    seen = node(probe, "gpux001")
    assert {pool.type: (pool.used, pool.free) for pool in seen.gpus} == {"a100": (0, 2), "a40": (1, 1)}
    assert (seen.state, seen.cpus_free, seen.memory_free_mib) == ("mixed", 60, 248_000)
    job = queued(probe, ref.job_id)
    assert (job.state, job.user, job.account) == (JobState.RUNNING, "alice", "bbka-delta-gpu")
    assert (job.gpus, job.cpus, job.nodes, job.walltime_s) == (1, 4, 1, 300)
    assert (job.partitions, job.node_names) == (("gpuMixed",), ("gpux001",))


def test_a_maintenance_reservation_is_seen_and_takes_its_nodes(site: Site, alice: Speaker) -> None:
    words = ("starttime=now", "duration=120", "nodes=gpub008", "users=root", "flags=maint,ignore_jobs")
    site.run("root", "scontrol", "create", "reservation", "reservationname=repair", *words)

    until(
        lambda: not node(alice.probe(), "gpub008").usable, "the controller to take the node out", timeout_s=20
    )

    probe = alice.probe()
    [reservation] = probe.reservations
    assert (reservation.name, reservation.node_names) == ("repair", ("gpub008",))
    assert reservation.is_maintenance
    assert reservation.end_at is not None
    assert reservation.end_at - reservation.start_at == timedelta(hours=2)
    assert node(probe, "gpub008").gpus == (GpuPool(type="a40", total=4, used=0, free=0),)


def test_drained_and_dead_nodes_have_nothing_free(site: Site, alice: Speaker) -> None:
    site.run("root", "scontrol", "update", "nodename=gpua007", "state=drain", "reason=bad nvlink, XID 74")
    site.node_down("gpua008")

    probe = alice.probe()

    drained, dead = node(probe, "gpua007"), node(probe, "gpua008")
    assert (drained.usable, drained.cpus_free, drained.reason) == (False, 0, "bad nvlink, XID 74")
    assert "DRAIN" in drained.flags
    assert (dead.usable, dead.state, dead.gpus[0].free) == (False, "down", 0)
    assert node(probe, "gpua006").usable


def test_an_array_in_the_queue_is_one_record_for_all_its_tasks(site: Site, alice: Speaker) -> None:
    array = site.run("alice", "sbatch", "--parsable", "-H", *ONE_GPU, "--array=0-15%6", "--wrap", SLEEP)

    [seen] = [job for job in alice.probe().jobs if job.job_id == array]

    assert (seen.array_pending, seen.array_throttle, seen.gpus) == (16, 6, 1)


def test_the_parts_of_a_heterogeneous_job_are_told_apart(delta: Cluster) -> None:
    cpu = ("-A", "bbka-delta-cpu", "-p", "cpu", "-n", "8")
    het = delta.ask("sbatch", "--parsable", "-H", *ONE_GPU, "--wrap", SLEEP, ":", *cpu, user="alice")

    jobs = Speaker(RealSite(delta)).probe().jobs

    assert sorted((job.job_id, job.partitions, job.cpus) for job in jobs) == [
        (f"{het}+0", ("gpuA100x4",), 1),
        (f"{het}+1", ("cpu",), 8),
    ]


# --- a job's life -----------------------------------------------------------------------------------


def test_a_job_runs_and_completes_with_its_output(site: Site, alice: Speaker) -> None:
    place = site.scratch("alice")
    ref = alice.start("id -un; pwd; echo to-err >&2", workdir=place, cpus=2)

    alice.wait_end(ref)

    # The record of a short job is filled in two strokes; its partition comes with the second.
    seen = alice.wait_for(ref, lambda seen: seen.partition is not None, "the whole record")
    assert (seen.state, seen.exit_code, seen.source) == (JobState.COMPLETED, 0, "accounting")
    assert (seen.job_id, seen.submit_key, seen.partition) == (ref.job_id, ref.submit_key, "gpuA100x4")
    assert (seen.account, seen.cpus, seen.nodes) == ("bbka-delta-gpu", 2, 1)
    assert seen.start_at is not None
    assert seen.end_at is not None
    assert abs(seen.end_at - datetime.now(UTC)) < timedelta(minutes=1)
    assert seen.start_at <= seen.end_at
    assert alice.read(place / "out.txt").splitlines()[-1] == str(place)
    assert alice.read(place / "err.txt") == "to-err\n"


def test_a_job_that_exits_with_three_has_failed_with_three(alice: Speaker) -> None:
    seen = alice.wait_end(alice.start("exit 3"))

    assert (seen.state, seen.exit_code, seen.exit_signal) == (JobState.FAILED, 3, None)


def test_a_job_killed_by_a_signal_says_which(alice: Speaker) -> None:
    seen = alice.wait_end(alice.start("kill -9 $$"))

    assert (seen.state, seen.exit_signal) == (JobState.FAILED, 9)


def test_a_job_past_its_wall_time_timed_out(site: Site, alice: Speaker) -> None:
    ref = alice.start(SLEEP)
    alice.wait(ref, JobState.RUNNING)

    site.expire(f"{ref.job_id}")

    assert alice.wait_end(ref, timeout_s=50).state is JobState.TIMEOUT


def test_running_and_waiting_jobs_are_cancelled(alice: Speaker) -> None:
    running, waiting = alice.start(SLEEP), alice.start(SLEEP, extra_directives=("--hold",))
    alice.wait(running, JobState.RUNNING)

    answers = alice.cancel(running, waiting)

    assert answers == {running.submit_key: "", waiting.submit_key: ""}
    assert alice.wait_end(running).state is JobState.CANCELLED
    assert alice.wait_end(waiting).state is JobState.CANCELLED


def test_a_job_is_cancelled_by_its_key_when_its_id_is_unknown(alice: Speaker) -> None:
    ref = alice.start(SLEEP)
    alice.wait(ref, JobState.RUNNING)

    alice.cancel(ref.model_copy(update={"job_id": None}))

    assert alice.wait_end(ref).state is JobState.CANCELLED


def test_another_users_job_is_not_cancelled(alice: Speaker, bob: Speaker) -> None:
    ref = alice.start(SLEEP)
    alice.wait(ref, JobState.RUNNING)

    answer = bob.cancel(ref)

    assert "denied" in answer[ref.submit_key].lower()
    assert alice.wait(ref, JobState.RUNNING).state is JobState.RUNNING


def test_a_held_job_says_so_and_runs_when_released(site: Site, alice: Speaker) -> None:
    ref = alice.start("true", extra_directives=("--hold",))
    assert alice.wait(ref, JobState.HELD).reason_raw == "JobHeldUser"

    site.run("root", "scontrol", "release", f"{ref.job_id}")

    assert alice.wait_end(ref).state is JobState.COMPLETED


def test_a_requeued_job_waits_again_under_its_id(site: Site, alice: Speaker) -> None:
    ref = alice.start(SLEEP, requeue=True)
    alice.wait(ref, JobState.RUNNING)

    site.run("root", "scontrol", "requeue", f"{ref.job_id}")

    seen = alice.wait_for(ref, lambda seen: seen.restarts == 1, "a restart")
    assert seen.state not in {JobState.FAILED, JobState.CANCELLED, JobState.COMPLETED}
    assert seen.job_id == ref.job_id


def test_a_job_on_a_node_that_dies_ends_with_the_node(site: Site, alice: Speaker) -> None:
    ref = alice.start(SLEEP, requeue=False)
    [name] = alice.wait(ref, JobState.RUNNING).node_names

    site.node_down(name)

    # A node failure may be undone by a requeue, so it is believed at once only where the queue shows it.
    assert alice.wait_end(ref).state is JobState.NODE_FAIL


def test_a_working_directory_that_vanished_fails_the_job(site: Site, alice: Speaker) -> None:
    place, logs = site.scratch("alice"), site.scratch("alice")
    ref = alice.start(
        "echo must not run",
        workdir=place,
        stdout_path=f"{logs}/out.txt",
        stderr_path=f"{logs}/err.txt",
        extra_directives=("--hold",),
    )
    shutil.rmtree(place)

    site.run("root", "scontrol", "release", f"{ref.job_id}")

    seen = alice.wait_end(ref)
    assert (seen.state, seen.exit_code) == (JobState.FAILED, 121)
    assert f"cannot enter the working directory {place}" in alice.read(logs / "err.txt")
    assert alice.read(logs / "out.txt") == ""


def test_a_working_directory_that_cannot_be_made_submits_nothing(alice: Speaker) -> None:
    result = alice.submit(alice.request("true", workdir="/proc/nowhere"))

    assert result.outcome == "rejected"
    assert alice.probe().jobs == ()
