"""What Slurm prints as JSON, read into the same values: the recordings' second witness of every text reader.

The product reads text only (`squeue --json` of a busy site takes seconds and megabytes). Recordings hold both
forms of one instant, from many versions, and some hold JSON alone.

Source: data_parser v0.0.38 to v0.0.44.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from providers.dialects.slurm.gres import NodeGres, read_gres
from providers.dialects.slurm.hostlist import expand, read_tasks
from providers.dialects.slurm.nodes import _held_tres, _node, _Seen, read_state
from providers.dialects.slurm.nodes import _or_none as _node_word
from providers.dialects.slurm.partitions import _assignments, _memory, _state
from providers.dialects.slurm.queue import _state_word, is_eligible, job_gpus, queue_state
from providers.dialects.slurm.records import reading
from providers.dialects.slurm.units import (
    _INFINITE,
    _NO_VAL,
    _PLACEHOLDER_S,
    NOTHING,
    UNLIMITED,
    Limit,
    finite,
    read_maximum,
    read_words,
)
from providers.dialects.slurm.words import TERMINAL
from providers.errors import SchedulerDown, UnparsableOutput
from providers.types import Node, Partition, QueueJob

_NODES: Final = "show node --json"
_PARTITIONS: Final = "show partition --json"
_QUEUE: Final = "squeue --json"
_NOBODY: Final[Mapping[str, int]] = MappingProxyType({})


def open_json(text: str, *, command: str) -> Mapping[str, object]:
    """Return the JSON object that a program printed; a login banner before it is passed over.

    Raises:
        SchedulerDown: `errors` is not empty; clients exit 0 even when the controller is dead.
        UnparsableOutput: there is no whole object.
    """
    at = re.search(r"^\{", text, re.MULTILINE)
    try:
        found = json.loads(text[at.start() :]) if at else None
    except (ValueError, RecursionError) as cause:
        raise UnparsableOutput(f"{command} printed broken JSON", command=command, line=text[:200]) from cause
    if not isinstance(found, dict):
        raise UnparsableOutput(f"{command} printed no JSON", command=command, line=text[:200])
    if found.get("errors"):
        raise SchedulerDown(
            f"{command} reports errors", command=command, said=json.dumps(found["errors"])[:500]
        )
    return found


def json_list(document: Mapping[str, object], key: str, *, command: str) -> list[Mapping[str, object]]:
    """Return a list of objects from a document.

    Raises:
        UnparsableOutput: there is none.
    """
    rows = document.get(key)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UnparsableOutput(f"{command} printed no list {key!r}", command=command, line=key)
    return rows


def json_text(value: object) -> str:
    """Return a JSON string; "" for null.

    Raises:
        UnparsableOutput: it is something else.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise UnparsableOutput("this JSON value is no text", field="text", text=repr(value)[:200])


def json_at(value: object, *path: str) -> object:
    """Return the member of nested JSON objects, or None where a step is missing."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def data_parser(document: Mapping[str, object]) -> str:
    """Return the version of the document's schema: "v0.0.38" (22.05) to "v0.0.44"; "" when not said."""
    plugin = json_at(document, "meta", "plugin")
    named = json_at(plugin, "data_parser") or json_at(plugin, "type")
    return named.rpartition("/")[2].partition("+")[0] if isinstance(named, str) else ""


def json_number(value: object) -> Limit:
    """Return a JSON number of any data_parser version: plain, null, or {set, infinite, number}.

    "Infinity" is what the complex flag prints; NO_VAL and INFINITE of old versions are large integers.

    Raises:
        UnparsableOutput: it is none of these.
    """
    match value:
        case "Infinity" | {"infinite": True}:
            return UNLIMITED
        case None | "" | {"set": False}:
            return None
        case {"set": True, "number": number}:
            return json_number(number)
        case int() | float() if not isinstance(value, bool) and value >= 0:
            if value in _INFINITE or value == float("inf"):
                return UNLIMITED
            return None if value in _NO_VAL else int(value)
    raise UnparsableOutput("this JSON value is no number", field="number", text=repr(value)[:200])


def json_count(value: object, *, default: int = 0) -> int:
    """Return a JSON count; `default` when it is not set.

    Raises:
        UnparsableOutput: it is infinite or no number.
    """
    number = json_number(value)
    if number == UNLIMITED:
        raise UnparsableOutput("a count cannot be infinite", field="count", text=repr(value)[:200])
    return default if number is None else number


def json_instant(value: object) -> datetime | None:
    """Return a JSON epoch as aware UTC; None when not set (0 included) or infinite.

    Raises:
        UnparsableOutput: it is no number.
    """
    seconds = json_number(value)
    if seconds in (None, 0) or seconds == UNLIMITED:
        return None
    try:
        return datetime.fromtimestamp(seconds, tz=UTC)
    except (OverflowError, ValueError, OSError) as cause:
        raise UnparsableOutput(
            "this epoch is out of range", field="instant", text=repr(value)[:200]
        ) from cause


