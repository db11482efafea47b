"""Partitions as Slurm shows them: limits, who may use them, what a job gets by default.

Source: scontrol(1) show partition, slurm.conf(5) PARTITION CONFIGURATION, data_parser v0.0.39 to v0.0.44.
"""

from collections.abc import Mapping
from typing import Final

from providers.dialects.slurm.hostlist import expand
from providers.dialects.slurm.records import (
    Record,
    json_at,
    json_list,
    json_text,
    open_json,
    reading,
    split_records,
)
from providers.dialects.slurm.units import (
    NOTHING,
    finite,
    json_count,
    json_minutes_s,
    json_number,
    read_count,
    read_limit_s,
    read_maximum,
    read_memory_mib,
    read_words,
)
from providers.errors import UnparsableOutput
from providers.types import Partition

SHOW_PARTITIONS: Final = ("scontrol", "-a", "-o", "show", "partition")
_COMMAND: Final = " ".join(SHOW_PARTITIONS)
_JSON_COMMAND: Final = "show partition --json"
_STATES: Final = frozenset({"up", "down", "drain", "inactive"})
_YES_NO: Final = {"YES": True, "NO": False}


def read_partitions(text: str) -> tuple[Partition, ...]:
    """Return the partitions of `scontrol -a [-o] show partition`, as printed.

    Raises:
        UnparsableOutput: a record is not understood, or there is none.
    """
    found: list[Partition] = []
    for record in split_records(text, first_key="PartitionName", command=_COMMAND):
        with reading(_COMMAND, record.line):
            found.append(_partition(record))
    if not found:
        raise UnparsableOutput(f"{_COMMAND} printed no partition", command=_COMMAND, line="")
    return tuple(found)


def _partition(record: Record) -> Partition:
    defaults = _assignments(record.get("JobDefaults"))
    return Partition(
        name=record.need("PartitionName"),
        is_default=_flag(record.get("Default", "NO")),
        is_hidden=_flag(record.get("Hidden", "NO")),
        state=_state(record.need("State")),
        node_names=expand(record.get("Nodes")),
        nodes_total=read_count(record.need("TotalNodes")),
        cpus_total=read_count(record.need("TotalCPUs")),
        max_walltime_s=finite(read_limit_s(record.need("MaxTime"))),
        default_walltime_s=finite(read_limit_s(record.get("DefaultTime", "NONE"))),
        max_nodes=read_maximum(record.need("MaxNodes")),
        min_nodes=read_maximum(record.get("MinNodes", "0")) or 0,
        max_cpus_per_node=read_maximum(record.get("MaxCPUsPerNode", "UNLIMITED")),
        allow_accounts=_allowed(record.get("AllowAccounts", "ALL")),
        deny_accounts=read_words(record.get("DenyAccounts")),
        allow_groups=_allowed(record.get("AllowGroups", "ALL")),
        allow_qos=_allowed(record.get("AllowQos", "ALL")),
        deny_qos=read_words(record.get("DenyQos")),
        qos=_or_none(record.get("QoS")),
        exclusive=record.get("OverSubscribe").startswith("EXCLUSIVE"),
        root_only=_flag(record.get("RootOnly", "NO")),
        requires_reservation=_flag(record.get("ReqResv", "NO")),
        priority_tier=read_maximum(record.get("PriorityTier")),
        job_factor=read_maximum(record.get("PriorityJobFactor")),
        preempt_mode=_or_none(record.get("PreemptMode")),
        def_mem_per_cpu_mib=_memory(record.get("DefMemPerCPU")),
        def_mem_per_node_mib=_memory(record.get("DefMemPerNode")),
        def_mem_per_gpu_mib=_memory(defaults.get("DefMemPerGPU", "")),
        def_cpus_per_gpu=read_maximum(defaults.get("DefCpuPerGPU", "")),
        billing_weights=_assignments(record.get("TRESBillingWeights")),
    )


def _flag(word: str) -> bool:
    try:
        return _YES_NO[word]
    except KeyError:
        raise UnparsableOutput(f"{word!r} is neither YES nor NO", field="flag", text=word[:200]) from None


def _state(word: str) -> str:
    state = word.casefold()
    if state not in _STATES:
        raise UnparsableOutput(f"{word!r} is no partition state", field="State", text=word[:200])
    return state


def _allowed(text: str) -> tuple[str, ...] | None:
    return None if text == "ALL" or text in NOTHING else read_words(text)


def _or_none(word: str) -> str | None:
    return None if word in NOTHING else word


def _memory(text: str) -> int | None:
    """Return MiB, or None for no default (UNLIMITED, 0 or absent)."""
    if text in NOTHING or text == "UNLIMITED":
        return None
    return read_memory_mib(text) or None


def _assignments(text: str) -> dict[str, str]:
    """Return "a=1,b=2" by key."""
    if text in NOTHING:
        return {}
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(mark and key for key, mark, _ in pairs):
        raise UnparsableOutput(f"{text[:80]!r} is no list of assignments", field="list", text=text[:200])
    return {key: value for key, _, value in pairs}


# --- JSON -----------------------------------------------------------------------------------------


def read_partitions_json(text: str) -> tuple[Partition, ...]:
    """Return the partitions of `scontrol show partition --json` or of `sinfo --json` (both 23.02 and later).

    These documents do not say which partition is the default or hidden, nor root-only ones.

    Raises:
        SchedulerDown: the document reports errors.
        UnparsableOutput: a partition is not understood, or there is none.
    """
    document = open_json(text, command=_JSON_COMMAND)
    if "sinfo" in document:
        groups = json_list(document, "sinfo", command="sinfo --json")
        rows = [row for row in (group.get("partition") for group in groups) if isinstance(row, dict)]
    else:
        rows = [dict(row) for row in json_list(document, "partitions", command=_JSON_COMMAND)]
    found: dict[str, Partition] = {}
    for row in rows:
        with reading(_JSON_COMMAND, repr(row)):
            partition = _partition_json(row)
            found.setdefault(partition.name, partition)
    if not found:
        raise UnparsableOutput(f"{_JSON_COMMAND} printed no partition", command=_JSON_COMMAND, line="")
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
