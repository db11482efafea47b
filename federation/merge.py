"""Joining profile, probe and one user's access into records of the Global Resource View. Pure.

Two stages: `prepare` does what is the same for every user once per snapshot; `records` adds one user's access.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from math import ceil

from federation.profile import NodeType, PartitionProfile, ProfileDocument
from federation.types import (
    Access,
    Health,
    Maintenance,
    NodeView,
    PartitionQueue,
    PendingShare,
    ResourceRecord,
    RunningShare,
    Standing,
    UserLimits,
)
from providers.gpus import canonical_gpu, known_memory_mib
from providers.types import Association, GpuPool, JobState, Limits, Node, Partition, Probe, Qos, QueueJob

_DOWN_STATES = frozenset({"down", "error", "unknown", "future", "fail"})
_DOWN_FLAGS = frozenset(
    {"DRAIN", "FAIL", "INVALID_REG", "NOT_RESPONDING", "MAINTENANCE", "REBOOT_ISSUED", "REBOOT_REQUESTED"}
)
_WAITING = frozenset({JobState.QUEUED, JobState.HELD})
_HOLDING = frozenset({JobState.RUNNING, JobState.STARTING, JobState.COMPLETING, JobState.SUSPENDED})


@dataclass(frozen=True, slots=True)
class PreparedPartition:
    """What every user sees alike of one partition."""

    name: str
    profile: PartitionProfile
    live: Partition | None
    nodes: tuple[NodeView, ...]
    queue: PartitionQueue
    maintenance: tuple[Maintenance, ...]


@dataclass(frozen=True, slots=True)
class PreparedSystem:
    """What every user sees alike of one system at one snapshot."""

    profile: ProfileDocument
    probe: Probe | None
    partitions: tuple[PreparedPartition, ...]


def prepare(profile: ProfileDocument, probe: Probe | None, partitions: Sequence[Partition] | None) -> PreparedSystem:
    """Join profile and probe.

    Args:
        profile: the revision in force.
        probe: the last good probe, None where there never was one.
        partitions: the partition table of the last full probe (a live probe does not ask for it).
    """
    live = {partition.name: partition for partition in partitions or ()}
    names = list(profile.partitions)
    if not profile.only_listed_partitions:
        names += sorted(name for name, found in live.items() if name not in names and not found.root_only)
    queues = _queues(probe, names)
    nodes = _nodes_by_partition(profile, probe, names)
    return PreparedSystem(
        profile=profile,
        probe=probe,
        partitions=tuple(
            PreparedPartition(
                name=name,
                profile=profile.partitions.get(name, PartitionProfile()),
                live=live.get(name),
                nodes=nodes[name],
                queue=queues[name],
                maintenance=_maintenance(profile, probe, name),
            )
            for name in names
        ),
    )


# --- nodes and queue ---------------------------------------------------------------------------------------------


def _nodes_by_partition(
    profile: ProfileDocument, probe: Probe | None, names: Iterable[str]
) -> dict[str, tuple[NodeView, ...]]:
    if probe is None:
        return {name: _declared_nodes(profile, name) for name in names}
    found: dict[str, list[NodeView]] = {name: [] for name in names}
    for node in probe.nodes:
        view = _view(node, profile)
        for name in node.partitions:
            if name in found:
                found[name].append(view)
    return {name: tuple(views) for name, views in found.items()}


def _view(node: Node, profile: ProfileDocument) -> NodeView:
    # A node with several GPU types is offered by its largest pool; the others cannot be asked for through us yet.
    pool = max(node.gpus, key=lambda p: (p.total, p.type or ""), default=None)
    kind = _gpu_kind(pool, profile)
    return NodeView(
        name=node.name,
        is_up=node.state not in _DOWN_STATES and not node.flags & _DOWN_FLAGS,
        is_usable=node.usable,
        cpus=node.cpus_total,
        cpus_free=node.cpus_free,
        memory_mib=node.memory_total_mib,
        memory_free_mib=node.memory_free_mib if node.usable else 0,
        gpus=pool.total if pool else 0,
        gpus_free=pool.free if pool else 0,
        gpu_type=kind.gpu if kind else (pool and (canonical_gpu(pool.type or "") or pool.type)) or None,
        gpu_spelling=pool.type if pool else None,
        gpu_memory_mib=kind.gpu_memory_mib if kind else (known_memory_mib(pool.type or "") if pool else None),
        is_idle=node.usable and node.state == "idle" and node.cpus_free == node.cpus_total,
    )


def _gpu_kind(pool: GpuPool | None, profile: ProfileDocument) -> NodeType | None:
    """Return the profile's node type with this GPU: by the site's spelling, by the word, or the only one there is."""
    if pool is None:
        return None
    with_gpus = [kind for kind in profile.node_types.values() if kind.gpus]
    if pool.type is None:
        same_count = [kind for kind in with_gpus if kind.gpus == pool.total]
        return same_count[0] if len({kind.gpu for kind in same_count}) == 1 else None
    for kind in with_gpus:
        if pool.type in (kind.gpu_spelling, kind.gpu):
            return kind
    word = canonical_gpu(pool.type)
    return next((kind for kind in with_gpus if word is not None and kind.gpu == word), None)


def _declared_nodes(profile: ProfileDocument, name: str) -> tuple[NodeView, ...]:
    """Return the profile's nodes, none of them known to be free: enough to say what could never run here."""
    views = []
    for group in profile.partitions[name].nodes if name in profile.partitions else ():
        kind = profile.node_types[group.type]
        views += [
            NodeView(
                name=f"{group.type}-{number}",
                is_up=True,
                is_usable=False,
                cpus=kind.cpus,
                cpus_free=0,
                memory_mib=kind.memory_mib,
                memory_free_mib=0,
                gpus=kind.gpus,
                gpus_free=0,
                gpu_type=kind.gpu,
                gpu_spelling=kind.gpu_spelling or kind.gpu,
                gpu_memory_mib=kind.gpu_memory_mib,
            )
            for number in range(group.count)
        ]
    return tuple(views)


