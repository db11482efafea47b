"""Why a job waits or ended, in Slurm's codes and in sentences a person can act on.

A reason may be a code (`QOSMaxGRESPerUser`), a code with a tail (`ReqNodeNotAvail, UnavailableNodes:gpu1`)
or a whole sentence. Reasons of limits come in families (`Assoc|QOS`, `Grp|Max|Min`, what, how), so they are
read by their parts. A reason not known here is passed on as it is, as UNKNOWN.

Source: Slurm's "Job Reason Codes" page and the names compiled into Slurm 20.11 to 25.11.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class ReasonKind(StrEnum):
    """What kind of obstacle a reason is; decides what may help."""

    NONE = "none"
    """Nothing to report, or not looked at yet."""
    PRIORITY = "priority"
    RESOURCES = "resources"
    HELD = "held"
    DEPENDENCY = "dependency"
    BEGIN_TIME = "begin_time"
    """Not before a time: asked for, or Slurm's pause after a requeue."""
    OWN_LIMIT = "own_limit"
    """A limit on what this user, account or QoS may hold; passes as their jobs end."""
    BUDGET = "budget"
    """Minutes granted to the account or QoS are used up; passes only with a new grant."""
    NEVER_STARTS = "never_starts"
    """This job cannot start as it is; another shape, account or partition is needed."""
    PARTITION_DOWN = "partition_down"
    NODE_DOWN = "node_down"
    RESERVATION = "reservation"
    LICENSES = "licenses"
    STAGING = "staging"
    SCHEDULER = "scheduler"
    """The scheduler is busy with the job itself; passes by itself."""
    ENDED = "ended"
    """Why the job ended, not why it waits."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason: its kind and its sentence (empty for NONE)."""

    kind: ReasonKind
    sentence: str


_K = ReasonKind
_CODES: Final[dict[str, tuple[ReasonKind, str]]] = {
    "AccountNotAllowed": (_K.NEVER_STARTS, "The account may not use this partition."),
    "AccountingPolicy": (_K.OWN_LIMIT, "An accounting policy of the site holds the job back."),
    "AssociationJobLimit": (_K.OWN_LIMIT, "The account or user runs as many jobs as it may."),
    "AssociationResourceLimit": (_K.OWN_LIMIT, "The account or user holds as many resources as it may."),
    "AssociationTimeLimit": (_K.BUDGET, "The account or user has used up its granted time."),
    "BadConstraints": (_K.NEVER_STARTS, "No node can ever satisfy the requested constraints."),
    "BeginTime": (
        _K.BEGIN_TIME,
        "The job may not start before a set time: one that was asked for, or Slurm's pause after a requeue.",
    ),
    "BurstBufferOperation": (_K.STAGING, "A burst-buffer operation failed; the site has to look at it."),
    "BurstBufferResources": (_K.STAGING, "There is too little burst-buffer space just now."),
    "BurstBufferStageIn": (_K.STAGING, "Data is being staged into the burst buffer."),
    "Cleaning": (_K.SCHEDULER, "The job was requeued and its earlier run is still being cleaned up."),
    "Constraints": (_K.RESOURCES, "No node that satisfies the constraints is available just now."),
    "DeadLine": (_K.ENDED, "The job could not end before its deadline."),
    "Dependency": (_K.DEPENDENCY, "The job waits for another job that it depends on."),
    "DependencyNeverSatisfied": (
        _K.NEVER_STARTS,
        "A job it depends on ended in a way that makes the dependency impossible.",
    ),
    "FedJobLock": (_K.SCHEDULER, "The clusters of the federation are agreeing on who runs the job."),
    "FrontEndDown": (_K.NODE_DOWN, "No front-end node is up to start the job."),
    "InactiveLimit": (_K.ENDED, "The job was inactive for longer than the site allows."),
    "InvalidAccount": (_K.NEVER_STARTS, "The account is not valid here any more."),
    "InvalidQOS": (_K.NEVER_STARTS, "The QoS is not valid here any more."),
    "JobArrayTaskLimit": (_K.OWN_LIMIT, "As many tasks of the array run as its own limit (%) allows."),
    "JobHeldAdmin": (_K.HELD, "An administrator holds the job; only the site can release it."),
    "JobHeldUser": (_K.HELD, "The job is held by its owner; release it to let it run."),
    "JobHoldMaxRequeue": (_K.HELD, "The job was requeued as often as the site allows and is now held."),
    "JobLaunchFailure": (
        _K.ENDED,
        "The job could not be launched: for example an output path or file system that is not there.",
    ),
    "Licenses": (_K.LICENSES, "The job waits for a licence."),
    "MaxMemPerLimit": (_K.NEVER_STARTS, "More memory per CPU or node is requested than the site allows."),
    "NodeDown": (_K.NODE_DOWN, "A node that the job needs, or ran on, is down."),
    "NonZeroExitCode": (_K.ENDED, "The job's program ended with an exit code other than 0."),
    "OutOfMemory": (_K.ENDED, "The job needed more memory than it was given."),
    "PartitionConfig": (_K.NEVER_STARTS, "The request breaks a rule of the partition."),
    "PartitionDown": (_K.PARTITION_DOWN, "The partition is down; jobs start when the site opens it again."),
    "PartitionInactive": (_K.PARTITION_DOWN, "The partition is inactive and starts no jobs."),
    "PartitionNodeLimit": (
        _K.NEVER_STARTS,
        "The number of nodes is outside the partition's limits, or nodes it needs are down.",
    ),
    "PartitionTimeLimit": (
        _K.NEVER_STARTS,
        "The wall time is longer than the partition allows: it never starts unless shortened or moved.",
    ),
    "PowerNotAvail": (_K.RESOURCES, "There is not enough power available just now."),
    "PowerReserved": (_K.RESERVATION, "Power is reserved for others just now."),
    "Priority": (_K.PRIORITY, "Jobs with higher priority are ahead."),
    "Prolog": (_K.SCHEDULER, "The site's prolog is still preparing the nodes."),
    "QOSJobLimit": (_K.OWN_LIMIT, "The QoS runs as many jobs as it may."),
    "QOSNotAllowed": (_K.NEVER_STARTS, "The account or partition may not use this QoS."),
    "QOSResourceLimit": (_K.OWN_LIMIT, "The QoS holds as many resources as it may."),
    "QOSTimeLimit": (_K.BUDGET, "The QoS has used up its granted time."),
    "QOSUsageThreshold": (_K.BUDGET, "The account's fair share is below what this QoS demands."),
    "RaisedSignal": (_K.ENDED, "The job's program was ended by a signal."),
    "ReqNodeNotAvail": (
        _K.NODE_DOWN,
        "A node it needs is not available: down, drained, or reserved (often for a coming maintenance).",
    ),
    "Reservation": (_K.RESERVATION, "The job waits for its reservation to begin."),
    "ReservationDeleted": (_K.HELD, "Its reservation was deleted and the job is held."),
    "ReservationInvalid": (_K.NEVER_STARTS, "The requested reservation is not valid for this job."),
    "Resources": (_K.RESOURCES, "The job is next in line and waits for resources to become free."),
    "SchedDefer": (_K.SCHEDULER, "The job asked to start at once and cannot; it is deferred."),
    "SystemFailure": (_K.ENDED, "The scheduler, a file system or the network failed."),
    "TimeLimit": (_K.ENDED, "The job used up its wall time."),
}

