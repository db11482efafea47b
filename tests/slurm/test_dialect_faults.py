"""The Slurm dialect where a site refuses, fails or doubts, and on clusters of other shapes.

Where a test takes `site`, it runs against real daemons and against the emulated Slurm.
"""

import time

import pytest

from providers.errors import SchedulerDown
from providers.types import GpuPool, JobRef, JobState
from tests.slurm.lab.cluster import Cluster
from tests.slurm.lab.namespace import until
from tests.slurm.sites import SLEEP, RealSite, Site, Speaker, node, queued

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