def _queues(probe: Probe | None, names: Iterable[str]) -> dict[str, PartitionQueue]:
    running: dict[str, list[RunningShare]] = {name: [] for name in names}
    pending: dict[str, list[PendingShare]] = {name: [] for name in running}
    if probe is None:
        return {name: PartitionQueue(is_visible=False) for name in running}
    for job in probe.jobs:
        for name in job.partitions:
            if name not in running:
                continue
            if job.state in _HOLDING:
                running[name].append(_running(job))
            elif job.state in _WAITING:
                pending[name].append(_pending(job))
    return {
        name: PartitionQueue(tuple(running[name]), tuple(pending[name]), is_visible=probe.jobs_visible)
        for name in running
    }


def _running(job: QueueJob) -> RunningShare:
    nodes = max(1, len(job.node_names) or job.nodes)
    return RunningShare(
        user=job.user,
        node_names=job.node_names,
        cpus_per_node=ceil(job.cpus / nodes),
        memory_per_node_mib=ceil((job.memory_mib or 0) / nodes),
        gpus_per_node=ceil(job.gpus / nodes),
        start_at=job.start_at,
        walltime_s=job.walltime_s,
    )


def _pending(job: QueueJob) -> PendingShare:
    return PendingShare(
        user=job.user,
        nodes=max(1, job.nodes),
        cpus=job.cpus,
        memory_mib=job.memory_mib or 0,
        gpus=job.gpus,
        gpu_type=canonical_gpu(job.gpu_type) or job.gpu_type if job.gpu_type else None,
        walltime_s=job.walltime_s,
        priority=job.priority,
        submit_at=job.submit_at,
        is_eligible=job.is_eligible and job.state is JobState.QUEUED,
        count=job.array_pending,
    )


def _maintenance(profile: ProfileDocument, probe: Probe | None, name: str) -> tuple[Maintenance, ...]:
    announced = [
        Maintenance(window.start_at, window.end_at, frozenset(), window.reason or "announced maintenance")
        for window in profile.maintenance
        if not window.partitions or name in window.partitions
    ]
    reserved = [
        Maintenance(found.start_at, found.end_at, frozenset(found.node_names), found.name)
        for found in (probe.reservations if probe else ())
        if found.is_maintenance
    ]
    return tuple(sorted((*announced, *reserved), key=lambda window: (window.start_at, window.name)))


