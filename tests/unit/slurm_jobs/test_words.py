import json

import pytest

from providers.dialects.slurm.reasons import ReasonKind, explain_reason
from providers.dialects.slurm.words import COMPACT, TERMINAL, cancelled_by, read_state
from providers.types import JobState
from tests.unit.slurm_jobs.answers import DATA


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("PENDING", JobState.QUEUED),
        ("RUNNING", JobState.RUNNING),
        ("CONFIGURING", JobState.STARTING),
        ("SUSPENDED", JobState.SUSPENDED),
        ("COMPLETING", JobState.COMPLETING),
        ("COMPLETED", JobState.COMPLETED),
        ("FAILED", JobState.FAILED),
        ("CANCELLED", JobState.CANCELLED),
        ("CANCELLED by 20002", JobState.CANCELLED),
        ("TIMEOUT", JobState.TIMEOUT),
        ("DEADLINE", JobState.TIMEOUT),
        ("OUT_OF_MEMORY", JobState.OUT_OF_MEMORY),
        ("NODE_FAIL", JobState.NODE_FAIL),
        ("BOOT_FAIL", JobState.NODE_FAIL),
        ("PREEMPTED", JobState.PREEMPTED),
        ("REQUEUED", JobState.QUEUED),
        ("REQUEUE_HOLD", JobState.HELD),
        ("SPECIAL_EXIT", JobState.HELD),
        ("OUT_OF_ME+", JobState.OUT_OF_MEMORY),
        ("CANCELLED+", JobState.CANCELLED),
        ("COMPLETED ", JobState.COMPLETED),
        ("COMPL+", JobState.UNKNOWN),
        ("REQUEUE_+", JobState.UNKNOWN),
        ("HIBERNATING", JobState.UNKNOWN),
        ("running", JobState.UNKNOWN),
        ("", JobState.UNKNOWN),
        ([], JobState.UNKNOWN),
        (["RUNNING"], JobState.RUNNING),
        (["RUNNING", "CONFIGURING"], JobState.STARTING),
        (["CANCELLED", "COMPLETING"], JobState.COMPLETING),
        (["PENDING", "REQUEUED"], JobState.QUEUED),
        (["PENDING", "COMPLETING"], JobState.QUEUED),
        (["PENDING", "REQUEUE_HOLD"], JobState.HELD),
        (["PENDING", "SPECIAL_EXIT"], JobState.HELD),
        (["RUNNING", "EXPEDITING"], JobState.RUNNING),
        (["FAILED", "LAUNCH_FAILED"], JobState.NODE_FAIL),
        (["RUNNING", "STOPPED"], JobState.SUSPENDED),
        (["RUNNING", "SOMETHING_NEW"], JobState.UNKNOWN),
        (["RUNNING", "COMPLETED"], JobState.UNKNOWN),
    ],
)
def test_each_word_has_one_meaning_and_a_strange_one_has_none(word: str | list[str], state: JobState) -> None:
    assert read_state(word) is state


def test_two_letters_mean_what_the_long_word_means() -> None:
    assert {short: read_state(short) for short in COMPACT} == {
        short: read_state(long) for short, long in COMPACT.items()
    }