def json_minutes_s(value: object) -> Limit:
    """Return a JSON limit in minutes as seconds, UNLIMITED, or None when not set.

    Raises:
        UnparsableOutput: it is no number.
    """
    minutes = json_number(value)
    if minutes is None or minutes == UNLIMITED:
        return minutes
    return UNLIMITED if minutes * 60 == _PLACEHOLDER_S else minutes * 60


def read_nodes_json(text: str, *, partly_reserved: Mapping[str, int] = _NOBODY) -> tuple[Node, ...]:
    """Return the nodes of `scontrol show node --json` (23.02 and later) or `sinfo --json` (21.08, 22.05).

    `sinfo --json` of later versions prints groups of nodes, from which single nodes cannot be told.

    Raises:
        SchedulerDown: the document reports errors.
        UnparsableOutput: a node is not understood, or there is none.
    """
    rows = json_list(open_json(text, command=_NODES), "nodes", command=_NODES)
    nodes: list[Node] = []
    for row in rows:
        with reading(_NODES, repr(row)):
            seen = _seen_json(row)
            nodes.append(_node(seen, reserved_cores=partly_reserved.get(seen.name)))
    if not nodes:
        raise UnparsableOutput(f"{_NODES} printed no node", command=_NODES, line="")
    return tuple(nodes)


def _seen_json(row: Mapping[str, object]) -> _Seen:
    name = json_text(row.get("name"))
    state = "+".join((*read_words(row.get("state")), *read_words(row.get("state_flags"))))
    if not name:
        raise UnparsableOutput("a node has no name", field="name")
    return _Seen(
        name=name,
        partitions=read_words(row.get("partitions")),
        state=read_state(state),
        cpus_total=json_count(row.get("effective_cpus")) or _required(row, "cpus"),
        cpus_allocated=_required(row, "alloc_cpus"),
        threads_per_core=json_count(row.get("threads"), default=1),
        memory_mib=_required(row, "real_memory"),
        memory_allocated_mib=_required(row, "alloc_memory"),
        gres=NodeGres(
            configured=read_gres(json_text(row.get("gres"))),
            used=read_gres(json_text(row.get("gres_used"))),
            allocated=_held_tres(json_text(row.get("tres_used")), _required(row, "alloc_cpus")),
        ),
        features=read_words(row.get("active_features")) or read_words(row.get("features")),
        architecture=_node_word(json_text(row.get("architecture"))),
        reason=json_text(row.get("reason")),
    )


def _required(row: Mapping[str, object], key: str) -> int:
    if key not in row:
        raise UnparsableOutput(f"a node has no {key}", field=key)
    return json_count(row[key])


def read_partitions_json(text: str) -> tuple[Partition, ...]:
    """Return the partitions of `scontrol show partition --json` or of `sinfo --json` (both 23.02 and later).

    These documents do not say which partition is the default or hidden, nor root-only ones.

    Raises:
        SchedulerDown: the document reports errors.
        UnparsableOutput: a partition is not understood, or there is none.
    """
    document = open_json(text, command=_PARTITIONS)
    if "sinfo" in document:
        groups = json_list(document, "sinfo", command="sinfo --json")
        rows = [row for row in (group.get("partition") for group in groups) if isinstance(row, dict)]
    else:
        rows = [dict(row) for row in json_list(document, "partitions", command=_PARTITIONS)]
    found: dict[str, Partition] = {}
    for row in rows:
        with reading(_PARTITIONS, repr(row)):
            partition = _partition_json(row)
            found.setdefault(partition.name, partition)
    if not found:
        raise UnparsableOutput(f"{_PARTITIONS} printed no partition", command=_PARTITIONS, line="")
    return tuple(found.values())


def _partition_json(row: Mapping[str, object]) -> Partition:
    name = json_text(row.get("name"))
    states = read_words(json_at(row, "partition", "state"))
    if not name or not states:
        raise UnparsableOutput("a partition has no name or no state", field="name")
    job_defaults = _assignments(json_text(json_at(row, "defaults", "job")))
    return Partition(
        name=name,
        state=_state(states[0]),
        node_names=expand(json_text(json_at(row, "nodes", "configured"))),
        nodes_total=json_count(json_at(row, "nodes", "total")),
        cpus_total=json_count(json_at(row, "cpus", "total")),
        max_walltime_s=finite(json_minutes_s(json_at(row, "maximums", "time"))),
        default_walltime_s=finite(json_minutes_s(json_at(row, "defaults", "time"))),
        max_nodes=finite(json_number(json_at(row, "maximums", "nodes"))),
        min_nodes=json_count(json_at(row, "minimums", "nodes")),
        max_cpus_per_node=finite(json_number(json_at(row, "maximums", "cpus_per_node"))),
        allow_accounts=_allowed_json(row, "accounts"),
        deny_accounts=read_words(json_at(row, "accounts", "deny")),
        allow_groups=_allowed_json(row, "groups"),
        allow_qos=_allowed_json(row, "qos"),
        deny_qos=read_words(json_at(row, "qos", "deny")),
        qos=json_text(json_at(row, "qos", "assigned")) or None,
        exclusive=json_number(json_at(row, "maximums", "shares")) == 0,
        priority_tier=finite(json_number(json_at(row, "priority", "tier"))),
        job_factor=finite(json_number(json_at(row, "priority", "job_factor"))),
        def_mem_per_cpu_mib=_memory_json(row, "partition_memory_per_cpu"),
        def_mem_per_node_mib=_memory_json(row, "partition_memory_per_node"),
        def_mem_per_gpu_mib=_memory(job_defaults.get("DefMemPerGPU", "")),
        def_cpus_per_gpu=read_maximum(job_defaults.get("DefCpuPerGPU", "")),
        billing_weights=_assignments(json_text(json_at(row, "tres", "billing_weights"))),
    )


