"""Partitions as Slurm shows them: limits, who may use them, what a job gets by default.

Source: scontrol(1) show partition, slurm.conf(5) PARTITION CONFIGURATION, data_parser v0.0.39 to v0.0.44.
"""

from typing import Final

from providers.dialects.slurm.hostlist import expand
from providers.dialects.slurm.records import (
    Record,
    reading,
    split_records,
)
from providers.dialects.slurm.units import (
    NOTHING,
    finite,
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
