"""Submit one job, and tell from what sbatch said whether it now exists.

Three outcomes: accepted (an id), rejected (the scheduler's own refusal, so surely no job), and doubtful
(everything else). A job may exist after a timeout: nothing is submitted again before the key was looked up.

Source: sbatch(1) --parsable; messages of Slurm's error table (slurm_errno), 20.11 to 25.11.
"""

import json
import re
from typing import Final

from providers.dialects.slurm.directives import absolute
from providers.dialects.slurm.reasons import ReasonKind, explain_reason
from providers.dialects.slurm.script import render_script
from providers.types import Batch, BatchReply, Exec, JobRequest, MakeDirs, Operation, Reply, SubmitResult

SUBMIT: Final = "sbatch"
_SUBMIT_TIMEOUT_S: Final = 30.0
_SAID_LIMIT: Final = 2000

_PARSABLE = re.compile(r"(?P<id>\d{1,10})(?:;(?P<cluster>[A-Za-z0-9_.-]+))?", re.ASCII)
_SENTENCE = re.compile(r"Submitted batch job (?P<id>\d{1,10})(?: on cluster (?P<cluster>\S+))?", re.ASCII)
_LIMIT_LINE = re.compile(r"(?m)^sbatch: error: (?P<reason>(?:Assoc|QOS|Max)[A-Za-z]+)\s*$")

_DOUBTFUL: Final = re.compile(
    r"Socket timed out|Unable to contact slurm controller|Zero Bytes were transmitted|"
    r"Transport endpoint|Connection (?:reset|timed out)|[Uu]nexpected message received|"
    r"Message (?:receive|send) failure|receive failure|send failure|Broken pipe|Communication (?:connection )?failure"
)
"""The request may have arrived, its answer did not."""

_REFUSALS: Final[tuple[tuple[str, bool, str], ...]] = (
    (
        r"QOSMaxSubmitJob|AssocMaxSubmitJob|AssocGrpSubmitJobs|QOSGrpSubmitJobs|MaxSubmitJobsPerAccount",
        True,
        "As many jobs as allowed are already submitted; it fits again when some of them end.",
    ),
    (
        r"Job violates accounting/QOS policy",
        True,
        "A limit of the account or QoS is in the way: the number of submitted jobs, or this job's size or wall time.",
    ),
    (
        r"Slurm temporarily unable to accept job|[Jj]ob queue is full|system is full|Resource temporarily unavailable|"
        r"controller in standby|[Tt]oo many (?:simultaneous )?requests|rate limit|"
        r"I/O error writing script/environment to file|No space left on device",
        True,
        "The scheduler is too busy or too full to take jobs just now.",
    ),
    (
        r"Munge encode failed|auth_g_create",
        True,
        "The site's authentication service did not answer, so the scheduler never took the request.",
    ),
    (
        r"Invalid account or account/partition combination|Invalid account",
        False,
        "This account does not exist, is not yours, or may not use this partition.",
    ),
    (r"[Ii]nvalid partition", False, "There is no such partition here."),
    (r"Invalid qos|[Ii]nvalid QOS", False, "This QoS does not exist, or the account may not use it here."),
    (
        r"Requested time limit is invalid|time limit exceeds|Requested time",
        False,
        "The wall time is longer than the partition or QoS allows.",
    ),
    (
        r"Required partition not available",
        True,
        "The partition takes no jobs just now (inactive, drained or down).",
    ),
    (
        r"Required node not available|Requested nodes are busy|Requested partition configuration not available now",
        True,
        "What the job needs is down, drained or reserved just now.",
    ),
    (
        r"Requested node configuration is not available|Memory specification can not be satisfied|"
        r"CPU count (?:per node )?(?:can not be satisfied|specification invalid)|Node count specification invalid|"
        r"More processors requested than permitted|Memory required by task is not available|"
        r"Requested topology configuration is not available|"
        r"CPU count per node can not be satisfied|Requested partition configuration",
        False,
        "No node of the partition has this shape: fewer GPUs, CPUs or less memory per node are needed.",
    ),
    (
        r"generic resource \(gres\)|GRES|Trackable RESource|TRES",
        False,
        "The site knows no such GPU type or generic resource.",
    ),
    (r"[Ii]nvalid feature|[Ii]nvalid constraint", False, "No node has the requested features."),
    (
        r"Invalid job array specification",
        False,
        "The array's indexes are beyond what the site allows; split the array.",
    ),
    (r"User's group not permitted", False, "Your Unix group may not use this partition."),
    (
        r"[Rr]eservation",
        False,
        "The reservation does not exist, is over, or is not for you.",
    ),
    (r"[Dd]ependency", False, "The job's dependency cannot be read, or names a job that is not there."),
    (r"[Ll]icense", False, "The site has no such licence, or not so many."),
    (r"Access/permission denied|[Pp]ermission denied", False, "The site does not permit this submission."),
    (r"[Uu]ser .*not found|Invalid user id", False, "The scheduler does not know this user."),
    (
        r"DOS line breaks|does not look like a batch script|[Bb]atch script is empty",
        False,
        "sbatch does not accept the script.",
    ),
    (
        r"unrecognized option|[Uu]nrecognized (?:option|argument)|invalid option|[Ii]nvalid (?:numeric|argument|--)|"
        r"ambiguous|requires an argument|Invalid directive",
        False,
        "An option in the script is not known to this version of Slurm.",
    ),
    (
        r"Incompatible versions",
        False,
        "The site's commands and its scheduler are of different versions; only the site can repair that.",
    ),
)


