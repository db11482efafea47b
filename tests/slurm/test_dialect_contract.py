"""The Slurm dialect held to a site: what it says is understood, and what it understands is so.

The same tests run against real daemons and against the emulated Slurm.
"""

import shutil
import time
from datetime import UTC, datetime, timedelta

import pytest

from providers.errors import SchedulerDown
from providers.types import GpuPool, JobRef, JobState, Node, Probe, QueueJob
from tests.slurm.lab.cluster import Cluster
from tests.slurm.lab.namespace import until
from tests.slurm.sites import RealSite, Site, Speaker

SLEEP = "sleep 300"
ONE_GPU = ("-A", "bbka-delta-gpu", "-p", "gpuA100x4", "--gpus-per-node=1", "-t", "60", "-o", "/dev/null")


@pytest.fixture
def alice(site: Site) -> Speaker:
    """A researcher with GPU and CPU accounts."""
    return Speaker(site)


@pytest.fixture
def bob(site: Site) -> Speaker:
    """Another one."""
    return Speaker(site, user="bob")


def node(probe: Probe, name: str) -> Node:
    [found] = [each for each in probe.nodes if each.name == name]
    return found


def queued(probe: Probe, job_id: str | None) -> QueueJob:
    [found] = [job for job in probe.jobs if job.job_id == job_id]
    return found


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


# --- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said", "explained"),
    [
        ({"account": "nobody-knows"}, "Invalid account or account/partition combination", "This account"),
        ({"partition": "fast"}, "invalid partition specified: fast", "There is no such partition"),
        ({"qos": "premium"}, "Invalid qos specification", "This QoS does not exist"),
    ],
    ids=["account", "partition", "qos"],
)
def test_a_refusal_is_explained(alice: Speaker, changes: dict[str, str], said: str, explained: str) -> None:
    result = alice.submit(alice.request("true", **changes))

    assert (result.outcome, result.job_id, result.retryable) == ("rejected", None, False)
    assert said in result.said
    assert result.explained.startswith(explained)


def test_a_shape_that_no_node_has_is_refused(alice: Speaker) -> None:
    result = alice.submit(alice.request("true", gpus=5, gpu_type="a100"))

    assert (result.outcome, result.retryable) == ("rejected", False)


# --- doubt and faults ---------------------------------------------------------------------------------


def test_a_job_is_found_by_its_key_after_a_lost_answer(alice: Speaker) -> None:
    ref = alice.start(SLEEP)
    lost = ref.model_copy(update={"job_id": None})
    never = JobRef(submit_key="facet-never-submitted", submitted_at=ref.submitted_at)

    until(lambda: alice.observe(lost).get(lost.submit_key) is not None, "the job")

    found = alice.observe(lost, never)
    seen = found[lost.submit_key]
    assert seen is not None
    assert seen.job_id == ref.job_id
    assert found[never.submit_key] is None


def test_an_ended_job_is_found_by_its_key_too(alice: Speaker) -> None:
    ref = alice.start("exit 4")
    alice.wait_end(ref)

    seen = alice.wait_end(ref.model_copy(update={"job_id": None}))

    assert (seen.job_id, seen.exit_code) == (ref.job_id, 4)


@pytest.mark.parametrize("fault", ["dead", "frozen"])
def test_a_controller_that_does_not_answer_costs_seconds(site: Site, alice: Speaker, fault: str) -> None:
    if fault == "dead":
        site.kill_controller()
    else:
        site.freeze_controller()
    begun = time.monotonic()

    with pytest.raises(SchedulerDown):
        alice.probe(full=True)

    assert time.monotonic() - begun < 8


def test_an_end_is_confirmed_by_accounting_while_the_controller_is_dead(site: Site, alice: Speaker) -> None:
    ref = alice.start("exit 6")
    alice.wait_end(ref)
    site.kill_controller()

    seen = alice.observe(ref)[ref.submit_key]

    assert seen is not None
    assert (seen.state, seen.exit_code, seen.source) == (JobState.FAILED, 6, "accounting")


def test_without_accounting_nodes_and_queue_are_still_seen(site: Site, alice: Speaker) -> None:
    ref = alice.start(SLEEP)
    alice.wait(ref, JobState.RUNNING)
    site.kill_accounting()

    probe = alice.probe(full=True)

    assert not probe.accounting_up
    assert len(probe.nodes) == 22
    assert queued(probe, ref.job_id).state is JobState.RUNNING
    seen = alice.observe(ref)[ref.submit_key]
    assert seen is not None
    assert seen.state is JobState.RUNNING


def test_accounting_knows_the_end_when_the_controller_forgot_it(deltaai: Cluster) -> None:
    speaker = Speaker(RealSite(deltaai), account="bbka-dtai-gh", partition="ghx4")
    ref = speaker.start("exit 5")
    speaker.wait_end(ref)
    until(lambda: deltaai.state(f"{ref.job_id}") == "", "the controller to forget the job", step_s=0.5)

    seen = speaker.observe(ref)[ref.submit_key]

    assert seen is not None
    assert (seen.state, seen.exit_code, seen.source) == (JobState.FAILED, 5, "accounting")


def test_a_job_beyond_a_qos_limit_says_which_limit(anvil: Cluster) -> None:
    speaker = Speaker(RealSite(anvil), account="cis220051", partition="debug")
    first, second = speaker.start(SLEEP), speaker.start(SLEEP)
    third = speaker.submit(speaker.request(SLEEP))

    speaker.wait(first, JobState.RUNNING)
    waiting = speaker.wait_for(second, lambda seen: seen.reason_raw.startswith("QOS"), "a limit's reason")

    assert (waiting.state, waiting.reason_raw) == (JobState.QUEUED, "QOSMaxJobsPerUserLimit")
    assert (third.outcome, third.retryable) == ("rejected", True)


def test_untyped_gpus_are_counted_without_a_type(anvil: Cluster) -> None:
    speaker = Speaker(RealSite(anvil), account="cis220051-gpu", partition="gpu")
    ref = speaker.start(SLEEP, gpus=3, gpu_spelling="gpus-per-node")
    [name] = speaker.wait(ref, JobState.RUNNING).node_names

    pools = node(speaker.probe(), name).gpus

    assert pools == (GpuPool(type=None, total=4, used=3, free=1),)


def test_whole_node_partitions_are_known_as_such(vista: Cluster) -> None:
    speaker = Speaker(RealSite(vista), account="ASC24001", partition="gh")

    partitions = speaker.probe(full=True).partitions

    assert partitions is not None
    assert {part.name: part.exclusive for part in partitions} == {"gh": True, "gh-dev": True, "gg": True}


def test_a_thousand_pending_jobs_are_read_whole(deltaai: Cluster) -> None:
    words = ("-A", "bbka-dtai-gh", "-p", "ghx4", "--begin=now+10hours", "-o", "/dev/null", "-t", "60")
    array = deltaai.ask("sbatch", "--parsable", *words, "--array=0-1000", "--wrap", "true", user="bob")
    deltaai.ask("scontrol", "update", f"jobid={array}_[0-999]", "name=sweep")  # each now a record of its own

    jobs = Speaker(RealSite(deltaai), account="bbka-dtai-gh").probe().jobs

    assert sum(job.array_pending for job in jobs) == 1001
    assert len(jobs) == 1001
    assert {job.state for job in jobs} == {JobState.QUEUED}