@pytest.mark.parametrize(
    "reason", ["JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "launch failed requeued held"]
)
def test_a_pending_job_that_somebody_must_release_is_held(reason: str) -> None:
    assert read_state("PENDING", reason=reason) is JobState.HELD
    assert read_state("RUNNING", reason=reason) is JobState.RUNNING


def test_who_cancelled_is_read_from_the_state() -> None:
    assert cancelled_by("CANCELLED by 54321") == 54321
    assert cancelled_by("CANCELLED") is None


def test_exactly_the_ends_are_terminal() -> None:
    assert set(JobState) - TERMINAL == {
        JobState.QUEUED,
        JobState.HELD,
        JobState.STARTING,
        JobState.RUNNING,
        JobState.SUSPENDED,
        JobState.COMPLETING,
        JobState.UNKNOWN,
    }


@pytest.mark.parametrize("version", ["22.05", "25.11"])
def test_every_recorded_json_state_is_known(version: str) -> None:
    queue = json.loads((DATA / f"{version}_squeue_states.json").read_text())
    accounting = json.loads((DATA / f"{version}_sacct_states.json").read_text())

    words = [job["job_state"] for job in queue] + [job["state"]["current"] for job in accounting]

    assert len(words) > 50
    assert [word for word in words if read_state(word) is JobState.UNKNOWN] == []


# --- reasons --------------------------------------------------------------------------------------

_KINDS = {
    "None": ReasonKind.NONE,
    "Priority": ReasonKind.PRIORITY,
    "Resources": ReasonKind.RESOURCES,
    "Dependency": ReasonKind.DEPENDENCY,
    "DependencyNeverSatisfied": ReasonKind.NEVER_STARTS,
    "BeginTime": ReasonKind.BEGIN_TIME,
    "JobHeldUser": ReasonKind.HELD,
    "JobHeldAdmin": ReasonKind.HELD,
    "JobHoldMaxRequeue": ReasonKind.HELD,
    "launch failed requeued held": ReasonKind.HELD,
    "PartitionTimeLimit": ReasonKind.NEVER_STARTS,
    "PartitionNodeLimit": ReasonKind.NEVER_STARTS,
    "PartitionConfig": ReasonKind.NEVER_STARTS,
    "PartitionDown": ReasonKind.PARTITION_DOWN,
    "PartitionInactive": ReasonKind.PARTITION_DOWN,
    "BadConstraints": ReasonKind.NEVER_STARTS,
    "Licenses": ReasonKind.LICENSES,
    "Reservation": ReasonKind.RESERVATION,
    "ReservationDeleted": ReasonKind.HELD,
    "ReqNodeNotAvail": ReasonKind.NODE_DOWN,
    "ReqNodeNotAvail, UnavailableNodes:g[03-04]": ReasonKind.NODE_DOWN,
    "ReqNodeNotAvail, May be reserved for other job": ReasonKind.NODE_DOWN,
    "NodeDown": ReasonKind.NODE_DOWN,
    "FrontEndDown": ReasonKind.NODE_DOWN,
    "JobArrayTaskLimit": ReasonKind.OWN_LIMIT,
    "AssociationJobLimit": ReasonKind.OWN_LIMIT,
    "QOSMaxGRESPerUser": ReasonKind.OWN_LIMIT,
    "QOSMaxJobsPerUserLimit": ReasonKind.OWN_LIMIT,
    "QOSMaxCpuPerUserLimit": ReasonKind.OWN_LIMIT,
    "QOSGrpGRES": ReasonKind.OWN_LIMIT,
    "QOSGrpCpuLimit": ReasonKind.OWN_LIMIT,
    "AssocGrpCPURunMinutesLimit": ReasonKind.OWN_LIMIT,
    "AssocGrpCPUMinutesLimit": ReasonKind.BUDGET,
    "AssocGrpBillingMinutes": ReasonKind.BUDGET,
    "AssocGrpWallLimit": ReasonKind.BUDGET,
    "QOSUsageThreshold": ReasonKind.BUDGET,
    "AssocMaxJobsLimit": ReasonKind.OWN_LIMIT,
    "MaxJobsPerAccount": ReasonKind.OWN_LIMIT,
    "MaxGRESPerAccount": ReasonKind.OWN_LIMIT,
    "QOSMaxWallDurationPerJobLimit": ReasonKind.NEVER_STARTS,
    "AssocMaxGRESPerNode": ReasonKind.NEVER_STARTS,
    "QOSMaxCpuMinutesPerJobLimit": ReasonKind.NEVER_STARTS,
    "QOSMinGRES": ReasonKind.NEVER_STARTS,
    "QOSMinCpuNotSatisfied": ReasonKind.NEVER_STARTS,
    "MaxMemPerLimit": ReasonKind.NEVER_STARTS,
    "AccountNotAllowed": ReasonKind.NEVER_STARTS,
    "InvalidQOS": ReasonKind.NEVER_STARTS,
    "InvalidAccount": ReasonKind.NEVER_STARTS,
    "BurstBufferStageIn": ReasonKind.STAGING,
    "Cleaning": ReasonKind.SCHEDULER,
    "Prolog": ReasonKind.SCHEDULER,
    "SchedDefer": ReasonKind.SCHEDULER,
    "FedJobLock": ReasonKind.SCHEDULER,
    "NonZeroExitCode": ReasonKind.ENDED,
    "JobLaunchFailure": ReasonKind.ENDED,
    "TimeLimit": ReasonKind.ENDED,
    "OutOfMemory": ReasonKind.ENDED,
    "RaisedSignal": ReasonKind.ENDED,
    "SystemFailure": ReasonKind.ENDED,
    "InactiveLimit": ReasonKind.ENDED,
    "DeadLine": ReasonKind.ENDED,
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": (
        ReasonKind.RESOURCES
    ),
    "Job's account not permitted to use this partition (gpu allows a-gpu not a)": ReasonKind.NEVER_STARTS,
    "MoonInWrongPhase": ReasonKind.UNKNOWN,
}