_HELD_TAILS: Final[tuple[tuple[str, str], ...]] = (
    ("launch failed requeued held", "The launch failed; Slurm requeued the job and holds it."),
    (
        "user env retrieval failed requeued held",
        "The login environment could not be read; Slurm requeued the job and holds it.",
    ),
    ("job requeued in held state", "The job was requeued and is held; release it to let it run."),
)

_WHAT: Final[dict[str, str]] = {
    "BB": "burst-buffer space",
    "Billing": "billing units",
    "CPU": "CPUs",
    "Cpu": "CPUs",
    "Energy": "energy",
    "GRES": "GPUs or other generic resources",
    "Job": "jobs",
    "Jobs": "jobs",
    "License": "licences",
    "Mem": "memory",
    "Memory": "memory",
    "Node": "nodes",
    "SubmitJob": "submitted jobs",
    "SubmitJobs": "submitted jobs",
    "Unknown": "some resource",
    "Wall": "wall time",
    "WallDuration": "wall time",
}
_WHOSE: Final[dict[str, str]] = {"Assoc": "account or user", "QOS": "QoS", "": "account in this QoS"}
_LIMIT = re.compile(
    r"(?P<whose>Assoc|QOS|)(?P<bound>Grp|Max|Min)(?P<what>"
    + "|".join(sorted(_WHAT, key=len, reverse=True))
    + r")"
    r"(?P<minutes>(?:Run)?(?:Minutes|Mins))?(?P<per>Per(?:Job|Node|User|Account))?(?:NotSatisfied)?(?:Limit)?"
)


def explain_reason(raw: str) -> Reason:
    """Return the kind and the sentence for a reason as Slurm printed it (`%r`, or sacct's Reason)."""
    text = raw.strip()
    if text in {"", "None", "N/A", "(null)", "WAIT_NO_REASON"}:
        return Reason(_K.NONE, "")
    code, _, tail = text.partition(",")
    if code in _CODES:
        kind, sentence = _CODES[code]
        return Reason(kind, f"{sentence} ({tail.strip()})" if tail.strip() else sentence)
    limit = _LIMIT.fullmatch(text)
    if limit:
        return _explain_limit(limit)
    return _explain_sentence(text)


def _explain_sentence(text: str) -> Reason:
    for ending, sentence in _HELD_TAILS:
        if text.endswith(ending):
            return Reason(_K.HELD, sentence)
    if "not permitted to use this" in text:
        return Reason(_K.NEVER_STARTS, text)
    if text.startswith("Nodes required for job are DOWN"):
        return Reason(
            _K.RESOURCES,
            "The nodes it needs are down, drained, or reserved for jobs of higher-priority partitions.",
        )
    return Reason(_K.UNKNOWN, f"The scheduler says: {text}")


def _explain_limit(match: re.Match[str]) -> Reason:
    whose, what = _WHOSE[match["whose"]], _WHAT[match["what"]]
    per = (match["per"] or "").removeprefix("Per").lower()
    if match["bound"] == "Min":
        return Reason(_K.NEVER_STARTS, f"The job asks for less {what} than the {whose} demands.")
    if per in {"job", "node"}:
        minutes = "minutes of " if match["minutes"] else ""
        sentence = f"The job asks for more {minutes}{what} per {per} than the {whose} allows."
        return Reason(_K.NEVER_STARTS, sentence)
    if match["minutes"] and not match["minutes"].startswith("Run"):
        return Reason(_K.BUDGET, f"The {whose} has used up its granted minutes of {what}.")
    if match["minutes"]:
        return Reason(
            _K.OWN_LIMIT, f"Running jobs of the {whose} already claim the allowed minutes of {what}."
        )
    if match["what"] == "Wall" and match["bound"] == "Grp":
        return Reason(_K.BUDGET, f"The {whose} has used up its granted wall time.")
    each = f" per {per}" if per else ""
    return Reason(_K.OWN_LIMIT, f"The {whose} is at its limit of {what}{each}; it passes as jobs end.")
