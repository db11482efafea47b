"""Cancel jobs of ours, and tell which requests were taken.

scancel is silent on success, also for jobs that are unknown or over (exit code 0): "taken" says nothing of
the job, only the next look does. Another user's job gives exit code 210, a dead controller 8 after 29 s,
hence a ping first.

Source: scancel(1); recorded behaviour of 20.11 to 25.11.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from providers.dialects.body import checked_key
from providers.dialects.slurm.ping import PING, build_ping
from providers.errors import InvalidInput
from providers.types import Batch, BatchReply, Exec, JobRef, Reply

_IDS_PER_COMMAND: Final = 400
_TIMEOUT_S: Final = 30.0
_JOB_ID = re.compile(r"\d{1,10}(?:_\d{1,9}|\+\d{1,4})?", re.ASCII)
_PER_JOB = re.compile(r"error on job id (?P<id>\d{1,10}(?:[_+]\d{1,9})?): (?P<words>.*)", re.ASCII)
_GONE: Final = re.compile(r"already completing or completed|Invalid job id specified")
"""Nothing is left to cancel: no refusal."""


@dataclass(frozen=True, slots=True)
class _Command:
    name: str
    arguments: tuple[str, ...]
    refs: tuple[JobRef, ...]


def build_cancel(refs: Sequence[JobRef]) -> Batch:
    """Return the cancellation of all refs: by id, a few hundred at once; by name where no id is known.

    Raises:
        InvalidInput: an id or key could be read as an option.
    """
    commands = _commands(refs)
    return Batch(
        operations=(
            build_ping(),
            *(
                Exec(
                    name=each.name,
                    argv=("scancel", *each.arguments),
                    env={"TZ": "UTC", "LC_ALL": "C"},
                    timeout_s=_TIMEOUT_S,
                    requires=PING,
                )
                for each in commands
            ),
        ),
        deadline_s=_TIMEOUT_S * max(1, min(4, len(commands))) + 10,
    )


def read_cancel(reply: BatchReply, refs: Sequence[JobRef]) -> Mapping[str, str]:
    """Return by submit key: "" when the request was taken, else the refusal in the scheduler's words.

    No answer is no acceptance: it is told in our own words.
    """
    return {
        ref.submit_key: _refusal(reply.replies.get(command.name), ref)
        for command in _commands(refs)
        for ref in command.refs
    }


def _commands(refs: Sequence[JobRef]) -> list[_Command]:
    with_id = [ref for ref in refs if ref.job_id is not None]
    commands: list[_Command] = []
    for number, first in enumerate(range(0, len(with_id), _IDS_PER_COMMAND)):
        some = tuple(with_id[first : first + _IDS_PER_COMMAND])
        ids = dict.fromkeys(_checked_id(ref.job_id or "") for ref in some)
        commands.append(_Command(f"cancel-ids-{number}", tuple(ids), some))
    for number, ref in enumerate(ref for ref in refs if ref.job_id is None):
        name = f"--name={checked_key(ref.submit_key)}"
        commands.append(_Command(f"cancel-name-{number}", (name,), (ref,)))
    return commands


def _refusal(answer: Reply | None, ref: JobRef) -> str:
    if answer is None or answer.skipped or answer.missing:
        return "The request was not carried out."
    if answer.timed_out or answer.rc is None:
        return "scancel gave no answer in time."
    lines = [line.strip() for line in answer.stderr.splitlines() if line.strip()]
    named = [match for match in map(_PER_JOB.search, lines) if match]
    if named and ref.job_id is not None:
        lines = [match["words"].strip() for match in named if match["id"] == ref.job_id]
    elif answer.rc == 0:
        return ""
    elif not lines:
        return f"scancel failed with exit code {answer.rc}."
    return "\n".join(line for line in lines if not _GONE.search(line))[:500]


def _checked_id(job_id: str) -> str:
    if _JOB_ID.fullmatch(job_id) is None:
        raise InvalidInput(f"no job id of Slurm: {job_id[:100]!r}", job_id=job_id[:100])
    return job_id
