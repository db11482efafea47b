"""What sbatch's refusals mean: whether they may pass, and a sentence a person can act on.

Source: Slurm's error table (slurm_errno) and sbatch's own checks, 20.11 to 25.11.
"""

import re
from dataclasses import dataclass
from typing import Final

from providers.dialects.slurm.reasons import ReasonKind, explain_reason


@dataclass(frozen=True, slots=True)
class Refusal:
    """One kind of refusal: the job surely does not exist."""

    pattern: re.Pattern[str]
    retryable: bool
    explained: str


def _passing(*words: str, means: str) -> Refusal:
    return Refusal(re.compile("|".join(words)), retryable=True, explained=means)


def _lasting(*words: str, means: str) -> Refusal:
    return Refusal(re.compile("|".join(words)), retryable=False, explained=means)


_NEVER_SENT: Final = re.compile(r"Munge encode failed|auth_g_create")
_DOUBTFUL: Final = re.compile(
    r"Socket timed out|Unable to contact slurm controller|Zero Bytes were transmitted|Transport endpoint|"
    r"Connection (?:reset|timed out)|[Uu]nexpected message received|Message (?:receive|send) failure|"
    r"(?:receive|send) failure|Broken pipe|Communication (?:connection |shutdown )?failure|"
    r"Protocol authentication error"
)
_LIMIT_LINE: Final = re.compile(r"(?m)^(?:sbatch: error: )?(?P<reason>(?:Assoc|QOS|Max)[A-Za-z]+)\s*$")
_SUBMISSION_FAILED: Final = re.compile(r"Batch job submission failed:[ \t]*(?P<words>.*)")

_REFUSALS: Final[tuple[Refusal, ...]] = (
    _passing(
        *("QOSMaxSubmitJob", "AssocMaxSubmitJob", "AssocGrpSubmitJobs", "QOSGrpSubmitJobs"),
        "MaxSubmitJobsPerAccount",
        means="As many jobs as allowed are already submitted; it fits again when some of them end.",
    ),
    _lasting(
        *(r"cli_filter plugin terminated with error", r"error: (?:lua|job_submit)[:/]", "job_submit/lua"),
        means="A rule of the site's own refuses the job as it is written; its words say which. The spelling "
        "of requests is set in the site profile's `scheduler` section.",
    ),
    _passing(
        "Job violates accounting/QOS policy",
        means="A limit of the account or QoS is in the way: the number of submitted jobs, or this job's size "
        "or wall time.",
    ),
    _passing(
        *("Slurm temporarily unable to accept job", "[Jj]ob queue is full", "system is full"),
        *(
            "Resource temporarily unavailable",
            "controller in standby",
            "[Tt]oo many .*requests",
            "rate limit",
        ),
        *("I/O error writing script/environment to file", "No space left on device"),
        means="The scheduler is too busy or too full to take jobs just now.",
    ),
    _passing(
        _NEVER_SENT.pattern,
        means="The site's authentication service did not answer, so the scheduler never got the request.",
    ),
    _lasting(
        "Invalid account",
        means="This account does not exist, is not yours, or may not use this partition.",
    ),
    _lasting("[Ii]nvalid partition", means="There is no such partition here."),
    _lasting(
        "Invalid qos", "[Ii]nvalid QOS", means="This QoS does not exist, or the account may not use it."
    ),
    _lasting(
        *("Requested time limit is invalid", "time limit exceeds", "[Ii]nvalid time limit"),
        means="The wall time is longer than the partition or QoS allows.",
    ),
    _passing(
        "Required partition not available",
        means="The partition takes no jobs just now (inactive, drained or down).",
    ),
    _passing(
        *("Required node not available", "Requested nodes are busy"),
        "Requested partition configuration not available now",
        means="What the job needs is down, drained or reserved just now.",
    ),
    _lasting(
        *("Requested node configuration is not available", "Memory specification can not be satisfied"),
        *("CPU count (?:per node )?(?:can not be satisfied|specification invalid)",),
        *("Node count specification invalid", "More processors requested than permitted"),
        *("Memory required by task is not available", "Requested topology configuration is not available"),
        means="No node of the partition has this shape: fewer GPUs, CPUs or less memory per node are needed.",
    ),
    _lasting(
        *(r"generic resource \(gres\)", "GRES", "Trackable RESource"),
        means="The site knows no such GPU type or generic resource.",
    ),
    _lasting("[Ii]nvalid feature", "[Ii]nvalid constraint", means="No node has the requested features."),
    _lasting(
        "Invalid job array specification",
        means="The array's indexes are beyond what the site allows; split the array.",
    ),
    _lasting("User's group not permitted", means="Your Unix group may not use this partition."),
    _lasting("[Rr]eservation", means="The reservation does not exist, is over, or is not for you."),
    _lasting("[Dd]ependency", means="The job's dependency cannot be read, or names a job that is not there."),
    _lasting("[Ll]icense", means="The site has no such licence, or not so many."),
    _lasting("[Pp]ermission denied", means="The site does not permit this submission."),
    _lasting("[Uu]ser .*not found", "Invalid user id", means="The scheduler does not know this user."),
    _lasting(
        *("DOS line breaks", "does not look like a batch script", "[Bb]atch script is empty"),
        means="sbatch does not accept the script.",
    ),
    _lasting(
        *("[Uu]nrecognized (?:option|argument)", "invalid option", "[Ii]nvalid (?:numeric|argument|--)"),
        *("is ambiguous", "requires an argument", "Invalid directive"),
        means="An option in the script is not known to this version of Slurm.",
    ),
    _lasting(
        "Incompatible versions",
        means="The site's commands and scheduler differ in version; only the site can repair that.",
    ),
)


def is_doubtful(said: str) -> bool:
    """Whether the words say that the request may have arrived and its answer did not."""
    return _DOUBTFUL.search(said) is not None and _NEVER_SENT.search(said) is None


def find_refusal(said: str) -> Refusal | None:
    """Return what the words refuse; None when they are no refusal that we can be sure of.

    sbatch names the limit on a line of its own before the general sentence about limits: that line decides.
    Any error that the controller answered is a refusal, also one that is not in the table.
    """
    limit = _LIMIT_LINE.search(said)
    if limit and not _REFUSALS[0].pattern.search(said):
        reason = explain_reason(limit["reason"])
        if reason.kind is not ReasonKind.UNKNOWN:
            passes = reason.kind in {ReasonKind.OWN_LIMIT, ReasonKind.BUDGET}
            return Refusal(_LIMIT_LINE, retryable=passes, explained=reason.sentence)
    for refusal in _REFUSALS:
        if refusal.pattern.search(said):
            return refusal
    failed = _SUBMISSION_FAILED.search(said)
    if failed is None:
        return None
    return Refusal(
        _SUBMISSION_FAILED, retryable=False, explained=f"The scheduler refuses the job: {failed['words']}"
    )
