"""One look at a host: one node in one partition, its GPUs by name, and the jobs of our own queue."""

from collections import Counter
from datetime import datetime

from providers.dialects.machine.answers import Gpu, ProbeAnswer, read_answer
from providers.dialects.machine.jobs import PARTITION, read_queue_job
from providers.dialects.machine.program import operation
from providers.types import Batch, BatchReply, GpuPool, Node, Partition, Probe


def build_probe(*, full: bool) -> Batch:
    """Return the probe; a full one also lets the host forget jobs that ended long ago."""
    return Batch(operations=(operation("probe", timeout_s=25, full=full),), deadline_s=30)


def read_probe(reply: BatchReply, *, now: datetime) -> Probe:
    """Return what was seen; the one partition is part of every probe.

    Raises:
        SchedulerDown: the program did not answer.
        UnparsableOutput: it printed something else.
    """
    found = read_answer(reply, "probe", ProbeAnswer)
    node = _node(found)
    return Probe(
        scheduler=f"machine ({found.kernel})",
        cluster=found.host,
        taken_at=now,
        nodes=(node,),
        partitions=(
            Partition(
                name=PARTITION,
                is_default=True,
                state="up",
                node_names=(node.name,),
                nodes_total=1,
                cpus_total=node.cpus_total,
                max_nodes=1,
            ),
        ),
        jobs=tuple(read_queue_job(job, host=found.host) for job in found.jobs),
        user=found.user,
        accounting_up=True,
        warnings=_warnings(found),
    )


def _node(found: ProbeAnswer) -> Node:
    free = max(0, found.cpus_free)
    state = "idle" if free == found.cpus else "mixed" if free else "allocated"
    return Node(
        name=found.host,
        partitions=(PARTITION,),
        state=state,
        usable=True,
        cpus_total=found.cpus,
        cpus_free=free,
        memory_total_mib=found.memory_mib,
        memory_free_mib=max(0, found.memory_free_mib),
        gpus=_pools(found.gpus or ()),
        architecture=found.architecture,
    )


def _pools(gpus: tuple[Gpu, ...]) -> tuple[GpuPool, ...]:
    whole = [gpu for gpu in gpus if not gpu.sliced]
    total = Counter(gpu.name for gpu in whole)
    free = Counter(gpu.name for gpu in whole if not gpu.taken and not gpu.in_use)
    return tuple(
        GpuPool(type=name, total=total[name], used=total[name] - free[name], free=free[name])
        for name in sorted(total)
    )


def _warnings(found: ProbeAnswer) -> tuple[str, ...]:
    """Say what the queue's own figures do not: this host also runs what is not ours."""
    said = []
    if found.gpus is None:
        said.append("nvidia-smi gave no answer; no GPU is offered")
    sliced = sum(gpu.sliced for gpu in found.gpus or ())
    if sliced:
        said.append(f"GPUs sliced by MIG are not offered: {sliced}")
    others = found.load - (found.cpus - max(0, found.cpus_free))
    if others >= found.cpus:
        said.append(f"load {found.load:.2f} on {found.cpus} CPUs: other work is running here")
    if found.memory_available_mib < found.memory_free_mib / 2:
        said.append(
            f"the kernel could give {found.memory_available_mib} MiB of memory now, "
            f"our jobs have left {found.memory_free_mib}"
        )
    return tuple(said)
