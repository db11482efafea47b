"""Small probes and profiles to join."""

from datetime import UTC, datetime
from typing import Any

from federation.profile import ProfileDocument
from providers.types import GpuPool, JobState, Node, Partition, Probe, QueueJob

NOW = datetime(2027, 1, 31, 12, tzinfo=UTC)


def a_profile(**changes: Any) -> ProfileDocument:
    """Return a profile of two node kinds and two partitions."""
    given: dict[str, Any] = {
        "system": "delta",
        "name": "Delta",
        "architecture": "x86_64",
        "node_types": {
            "gpua": {"cpus": 64, "memory_mib": "256G", "gpus": 4, "gpu": "a100", "gpu_memory_mib": "40G"},
            "cn": {"cpus": 128, "memory_mib": "256G"},
        },
        "partitions": {
            "gpu": {"nodes": [{"type": "gpua", "count": 2}], "accounts": ["*-gpu"], "max_walltime_s": 7200},
            "cpu": {"nodes": [{"type": "cn", "count": 3}]},
        },
    }
    return ProfileDocument.model_validate(given | changes)


def a_node(name: str = "gpua001", *, partitions: tuple[str, ...] = ("gpu",), **changes: Any) -> Node:
    """Return an idle node with four free A100s."""
    given: dict[str, Any] = {
        "name": name,
        "partitions": partitions,
        "state": "idle",
        "usable": True,
        "cpus_total": 64,
        "cpus_free": 64,
        "memory_total_mib": 250_000,
        "memory_free_mib": 200_000,
        "gpus": (GpuPool(type="a100", total=4, used=0, free=4),),
    }
    return Node(**given | changes)


def a_job(job_id: str = "1", *, state: JobState = JobState.RUNNING, **changes: Any) -> QueueJob:
    """Return a job of alice on one GPU."""
    given: dict[str, Any] = {
        "job_id": job_id,
        "state": state,
        "state_raw": state.value.upper(),
        "user": "alice",
        "account": "x-gpu",
        "partitions": ("gpu",),
        "nodes": 1,
        "cpus": 16,
        "gpus": 1,
    }
    return QueueJob(**given | changes)


def a_partition(name: str = "gpu", **changes: Any) -> Partition:
    """Return a partition that is up, without limits."""
    return Partition(**{"name": name, "state": "up", "nodes_total": 2} | changes)


def a_probe(*nodes: Node, jobs: tuple[QueueJob, ...] = (), **changes: Any) -> Probe:
    """Return what one look saw."""
    given: dict[str, Any] = {
        "scheduler": "slurm 24.11",
        "taken_at": NOW,
        "nodes": nodes,
        "partitions": None,
        "jobs": jobs,
    }
    return Probe(**given | changes)