def build_submit(job: JobRequest) -> Batch:
    """Return one batch: the directories, then sbatch with the script on its standard input.

    Raises:
        InvalidInput: the job cannot be rendered.
    """
    script = render_script(job)
    places = [
        job.workdir,
        *(
            absolute(path, field=field).rpartition("/")[0] or "/"
            for path, field in ((job.stdout_path, "stdout_path"), (job.stderr_path, "stderr_path"))
        ),
    ]
    operations: list[Operation] = [
        MakeDirs(name=f"mkdir-{number}", path=path) for number, path in enumerate(dict.fromkeys(places))
    ]
    operations.append(
        Exec(
            name=SUBMIT,
            argv=("sbatch", "--parsable"),
            stdin=script,
            cwd=job.workdir,
            env={"TZ": "UTC", "LC_ALL": "C"},
            timeout_s=_SUBMIT_TIMEOUT_S,
            max_bytes=64 * 1024,
        )
    )
    return Batch(operations=tuple(operations), deadline_s=_SUBMIT_TIMEOUT_S + 15)


def read_submit(reply: BatchReply) -> SubmitResult:
    """Return what became of the submission; a refusal is a result, never an exception."""
    answer = reply.replies.get(SUBMIT)
    if answer is None:
        return _doubtful(None, said="", why="The answer to the submission is missing.")
    said = _said(answer)
    if answer.missing:
        return SubmitResult(
            outcome="rejected",
            said=said or _mkdir_words(reply),
            explained="sbatch or the working directory is not there, so nothing was submitted.",
        )
    if answer.skipped:
        return SubmitResult(
            outcome="rejected",
            said=said or _mkdir_words(reply),
            explained="The submission was not tried because an earlier step failed.",
            retryable=True,
        )
    job_id = find_job_id(answer.stdout)
    if answer.timed_out or answer.truncated or answer.rc is None:
        return _doubtful(job_id, said=said, why="sbatch gave no complete answer in time.")
    if answer.rc == 0 and job_id is not None:
        return SubmitResult(outcome="accepted", job_id=job_id, said=said)
    if answer.rc == 0:
        return _doubtful(None, said=said, why="sbatch reported success but named no job.")
    if job_id is not None:
        return _doubtful(job_id, said=said, why="sbatch named a job and yet reported failure.")
    return _refusal(answer.rc, said)


def find_job_id(stdout: str) -> str | None:
    """Return the id in sbatch's standard output, or None.

    Sites print banners before it, so the last line that is an id, or the sentence with one, counts; `39;ora25`
    carries the cluster; a JSON answer carries `job_id`.
    """
    for line in reversed(stdout.splitlines()):
        match = _PARSABLE.fullmatch(line.strip()) or _SENTENCE.fullmatch(line.strip())
        if match and int(match["id"]) > 0:
            return str(int(match["id"]))
    start = stdout.find("{")
    if start < 0:
        return None
    try:
        document = json.JSONDecoder().raw_decode(stdout[start:])[0]
    except ValueError:
        return None
    number = document.get("job_id") if isinstance(document, dict) else None
    is_id = (isinstance(number, int) and not isinstance(number, bool)) or (
        isinstance(number, str) and number.isascii() and number.isdigit()
    )
    return str(int(str(number))) if is_id and int(str(number)) > 0 else None


def _refusal(rc: int, said: str) -> SubmitResult:
    if rc < 0 or rc >= 124:
        return _doubtful(None, said=said, why="sbatch was killed before it could answer.")
    for pattern, retryable, explained in _REFUSALS[:4]:
        limit = _LIMIT_LINE.search(said)
        if limit and pattern.startswith("Job violates"):
            reason = explain_reason(limit["reason"])
            is_passing = reason.kind in {ReasonKind.OWN_LIMIT, ReasonKind.BUDGET}
            return SubmitResult(
                outcome="rejected", said=said, explained=reason.sentence, retryable=is_passing
            )
        if re.search(pattern, said):
            return SubmitResult(outcome="rejected", said=said, explained=explained, retryable=retryable)
    if _DOUBTFUL.search(said):
        return _doubtful(None, said=said, why="The scheduler's answer did not arrive.")
    for pattern, retryable, explained in _REFUSALS[4:]:
        if re.search(pattern, said):
            return SubmitResult(outcome="rejected", said=said, explained=explained, retryable=retryable)
    if "Batch job submission failed:" in said:
        words = said.rpartition("Batch job submission failed:")[2].strip().splitlines()
        return SubmitResult(
            outcome="rejected", said=said, explained=f"The scheduler refuses the job: {(words or [''])[0]}"
        )
    return _doubtful(None, said=said, why=f"sbatch failed (exit code {rc}) without a reason we know.")


def _doubtful(job_id: str | None, *, said: str, why: str) -> SubmitResult:
    return SubmitResult(
        outcome="doubtful",
        job_id=job_id,
        said=said,
        explained=f"{why} The job may exist: it is looked up by its key before anything else.",
    )


def _said(answer: Reply) -> str:
    words = "\n".join(each.strip() for each in (answer.stderr, answer.stdout) if each.strip())
    return words if len(words) <= _SAID_LIMIT else f"…{words[-_SAID_LIMIT:]}"


def _mkdir_words(reply: BatchReply) -> str:
    words = [each.stderr.strip() for name, each in reply.replies.items() if name.startswith("mkdir-")]
    return "\n".join(each for each in words if each)[:_SAID_LIMIT]
