"""Submit one job, and tell from what sbatch said whether it now exists.

Three outcomes: accepted (an id), rejected (the scheduler's own refusal, so surely no job), and doubtful
(everything else). A job may exist after a timeout: nothing is submitted again before the key was looked up.

Source: sbatch(1) --parsable; messages of Slurm's error table (slurm_errno), 20.11 to 25.11.
"""

import json
import re
from typing import Final

from providers.dialects.body import absolute, checked_key
from providers.dialects.slurm.refusals import find_refusal, is_doubtful
from providers.dialects.slurm.script import render_script
from providers.types import Batch, BatchReply, Exec, JobRequest, MakeDirs, Operation, Reply, SubmitResult

SUBMIT: Final = "sbatch"
CLAIM: Final = "claim"
"""Makes a folder that a submission makes once; where it is there, the submission is not done again."""
_SUBMIT_TIMEOUT_S: Final = 30.0
_SAID_LIMIT: Final = 2000
_KILLED_FROM: Final = 124
"""Exit codes from here on are a wrapper's for "timed out", "not run" and "killed by a signal"."""

_PARSABLE = re.compile(r"(?P<id>\d{1,10})(?:;(?P<cluster>[A-Za-z0-9_.-]+))?", re.ASCII)
_SENTENCE = re.compile(r"Submitted batch job (?P<id>\d{1,10})(?: on cluster (?P<cluster>\S+))?", re.ASCII)


def build_submit(job: JobRequest) -> Batch:
    """Return one batch: the directories, then sbatch with the script on its standard input.

    Raises:
        InvalidInput: the job cannot be rendered.
    """
    script = render_script(job)
    own = f"{_folder(job.stdout_path, field='stdout_path')}/.facet"
    places = [
        job.workdir,
        _folder(job.stdout_path, field="stdout_path"),
        _folder(job.stderr_path, field="stderr_path"),
        own,
    ]
    operations: list[Operation] = [
        MakeDirs(name=f"mkdir-{number}", path=path) for number, path in enumerate(dict.fromkeys(places))
    ]
    operations.append(
        # Made once only: a request that comes late, or is carried out again by a restarted service, finds it
        # there. Another number is used only after this one is known to be made.
        Exec(
            name=CLAIM,
            argv=("mkdir", "--", f"{own}/submitted-{checked_key(job.submit_key)}-{job.submission}"),
            env={"LC_ALL": "C"},
            timeout_s=10.0,
        )
    )
    operations.append(
        Exec(
            name=SUBMIT,
            argv=("sbatch", "--parsable"),
            stdin=script,
            cwd=job.workdir,
            env={"TZ": "UTC", "LC_ALL": "C"},
            timeout_s=_SUBMIT_TIMEOUT_S,
            max_bytes=64 * 1024,
            requires=CLAIM,
        )
    )
    return Batch(operations=tuple(operations), deadline_s=_SUBMIT_TIMEOUT_S + 15)


def read_submit(reply: BatchReply) -> SubmitResult:
    """Return what became of the submission; a refusal is a result, never an exception."""
    answer = reply.replies.get(SUBMIT)
    if answer is None:
        return _doubtful(None, said="", why="The answer to the submission is missing.")
    result = _read(reply, answer)
    return result.model_copy(update={"is_begun": True}) if _is_begun(reply) else result


def _read(reply: BatchReply, answer: Reply) -> SubmitResult:
    said = _said(answer)
    if answer.missing or answer.skipped:
        return _not_tried(reply, answer, said=said)
    job_id = find_job_id(answer.stdout)
    if answer.timed_out or answer.truncated or answer.rc is None:
        return _doubtful(job_id, said=said, why="sbatch gave no complete answer in time.")
    if answer.rc == 0 and job_id is not None:
        return SubmitResult(outcome="accepted", job_id=job_id, said=said)
    if answer.rc == 0 or job_id is not None:
        return _doubtful(job_id, said=said, why="sbatch's exit code and its words contradict each other.")
    return _refusal(answer.rc, said)


def _folder(path: str, *, field: str) -> str:
    return absolute(path, field=field).rpartition("/")[0] or "/"


def _is_begun(reply: BatchReply) -> bool:
    """Whether the claim is made now, be it by this request or by another one."""
    claim = reply.replies.get(CLAIM)
    return claim is not None and (claim.rc == 0 or _is_repeated(reply))


def _is_repeated(reply: BatchReply) -> bool:
    """Whether the same submission had been begun at the site before this request came."""
    claim = reply.replies.get(CLAIM)
    return claim is not None and claim.rc not in (0, None) and "File exists" in claim.stderr


def find_job_id(stdout: str) -> str | None:
    """Return the id in sbatch's standard output, or None.

    Sites print banners before it, so the last line that is an id, or the sentence with one, counts;
    `39;ora25` carries the cluster; a JSON answer carries `job_id`.
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


def _not_tried(reply: BatchReply, answer: Reply, *, said: str) -> SubmitResult:
    if answer.skipped and _is_repeated(reply):
        return _doubtful(None, said=said, why="This submission was carried out before; its answer was lost.")
    why = (
        "sbatch or the working directory is not there, so nothing was submitted."
        if answer.missing
        else "The submission was not tried because an earlier step failed."
    )
    claim = reply.replies.get(CLAIM)
    words = said or _mkdir_words(reply) or (claim.stderr.strip() if claim else "")
    return SubmitResult(outcome="rejected", said=words, explained=why, retryable=answer.skipped)


def _refusal(rc: int, said: str) -> SubmitResult:
    if rc < 0 or rc >= _KILLED_FROM:
        return _doubtful(None, said=said, why="sbatch was killed before it could answer.")
    if is_doubtful(said):
        return _doubtful(None, said=said, why="The scheduler's answer did not arrive.")
    refusal = find_refusal(said)
    if refusal is None:
        return _doubtful(None, said=said, why=f"sbatch failed (exit code {rc}) without a reason we know.")
    return SubmitResult(
        outcome="rejected", said=said, explained=refusal.explained, retryable=refusal.retryable
    )


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
