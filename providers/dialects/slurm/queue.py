"""The queue as anybody may see it: one QueueJob per record, arrays left compact.

No text that a user chose is asked for here (names, comments): it could hold our separators.

Source: squeue(1) -O, versions 20.11 to 25.11, data_parser v0.0.38 to v0.0.44.
"""

from functools import lru_cache
from typing import Final

from providers.dialects.slurm.gres import Gres, read_gres, read_mig, read_tres, tres_gpus
from providers.dialects.slurm.hostlist import JobId, expand, read_job_id
from providers.dialects.slurm.reasons import ReasonKind, explain_reason
from providers.dialects.slurm.records import (
    not_understood,
)
from providers.dialects.slurm.units import (
    NOTHING,
    finite,
    read_instant,
    read_least_count,
    read_limit_s,
    read_maximum,
    read_words,
)
from providers.dialects.slurm.words import read_state
from providers.errors import UnparsableOutput
from providers.types import JobState, QueueJob

FIELD_END: Final = "\x1f"
RECORD_END: Final = "\x1e"
COLUMNS: Final = (
    "JobArrayID",
    "PriorityLong",
    "SubmitTime",
    "StartTime",
    "NodeList",
    "State",
    "UserName",
    "Account",
    "Partition",
    "QOS",
    "NumNodes",
    "NumCPUs",
    "tres-alloc",
    "tres-per-node",
    "tres-per-job",
    "TimeLimit",
    "Reason",
)
"""Fields of `squeue -O`, spelled alike in all versions: first those of one job alone, then those that
thousands of jobs share; the reason last, because it can be a sentence."""
_OWN: Final = 5
"""How many columns are a job's own."""

SHOW_QUEUE: Final = (
    "squeue",
    "-a",
    "-h",
    "-O",
    ",".join(f"{name}:{FIELD_END}" for name in COLUMNS[:-1]) + f",{COLUMNS[-1]}:{RECORD_END}",
)
_COMMAND: Final = "squeue -a -h -O"


_COMPETING: Final = frozenset(
    {ReasonKind.NONE, ReasonKind.PRIORITY, ReasonKind.RESOURCES, ReasonKind.SCHEDULER}
)
"""What a job waits for that may start as soon as there is room."""


@lru_cache(maxsize=512)
def queue_state(raw: str, reason: str) -> JobState:
    """Return the canonical state of a queue record; several words of JSON are joined by "+"."""
    return read_state(raw.split("+"), reason=reason.partition(",")[0])  # "JobHeldUser,Resources"


@lru_cache(maxsize=512)
def is_eligible(state: JobState, reason: str) -> bool:
    """Return whether the job competes for resources now; True for one that is past waiting.

    Held, dependent, begin-time and limited jobs do not; nor one whose reason is not known here.
    """
    if state is JobState.HELD:
        return False
    if state is not JobState.QUEUED:
        return True
    return explain_reason(reason).kind in _COMPETING


@lru_cache(maxsize=4096)
def job_gpus(tres: str, per_node: str, per_job: str, nodes: int) -> tuple[int, str | None, int | None]:
    """Return (whole GPUs, their type, memory in MiB) of a job, from its TRES and its requests.

    MIG slices hide in the total gres/gpu of a TRES string and are taken out again. Where gres/gpu is
    not tracked, the requests alone tell.

    Raises:
        UnparsableOutput: a part is not understood.
    """
    numbers = read_tres(tres)
    on_node, on_job = _gpu_entries(per_node), _gpu_entries(per_job)
    requested = max(sum(e.count for e in on_node) * nodes, sum(e.count for e in on_job))
    mig = max(
        sum(e.count for e in on_node if e.type and read_mig(e.type)) * nodes,
        sum(e.count for e in on_job if e.type and read_mig(e.type)),
    )
    total, kind = tres_gpus(numbers)
    whole = max(0, (total if "gres/gpu" in numbers else requested) - mig)
    if whole and kind is None:
        kinds = {e.type for e in (*on_node, *on_job) if e.type and not read_mig(e.type)}
        kind = kinds.pop() if len(kinds) == 1 else None
    return whole, kind if whole else None, numbers.get("mem")