# --- one user's records ------------------------------------------------------------------------------------------


def records(
    prepared: PreparedSystem, access: Access, standing: Standing, *, now: datetime
) -> tuple[ResourceRecord, ...]:
    """Return one record per partition and account of this user, in the order of their names."""
    found = [
        _record(prepared, partition, account, access, standing)
        for partition in prepared.partitions
        for account in _accounts(access)
    ]
    return tuple(sorted(found, key=lambda record: record.key))


def _accounts(access: Access) -> tuple[str | None, ...]:
    """Return what Facet was granted, else what the site's accounting knows, else the site's default."""
    if access.credits:
        return tuple(sorted(access.credits))
    if access.associations:
        return tuple(sorted({association.account for association in access.associations}))
    return (None,)


def _record(
    prepared: PreparedSystem,
    partition: PreparedPartition,
    account: str | None,
    access: Access,
    standing: Standing,
) -> ResourceRecord:
    profile, declared, live = prepared.profile, partition.profile, partition.live
    association = _association(access, account, partition.name)
    qos = declared.qos or profile.policy.default_qos or (association.default_qos if association else None)
    limits = _limits(profile, partition, access, association, qos, prepared.probe)
    credit = access.credits.get(account) if account else None
    first = partition.nodes[0] if partition.nodes else None
    return ResourceRecord(
        system=profile.system,
        partition=partition.name,
        account=account,
        qos=declared.qos or profile.policy.default_qos,
        snapshot_id=standing.snapshot_id,
        observed_at=standing.observed_at,
        max_age_s=profile.probe.max_age_s,
        health=standing.health,
        is_connected=access.is_connected,
        access_denied=_denied(partition, access, account, association, qos),
        has_allocation=bool(access.credits) or not access.associations or association is not None,
        blocked=_blocked(profile, partition),
        partition_state=live.state if live else ("up" if standing.health is not Health.OFFLINE else "unknown"),
        architecture=_architecture(profile, partition, first),
        nodes=partition.nodes,
        queue=partition.queue,
        max_walltime_s=_least(
            declared.max_walltime_s, live.max_walltime_s if live else None, limits.max_walltime_s
        ),
        max_nodes=_least(declared.max_nodes, live.max_nodes if live else None),
        is_exclusive=declared.exclusive if declared.exclusive is not None else bool(live and live.exclusive),
        limits=limits,
        own_priority=_own_priority(prepared.probe, access, partition.name),
        maintenance=partition.maintenance,
        containers=profile.containers,
        software=profile.software or {},
        software_known=profile.software is not None,
        network=profile.network,
        filesystems=profile.filesystems,
        parallel=profile.parallel,
        charge=declared.charge,
        credit_left=credit.left if credit else None,
        credit_granted=credit.granted if credit else None,
        speed=declared.speed,
        preparation_s=profile.preparation_s,
        transfer_rate_mib_s=profile.transfer_rate_mib_s,
        whole_node_memory=profile.scheduler.memory_spelling == "none",
        default_memory_per_cpu_mib=live.def_mem_per_cpu_mib if live else None,
    )


def _architecture(profile: ProfileDocument, partition: PreparedPartition, first: NodeView | None) -> str:
    for group in partition.profile.nodes:
        stated = profile.node_types[group.type].architecture
        if stated:
            return stated
    del first
    return profile.architecture


def _association(access: Access, account: str | None, partition: str) -> Association | None:
    """Return the association for this account, the one for the partition first."""
    matching = [found for found in access.associations or () if found.account == account]
    for found in matching:
        if found.partition == partition:
            return found
    return next((found for found in matching if found.partition is None), None)


def _blocked(profile: ProfileDocument, partition: PreparedPartition) -> str | None:
    if partition.profile.blocked:
        return partition.profile.blocked
    if partition.name in profile.policy.blocked_partitions:
        return "blocked by the site profile"
    if partition.live is None and partition.nodes == () and partition.queue.is_visible:
        return "the scheduler shows no such partition"
    return None


