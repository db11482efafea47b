"""One user's records of the Global Resource View, from what all see alike and this user's access. Pure."""

from fnmatch import fnmatchcase

from federation.circuit import sentence
from federation.merge import (
    HOLDING,
    PreparedPartition,
    PreparedSystem,
    QosJobs,
    is_exclusive,
    jobs_of_account,
)
from federation.profile import ProfileDocument
from federation.types import Access, GroupLimit, Health, ResourceRecord, Standing, UserLimits
from providers.types import Association, JobState, Limits, Partition, Probe, Qos


def records(prepared: PreparedSystem, access: Access, standing: Standing) -> tuple[ResourceRecord, ...]:
    """Return one record per partition and account of this user, in the order of their names."""
    accounts = _accounts(access)
    held = {account: _jobs_of(prepared.probe, access, account) for account in accounts}
    found = [
        _record(prepared, partition, account, access, standing, held=held[account])
        for partition in prepared.partitions
        for account in accounts
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
    *,
    held: QosJobs,
) -> ResourceRecord:
    profile, declared, live = prepared.profile, partition.profile, partition.live
    association = _association(access, account, partition.scheduler_name)
    shared = _shared_by(f"account {account}", association.group, held) if association else None
    qos = (
        declared.scheduler_qos
        or declared.qos
        or profile.policy.default_qos
        or (association.default_qos if association else None)
    )
    limits = _limits(prepared, partition, access, association=association, qos=qos)
    credit = access.credits.get(account) if account else None
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
        partition_state=live.state
        if live
        else ("up" if standing.health is not Health.OFFLINE else "unknown"),
        architecture=_architecture(profile, partition),
        nodes=partition.nodes,
        queue=partition.queue,
        max_walltime_s=_least(
            declared.max_walltime_s, live.max_walltime_s if live else None, limits.max_walltime_s
        ),
        max_nodes=_least(declared.max_nodes, live.max_nodes if live else None),
        is_exclusive=is_exclusive(declared, live),
        limits=limits,
        own_priority=_own_priority(prepared.probe, access, partition, association=association, qos=qos),
        user=access.remote_user,
        groups=(*_groups(prepared, partition, access, qos=qos), *_of_account(partition, shared)),
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
        circuit_open=None if standing.admits else sentence(standing.circuit),
        whole_node_memory=profile.scheduler.memory_spelling == "none",
        default_memory_per_cpu_mib=live.def_mem_per_cpu_mib if live else None,
    )


def _architecture(profile: ProfileDocument, partition: PreparedPartition) -> str:
    for group in partition.profile.nodes:
        stated = profile.node_types[group.type].architecture
        if stated:
            return stated
    return profile.architecture


def _folded(account: str | None) -> str:
    """Return an account name as Slurm's accounting keeps it: in lower case, however the site writes it."""
    return (account or "").lower()


def _same(one: str, other: str | None) -> bool:
    return _folded(one) == _folded(other)


def _association(access: Access, account: str | None, partition: str) -> Association | None:
    """Return the association for this account, the one for the partition first."""
    matching = [found for found in access.associations or () if _same(found.account, account)]
    for found in matching:
        if found.partition == partition:
            return found
    return next((found for found in matching if found.partition is None), None)


def _blocked(profile: ProfileDocument, partition: PreparedPartition) -> str | None:
    if partition.profile.blocked:
        return partition.profile.blocked
    if partition.name in profile.policy.blocked_partitions:
        return "blocked by the site profile"
    if partition.live and partition.live.requires_reservation and not profile.scheduler.reservation:
        return "only jobs of a reservation run here, and the profile names none"
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
    if patterns is not None and not _admits(patterns, account or ""):
        return f"accounts here must match {', '.join(patterns)}"
    return _refused(live, account, qos) if live else None


def _admits(patterns: tuple[str, ...], account: str) -> bool:
    """Whether no pattern with `!` keeps the account out, and one without admits it, where there is any."""
    kept_out = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    admitted = [pattern for pattern in patterns if not pattern.startswith("!")]
    return not any(fnmatchcase(_folded(account), _folded(pattern)) for pattern in kept_out) and (
        not admitted or any(fnmatchcase(_folded(account), _folded(pattern)) for pattern in admitted)
    )


def _refused(live: Partition, account: str | None, qos: str | None) -> str | None:
    """Return the partition's own rule against this account or QoS, if there is one."""
    rules = (
        (live.root_only, "only root may submit here"),
        (
            live.allow_accounts is not None
            and not any(_same(allowed, account) for allowed in live.allow_accounts),
            f"account {account or 'default'} is not allowed here",
        ),
        (any(_same(denied, account) for denied in live.deny_accounts), f"account {account} is denied here"),
        (
            qos is not None and live.allow_qos is not None and qos not in live.allow_qos,
            f"QoS {qos} is not allowed here",
        ),
        (qos is not None and qos in live.deny_qos, f"QoS {qos} is denied here"),
    )
    return next((why for holds, why in rules if holds), None)


