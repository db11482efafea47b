"""What befalls a cluster: a node fails, a job is preempted or runs out of memory, ids start anew.

Each is one transaction; the processes of the jobs that it hits are told to end afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

from providers.sandbox.slurm.controller import stop, tick
from providers.sandbox.slurm.engine import fail_node, finish, requeue
from providers.sandbox.slurm.model import Cluster, Job
from providers.sandbox.slurm.squeue import matches
from providers.sandbox.slurm.store import Store

OUT_OF_MEMORY_SIGNAL = 125


def happen(store: Store, kind: str, subject: str, *, now: float) -> None:
    """Let an event happen to a node or job, and let the scheduler react.

    Args:
        store: the cluster.
        kind: one of KINDS.
        subject: a node name, a job id, or the first id to give out again.
        now: epoch seconds.

    Raises:
        LookupError: there is no such node or running job.
    """
    with store.change(now) as cluster:
        hit = KINDS[kind](cluster, subject, int(now))
    for job in hit:
        stop(store.directory, job)
    tick(store, now)


def _running(cluster: Cluster, subject: str) -> Job:
    for job in cluster.jobs:
        if job.state == "RUNNING" and matches(job, [subject]):
            return job
    message = f"job {subject} is not running"
    raise LookupError(message)


def _node_fail(cluster: Cluster, subject: str, now: int) -> list[Job]:
    if subject not in cluster.nodes:
        message = f"no node {subject}"
        raise LookupError(message)
    before = {
        job.key: Job(**job.packed())
        for job in cluster.jobs
        if job.state == "RUNNING" and subject in job.alloc and not job.background
    }
    fail_node(cluster, cluster.nodes[subject], now)
    return list(before.values())


def _node_resume(cluster: Cluster, subject: str, now: int) -> list[Job]:
    node = cluster.nodes[subject]
    node.flags, node.reason, node.reason_at, node.boot = [], "", 0, now
    cluster.nodes_changed = True
    return []


def _preempt(cluster: Cluster, subject: str, now: int) -> list[Job]:
    job = _running(cluster, subject)
    before = Job(**job.packed())
    if job.requeue:
        requeue(cluster, job, "PREEMPTED", now)
    else:
        finish(cluster, job, "PREEMPTED", now, completing=not job.background)
    return [before]


def _out_of_memory(cluster: Cluster, subject: str, now: int) -> list[Job]:
    job = _running(cluster, subject)
    job.exit_signal, job.reason = OUT_OF_MEMORY_SIGNAL, "OutOfMemory"
    finish(cluster, job, "OUT_OF_MEMORY", now, completing=not job.background)
    return [job]


def _recycle_ids(cluster: Cluster, subject: str, now: int) -> list[Job]:  # noqa: ARG001 - one shape for all
    cluster.next_id = int(subject)
    return []


KINDS: dict[str, Callable[[Cluster, str, int], list[Job]]] = {
    "node-fail": _node_fail,
    "node-resume": _node_resume,
    "preempt": _preempt,
    "oom": _out_of_memory,
    "recycle-ids": _recycle_ids,
}
