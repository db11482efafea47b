"""What the shipped program answers, as values. An unknown field or word is an error, never a guess."""

import json
from typing import Annotated, Final, Literal, TypeVar

from pydantic import Field, ValidationError

from providers.errors import SchedulerDown, UnparsableOutput
from providers.types import BatchReply, Frozen, Reply

Count = Annotated[int, Field(ge=0)]
State = Literal[
    "queued",
    "running",
    "completed",
    "failed",
    "timeout",
    "cancelled",
    "oom",
    "launch_failed",
    "rebooted",
    "stopped",
    "unwatched",
]
OPEN: Final = frozenset({"queued", "running"})


class Gpu(Frozen):
    """One NVIDIA GPU; `in_use` by whomever, `taken` by a job of ours, `sliced` by MIG."""

    uuid: str
    name: str
    memory_mib: Count | None
    in_use: bool
    sliced: bool
    taken: bool


class Job(Frozen):
    """One job of the queue. Instants are seconds since 1970."""

    number: int = Field(ge=1)
    key: str
    name: str
    user: str
    cpus: Count
    memory_mib: Count | None
    gpus: Count
    gpu_type: str | None
    walltime_s: int
    submit_at: float
    state: State
    start_at: float | None
    devices: tuple[str, ...]
    before: Count
    """Open jobs that came earlier, for a queued one."""
    end_at: float | None
    exit_code: int | None
    signal: int | None
    error: str | None
    cpu_s: float | None
    max_rss_mib: Count | None


class ProbeAnswer(Frozen):
    """What this host has, what is free, and the open jobs."""

    host: str
    kernel: str
    architecture: str
    user: str
    cpus: int = Field(ge=1)
    cpus_free: int
    memory_mib: Count
    memory_free_mib: int
    memory_available_mib: Count
    load: float
    gpus: tuple[Gpu, ...] | None
    """None: nvidia-smi is there and gave no answer."""
    jobs: tuple[Job, ...]


class SubmitAnswer(Frozen):
    """The job's number, or why there is none."""

    number: int | None = None
    created: bool | None = None
    rejected: str | None = None


class ObserveAnswer(Frozen):
    """Each job by its key; None = no such job is known."""

    jobs: dict[str, Job | None]


class CancelAnswer(Frozen):
    """The keys whose end was asked for."""

    taken: tuple[str, ...]


A = TypeVar("A", bound=Frozen)


def read_answer(reply: BatchReply, verb: str, kind: type[A]) -> A:
    """Return the answer to one verb.

    Raises:
        SchedulerDown: the program did not run, did not end in time, or could not reach its queue.
        UnparsableOutput: it printed something else.
    """
    said = reply.replies.get(verb)
    if said is None or said.skipped:
        raise SchedulerDown("the host was not asked", command=verb)
    if said.missing:
        raise SchedulerDown("python3 is not on the path of this host", command=verb)
    if said.timed_out or said.truncated or said.rc is None:
        raise SchedulerDown("the host's queue gave no whole answer in time", command=verb)
    if said.rc != 0:
        raise SchedulerDown(f"the host's queue cannot be used: {_words(said)}", command=verb)
    try:
        return kind.model_validate_json(said.stdout)
    except ValidationError as cause:
        raise UnparsableOutput(
            "the host's queue printed no answer we know", command=verb, line=said.stdout[:500]
        ) from cause


def _words(said: Reply) -> str:
    try:
        document = json.loads(said.stdout)
    except ValueError:
        document = None
    if isinstance(document, dict) and isinstance(document.get("error"), str):
        return str(document["error"])[:500]
    lines = said.stderr.strip().splitlines()
    return (lines[-1] if lines else f"exit code {said.rc}")[:500]