def _allowed_json(row: Mapping[str, object], key: str) -> tuple[str, ...] | None:
    words = read_words(json_at(row, key, "allowed"))
    return None if not words or words == ("ALL",) else words


def _memory_json(row: Mapping[str, object], key: str) -> int | None:
    return finite(json_number(json_at(row, "defaults", key))) or None


def read_queue_json(text: str) -> tuple[QueueJob, ...]:
    """Return the jobs in the queue from `squeue --json` or `scontrol show job --json`.

    These documents hold every job in the controller's memory; finished ones are left out.

    Raises:
        SchedulerDown: the document reports errors.
        UnparsableOutput: a job is not understood.
    """
    document = open_json(text, command=_QUEUE)
    jobs: list[QueueJob] = []
    for row in json_list(document, "jobs", command=_QUEUE):
        with reading(_QUEUE, repr(row)):
            job = _job_json(row)
        if job.state not in TERMINAL:
            jobs.append(job)
    return tuple(jobs)


def _job_json(row: Mapping[str, object]) -> QueueJob:
    raw = _json_state(row.get("job_state"))
    reason = json_text(row.get("state_description")) or json_text(row.get("state_reason"))
    state = queue_state(raw, reason)
    nodes = json_count(row.get("node_count"))
    identity, stands_for, throttle = _json_identity(row)
    gpus, kind, memory = job_gpus(
        json_text(row.get("tres_alloc_str")) or json_text(row.get("tres_req_str")),
        json_text(row.get("tres_per_node")),
        json_text(row.get("tres_per_job")),
        nodes,
    )
    return QueueJob(
        job_id=identity,
        state=state,
        state_raw=raw,
        user=json_text(row.get("user_name")) or None,
        account=json_text(row.get("account")) or None,
        partitions=read_words(row.get("partition")),
        qos=json_text(row.get("qos")) or None,
        reason="" if reason in NOTHING else reason,
        priority=finite(json_number(row.get("priority"))),
        nodes=nodes,
        cpus=json_count(row.get("cpus")),
        memory_mib=memory,
        gpus=gpus,
        gpu_type=kind,
        walltime_s=finite(json_minutes_s(row.get("time_limit"))),
        submit_at=json_instant(row.get("submit_time")),
        start_at=json_instant(row.get("start_time")),
        node_names=expand(json_nodes(row)),
        is_eligible=is_eligible(state, reason),
        array_pending=stands_for,
        array_throttle=throttle,
        name=json_text(row.get("name")),
        comment=json_text(row.get("comment")),
    )


def json_nodes(row: Mapping[str, object]) -> str:
    """Return a job's host list; job_resources.nodes is a string (to 23.11) or an object (24.05 and later)."""
    if "nodes" in row:
        return json_text(row["nodes"])
    nested = json_at(row, "job_resources", "nodes")
    return json_text(json_at(nested, "list") if isinstance(nested, dict) else nested)


def _json_state(value: object) -> str:
    words = read_words(value)
    if not words:
        raise UnparsableOutput("a job has no state", field="job_state", text=repr(value)[:200])
    return "+".join(map(_state_word, words))


def _json_identity(row: Mapping[str, object]) -> tuple[str, int, int | None]:
    """Return (job id, tasks it stands for, throttle). Array id 0 means no array; task 0 is a task."""
    number = json_count(row.get("job_id"))
    array, tasks = json_count(row.get("array_job_id")), json_text(row.get("array_task_string"))
    if not number:
        raise UnparsableOutput("a job has no id", field="job_id")
    if array and tasks:
        ranges, throttle = read_tasks(tasks)
        return str(array), sum(map(len, ranges)), throttle
    task = json_number(row.get("array_task_id"))
    if array and task is not None:
        return f"{array}_{task}", 1, None
    het = json_count(row.get("het_job_id"))
    if het:
        return f"{het}+{json_count(row.get('het_job_offset'))}", 1, None
    return str(number), 1, None