def _denied(
    partition: PreparedPartition,
    access: Access,
    account: str | None,
    association: Association | None,
    qos: str | None,
) -> str | None:
    """Return why the site would refuse this account here, None when nothing known speaks against it."""
    live, patterns = partition.live, partition.profile.accounts
    if access.associations and account is not None and association is None:
        return f"the site's accounting has no association of account {account} for this user"
    if patterns is not None and not any(fnmatchcase(account or "", pattern) for pattern in patterns):
        return f"accounts here must match {', '.join(patterns)}"
    if live is None:
        return None
    if live.root_only:
        return "only root may submit here"
    if live.allow_accounts is not None and account not in live.allow_accounts:
        return f"account {account or 'default'} is not allowed here"
    if account in live.deny_accounts:
        return f"account {account} is denied here"
    if qos and live.allow_qos is not None and qos not in live.allow_qos:
        return f"QoS {qos} is not allowed here"
    if qos and qos in live.deny_qos:
        return f"QoS {qos} is denied here"
    return None


def _least(*values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return min(known) if known else None


def _limits(
    profile: ProfileDocument,
    partition: PreparedPartition,
    access: Access,
    association: Association | None,
    qos: str | None,
    probe: Probe | None,
) -> UserLimits:
    """Combine partition QoS, job QoS, association and policy: the least of each counts."""
    names = {name for name in (qos, partition.live.qos if partition.live else None) if name}
    rules: list[Qos] = [found for found in access.qos if found.name in names]
    per_user: list[Limits] = [rule.per_user for rule in rules]
    if association:
        per_user.append(association.limits)
    per_job = [rule.per_job for rule in rules]
    submitted, running, gpus = _own_use(probe, access.remote_user, partition.name)
    policy = profile.policy
    return UserLimits(
        max_submit_jobs=_least(*(limit.max_submit_jobs for limit in per_user)),
        submitted_jobs=submitted,
        max_running_jobs=_least(*(limit.max_jobs for limit in per_user)),
        running_jobs=running,
        max_gpus_per_user=_least(*(limit.max_gpus for limit in per_user)),
        gpus_in_use=gpus,
        max_gpus_per_job=_least(
            *(limit.max_gpus for limit in per_job), policy.max_gpus_per_job, partition.profile.max_gpus_per_job
        ),
        max_nodes_per_job=_least(*(limit.max_nodes for limit in per_job), policy.max_nodes_per_job),
        max_nodes_per_user=_least(*(limit.max_nodes for limit in per_user)),
        max_cpus_per_job=_least(*(limit.max_cpus for limit in per_job)),
        max_cpus_per_user=_least(*(limit.max_cpus for limit in per_user)),
        max_walltime_s=_least(*(limit.max_walltime_s for limit in (*per_user, *per_job))),
    )


def _own_use(probe: Probe | None, user: str | None, partition: str) -> tuple[int, int, int]:
    """Return this user's (submitted jobs, running jobs, GPUs in use) in one partition."""
    if probe is None or user is None:
        return (0, 0, 0)
    own = [job for job in probe.jobs if job.user == user and partition in job.partitions]
    running = [job for job in own if job.state in _HOLDING]
    return (sum(job.array_pending for job in own), len(running), sum(job.gpus for job in running))


def _own_priority(probe: Probe | None, access: Access, partition: str) -> int | None:
    """Return the priority of our newest waiting job here, the best guess of what a fresh one would get."""
    if probe is None or access.remote_user is None:
        return None
    own = [
        job
        for job in probe.jobs
        if job.user == access.remote_user
        and partition in job.partitions
        and job.state is JobState.QUEUED
        and job.is_eligible
        and job.priority
    ]
    newest: Mapping[str, QueueJob] = {job.job_id: job for job in own if job.submit_at is not None}
    if not newest:
        return None
    return max(newest.values(), key=lambda job: (job.submit_at, job.job_id)).priority  # type: ignore[return-value,type-var]  # submit_at is set