def _least(*values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return min(known) if known else None


def _limits(
    prepared: PreparedSystem,
    partition: PreparedPartition,
    access: Access,
    *,
    association: Association | None,
    qos: str | None,
) -> UserLimits:
    """Combine partition QoS, job QoS, association and policy: the least of each counts."""
    names = {name for name in (qos, partition.live.qos if partition.live else None) if name}
    rules: list[Qos] = [found for found in access.qos if found.name in names]
    per_user: list[Limits] = [rule.per_user for rule in rules]
    if association:
        per_user.append(association.limits)
    per_job = [rule.per_job for rule in rules]
    groups = [rule.group for rule in rules]  # no job may ask for more than all of them may hold
    if association:
        groups.append(association.group)
    submitted, running, gpus = _own_use(prepared.probe, access.remote_user, partition.scheduler_name)
    policy, declared = prepared.profile.policy, partition.profile
    return UserLimits(
        max_submit_jobs=_least(*(limit.max_submit_jobs for limit in per_user), declared.max_submit_jobs),
        submitted_jobs=submitted,
        max_running_jobs=_least(*(limit.max_jobs for limit in per_user), declared.max_running_jobs),
        running_jobs=running,
        max_gpus_per_user=_least(*(limit.max_gpus for limit in per_user), declared.max_gpus_per_user),
        gpus_in_use=gpus,
        max_gpus_per_job=_least(
            *(limit.max_gpus for limit in (*per_job, *groups)),
            policy.max_gpus_per_job,
            declared.max_gpus_per_job,
        ),
        max_nodes_per_job=_least(
            *(limit.max_nodes for limit in (*per_job, *groups)), policy.max_nodes_per_job
        ),
        max_nodes_per_user=_least(*(limit.max_nodes for limit in per_user), declared.max_nodes_per_user),
        max_cpus_per_job=_least(*(limit.max_cpus for limit in (*per_job, *groups))),
        max_cpus_per_user=_least(*(limit.max_cpus for limit in per_user)),
        max_walltime_s=_least(*(limit.max_walltime_s for limit in (*per_user, *per_job))),
    )


def _groups(
    prepared: PreparedSystem, partition: PreparedPartition, access: Access, *, qos: str | None
) -> tuple[GroupLimit, ...]:
    """Return the limits that our jobs here would share with everybody under the same QoS."""
    names = {name for name in (qos, partition.live.qos if partition.live else None) if name}
    found = []
    for rule in access.qos:
        if rule.name not in names or not partition.queue.is_visible:
            continue
        limit = _shared_by(rule.name, rule.group, prepared.groups.get(rule.name, QosJobs()))
        if limit is not None:
            found.append(limit)
    return tuple(found)


def _of_account(partition: PreparedPartition, shared: GroupLimit | None) -> tuple[GroupLimit, ...]:
    """Return the limit that our jobs would share with everybody under the same account, if there is one."""
    return () if shared is None or not partition.queue.is_visible else (shared,)


def _jobs_of(probe: Probe | None, access: Access, account: str | None) -> QosJobs:
    """Return the jobs of an account that has limits of its own, or of one above it; none for others.

    What other accounts hold under the one above is not counted.
    """
    limited = any(
        _same(each.account, account) and each.group != Limits() for each in access.associations or ()
    )
    return jobs_of_account(probe, account) if limited and probe is not None and account else QosJobs()


def _shared_by(name: str, most: Limits, jobs: QosJobs) -> GroupLimit | None:
    """Return what jobs may hold together; None where nothing bounds it."""
    if {most.max_jobs, most.max_gpus, most.max_cpus, most.max_nodes} == {None}:
        return None
    return GroupLimit(
        qos=name,
        max_jobs=most.max_jobs,
        max_gpus=most.max_gpus,
        max_cpus=most.max_cpus,
        max_nodes=most.max_nodes,
        running=tuple(jobs.running),
        waiting=tuple(jobs.waiting),
    )


def _own_use(probe: Probe | None, user: str | None, partition: str) -> tuple[int, int, int]:
    """Return this user's (submitted jobs, running jobs, GPUs in use) in one partition."""
    if probe is None or user is None:
        return (0, 0, 0)
    own = [job for job in probe.jobs if job.user == user and partition in job.partitions]
    running = [job for job in own if job.state in HOLDING]
    return (sum(job.array_pending for job in own), len(running), sum(job.gpus for job in running))


def _own_priority(
    probe: Probe | None,
    access: Access,
    partition: PreparedPartition,
    *,
    association: Association | None,
    qos: str | None,
) -> int | None:
    """Return the priority a fresh job of ours would get, None where nothing tells.

    What our newest waiting job here has, else what fair share, partition and QoS add up to.
    """
    told = _newest_priority(probe, access, partition.scheduler_name)
    if told is not None or association is None or association.priority_points is None:
        return told
    live = partition.live
    asked = next((found for found in access.qos if found.name == qos), None)
    parts = (live.priority_points if live else None, asked.priority_points if asked else None)
    return association.priority_points + sum(part for part in parts if part is not None)


def _newest_priority(probe: Probe | None, access: Access, partition: str) -> int | None:
    """Return the priority of our newest waiting job in a partition."""
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
    newest = sorted((job.submit_at, job.priority) for job in own if job.submit_at and job.priority)
    return newest[-1][1] if newest else None