@pytest.mark.parametrize(("reason", "kind"), _KINDS.items())
def test_a_reason_tells_what_kind_of_obstacle_it_is(reason: str, kind: ReasonKind) -> None:
    assert explain_reason(reason).kind is kind


def _documented() -> list[str]:
    what = ["BB", "Billing", "Energy", "GRES", "License", "Unknown"]
    names = [
        f"{whose}Grp{each}{minutes}"
        for whose in ("Assoc", "QOS")
        for each in [*what, "Node"]
        for minutes in ("Minutes", "RunMinutes")
    ]
    names += [f"{whose}Grp{each}" for whose in ("Assoc", "QOS") for each in what]
    names += [
        f"{whose}Max{each}{per}"
        for whose in ("Assoc", "QOS")
        for each in [*what, "Cpu", "Node"]
        for per in ("PerJob", "PerNode", "MinutesPerJob")
    ]
    names += [f"QOSMax{each}PerUser" for each in [*what, "Memory"]]
    names += [f"QOSMin{each}" for each in [*what, "Memory", "Node"]]
    names += [f"Max{each}PerAccount" for each in [*what, "Cpu", "Memory", "Node", "Jobs", "SubmitJobs"]]
    for whose, memory in (("Assoc", "Mem"), ("QOS", "Memory")):
        names += [f"{whose}Grp{memory}Minutes", f"{whose}Grp{memory}RunMinutes"]
        names += [
            f"{whose}Max{memory}PerJob",
            f"{whose}Max{memory}PerNode",
            f"{whose}Max{memory}MinutesPerJob",
        ]
        names += [
            f"{whose}Grp{each}Limit"
            for each in ("Cpu", "CPUMinutes", "CPURunMinutes", "Jobs", "Mem", "Node", "SubmitJobs", "Wall")
        ]
        names += [
            f"{whose}Max{each}Limit"
            for each in ("CpuPerJob", "CpuMinutesPerJob", "NodePerJob", "WallDurationPerJob")
        ]
    names += ["AssocMaxJobsLimit", "AssocMaxSubmitJobLimit", "QOSMaxSubmitJobPerUserLimit"]
    names += ["QOSMaxNodePerUserLimit", "QOSMaxCpuPerUserLimit", "QOSMaxJobsPerUserLimit"]
    names += ["AccountingPolicy", "AssociationResourceLimit", "AssociationTimeLimit", "QOSJobLimit"]
    names += ["QOSResourceLimit", "QOSTimeLimit", "QOSNotAllowed", "PowerNotAvail", "PowerReserved"]
    names += ["BurstBufferOperation", "BurstBufferResources", "ReservationInvalid", "Constraints"]
    return names


@pytest.mark.parametrize("reason", _documented())
def test_every_documented_reason_has_a_sentence_of_its_own(reason: str) -> None:
    explained = explain_reason(reason)

    assert explained.kind is not ReasonKind.UNKNOWN
    assert explained.sentence.endswith(".")
    assert reason not in explained.sentence


def test_a_strange_reason_is_passed_on_in_the_schedulers_words() -> None:
    assert explain_reason("MoonInWrongPhase").sentence == "The scheduler says: MoonInWrongPhase"


def test_the_nodes_a_reason_names_are_kept() -> None:
    assert explain_reason("ReqNodeNotAvail, UnavailableNodes:c[003-010],s01").sentence.endswith(
        "(UnavailableNodes:c[003-010],s01)"
    )


def test_every_recorded_reason_is_known() -> None:
    reasons = set()
    for path in sorted(DATA.glob("*_squeue_o.txt")):
        reasons |= {line.split("|")[17] for line in path.read_text().splitlines()}
    for version in ("20.11", "25.11"):
        lines = (DATA / f"{version}_squeue_pipe.txt").read_text().splitlines()
        reasons |= {line.split("|")[-12] for line in lines}

    assert len(reasons) > 15
    assert {reason for reason in reasons if explain_reason(reason).kind is ReasonKind.UNKNOWN} == set()