def _gpu_entries(text: str) -> tuple[Gres, ...]:
    return tuple(entry for entry in read_gres(text) if entry.name == "gpu")


def read_queue(text: str) -> tuple[QueueJob, ...]:
    """Return the jobs that `squeue` printed with `SHOW_QUEUE`; () for an empty queue.

    Raises:
        UnparsableOutput: a record is not understood or was cut; one field more or less means that this
            squeue does not know a column.
    """
    *records, rest = text.split(RECORD_END + "\n")
    if rest.strip():
        raise UnparsableOutput(f"{_COMMAND} ends in a cut record", command=_COMMAND, line=rest[:500])
    jobs: list[QueueJob] = []
    alike: dict[str, QueueJob] = {}
    for record in records:
        try:
            jobs.append(_job(record.split(FIELD_END, _OWN), alike))
        except UnparsableOutput as cause:
            raise not_understood(cause, command=_COMMAND, line=record) from cause
    return tuple(jobs)


def _job(cells: list[str], alike: dict[str, QueueJob]) -> QueueJob:
    """Return one job: a copy of the first one that shares its columns, which thousands of jobs do.

    Copying is cheaper than validating again values that this module has made.
    """
    *own_cells, shared = cells
    pattern = alike.get(shared)
    if pattern is None:
        pattern = alike[shared] = _shared_part([*own_cells, *shared.split(FIELD_END)])
    identity, priority, submitted, started, names = own_cells
    own: dict[str, object] = {
        "priority": read_maximum(priority),
        "submit_at": read_instant(submitted),
        "start_at": read_instant(started),
        "node_names": expand(names) if names else (),
    }
    if identity.isascii() and identity.isdigit():
        own["job_id"] = identity
    else:
        job = read_job_id(identity)
        own["job_id"] = _job_id(job)
        own["array_pending"] = _stands_for(job)
        own["array_throttle"] = job.throttle
    return pattern.model_copy(update=own)


def _shared_part(cells: list[str]) -> QueueJob:
    if len(cells) != len(COLUMNS):
        raise UnparsableOutput(f"{len(cells)} fields for {len(COLUMNS)} columns", field="columns")
    raw, user, account, partitions, qos, nodes, cpus, tres, per_node, per_job, limit, reason = cells[_OWN:]
    count = read_least_count(nodes)
    gpus, kind, memory = job_gpus(tres, per_node, per_job, count)
    state = queue_state(_state_word(raw), reason)
    return QueueJob(
        job_id="",
        state=state,
        state_raw=raw,
        user=_or_none(user),
        account=_or_none(account),
        partitions=read_words(partitions),
        qos=_or_none(qos),
        reason="" if reason in NOTHING else reason,
        nodes=count,
        cpus=read_least_count(cpus),
        memory_mib=memory,
        gpus=gpus,
        gpu_type=kind,
        walltime_s=finite(read_limit_s(limit)),
        is_eligible=is_eligible(state, reason),
    )


def _state_word(raw: str) -> str:
    if not raw or not raw.replace("_", "").isalpha() or not raw.isascii() or not raw.isupper():
        raise UnparsableOutput(f"{raw[:80]!r} is no job state", field="state", text=raw[:200])
    return raw


def _job_id(job: JobId) -> str:
    if job.task is not None:
        return f"{job.job}_{job.task}"
    return f"{job.job}+{job.offset}" if job.offset is not None else str(job.job)


def _stands_for(job: JobId) -> int:
    if job.is_array_rest and job.tasks is None:
        raise UnparsableOutput("a list of array tasks was cut", field="job_id")
    return job.tasks if job.is_array_rest and job.tasks is not None else 1


def _or_none(word: str) -> str | None:
    return None if word in NOTHING else word
