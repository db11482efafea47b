"""What an ordinary user sees of a simulated system: a probe, as the Slurm dialect would have read it.

Nothing here tells true runtimes or future arrivals. From the probe on, everything is the product's own path:
`federation.merge.prepare` and `federation.records.records`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from benchmarks.simulator.cluster import OWN_FAIRSHARE, OWN_USER, PartitionWorld
from benchmarks.simulator.shapes import PartitionShape, SystemShape
from benchmarks.simulator.state import Entry, Run
from benchmarks.simulator.workload import Job
from federation.merge import prepare
from federation.profile import NodeCount, NodeType, PartitionProfile, ProfileDocument
from federation.records import records
from federation.types import Access, Credit, Health, ResourceRecord, Standing
from providers.types import Association, GpuPool, JobState, Node, Partition, Probe, QueueJob

EPOCH = datetime(2026, 3, 2, 0, 0, tzinfo=UTC)
ACCOUNT = "facet"


def instant(at_s: int) -> datetime:
    """Return a simulated time as an instant."""
    return EPOCH + timedelta(seconds=at_s)


def profile_of(system: SystemShape) -> ProfileDocument:
    """Return the profile an administrator would write: node types, and limits per user."""
    return ProfileDocument(
        system=system.name,
        name=system.name,
        dialect="slurm",
        architecture=system.architecture,
        only_listed_partitions=True,
        node_types={part.name: _node_type(part) for part in system.partitions},
        partitions={
            part.name: PartitionProfile(
                nodes=(NodeCount(type=part.name, count=part.nodes),),
                max_running_jobs=part.max_running_per_user,
                max_gpus_per_user=part.max_gpus_per_user,
                exclusive=part.is_exclusive,
            )
            for part in system.partitions
        },
    )


def _node_type(part: PartitionShape) -> NodeType:
    return NodeType(
        cpus=part.cpus,
        memory_mib=part.memory_mib,
        gpus=part.gpus,
        gpu=part.gpu_type,
        gpu_memory_mib=part.gpu_memory_mib,
    )


def records_of(
    system: SystemShape, worlds: Mapping[str, PartitionWorld], *, now_s: int
) -> tuple[ResourceRecord, ...]:
    """Return one user's records of a system, seen this instant; `worlds` are its partitions by name."""
    probe = probe_of(system, worlds, now_s=now_s)
    weight = worlds[system.partitions[0].name].setup.fairshare_weight
    mine = Association(
        account=ACCOUNT,
        user=OWN_USER,
        fairshare=OWN_FAIRSHARE,
        priority_points=int(weight * OWN_FAIRSHARE),
    )
    prepared = prepare(profile_of(system), probe, probe.partitions)
    access = Access(
        is_connected=True,
        remote_user=OWN_USER,
        associations=(mine,),
        credits={ACCOUNT: Credit(unit="SU", granted=None, left=None)},
    )
    standing = Standing(
        health=Health.ONLINE, snapshot_id=f"{system.name}-{now_s}", observed_at=instant(now_s)
    )
    return records(prepared, access, standing)


def probe_of(system: SystemShape, worlds: Mapping[str, PartitionWorld], *, now_s: int) -> Probe:
    """Return what one probe of a system finds."""
    nodes: list[Node] = []
    jobs: list[QueueJob] = []
    for part in system.partitions:
        world = worlds[part.name]
        nodes += [_node(part, world, number) for number in range(part.nodes)]
        jobs += [_running(part, run, number) for number, run in world.running.items()]
        jobs += [_waiting(part, world, entry) for entry in world.queue]
    return Probe(
        scheduler="simulated",
        cluster=system.name,
        taken_at=instant(now_s),
        nodes=tuple(nodes),
        partitions=tuple(_partition(part) for part in system.partitions),
        jobs=tuple(jobs),
        user=OWN_USER,
    )


def node_name(part: PartitionShape, number: int) -> str:
    """Return the name of a node."""
    return f"{part.name}-{number:04}"


def _partition(part: PartitionShape) -> Partition:
    return Partition(
        name=part.name,
        state="up",
        node_names=tuple(node_name(part, number) for number in range(part.nodes)),
        nodes_total=part.nodes,
        max_walltime_s=part.max_walltime_s,
        exclusive=part.is_exclusive,
    )


def _node(part: PartitionShape, world: PartitionWorld, number: int) -> Node:
    cpus, memory_mib, gpus, is_down = world.free_on(number)
    is_idle = cpus == part.cpus and gpus == part.gpus
    state = "idle" if is_idle else "allocated" if cpus == 0 else "mixed"
    pools: tuple[GpuPool, ...] = ()
    if part.gpus:
        free = 0 if is_down else gpus
        pools = (GpuPool(type=part.gpu_type, total=part.gpus, used=part.gpus - gpus, free=free),)
    return Node(
        name=node_name(part, number),
        partitions=(part.name,),
        state=state,
        flags=frozenset({"DRAIN"}) if is_down else frozenset(),
        usable=not is_down,
        cpus_total=part.cpus,
        cpus_free=0 if is_down else cpus,
        memory_total_mib=part.memory_mib,
        memory_free_mib=0 if is_down else memory_mib,
        gpus=pools,
    )


def _running(part: PartitionShape, run: Run, number: int) -> QueueJob:
    return _job(
        part,
        run.job,
        f"{part.name}-r{number}",
        state=JobState.RUNNING,
        state_raw="RUNNING",
        cpus=run.ask.cpus * run.ask.nodes,
        memory_mib=run.ask.memory_mib * run.ask.nodes,
        gpus=run.ask.gpus * run.ask.nodes,
        start_at=instant(run.start_s),
        node_names=tuple(node_name(part, node) for node in run.nodes),
    )


def _waiting(part: PartitionShape, world: PartitionWorld, entry: Entry) -> QueueJob:
    eligible = world.is_eligible(entry)
    return _job(
        part,
        entry.job,
        f"{part.name}-j{entry.job.number}",
        state=JobState.QUEUED,
        state_raw="PENDING",
        reason=world.reason_of(entry),
        cpus=entry.job.cpus * entry.job.nodes,
        memory_mib=entry.job.memory_mib * entry.job.nodes,
        gpus=entry.job.gpus * entry.job.nodes,
        priority=entry.priority,
        is_eligible=eligible,
        array_pending=entry.left,
        array_throttle=entry.job.throttle,
    )


def _job(part: PartitionShape, job: Job, job_id: str, **seen: object) -> QueueJob:
    return QueueJob.model_validate(
        {
            "job_id": job_id,
            "user": job.user,
            "account": "other",
            "partitions": (part.name,),
            "nodes": job.nodes,
            "gpu_type": part.gpu_type if job.gpus else None,
            "walltime_s": job.limit_s,
            "submit_at": instant(job.submit_s),
        }
        | seen
    )
