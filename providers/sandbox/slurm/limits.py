"""Why a pending job may not start, whatever is free: holds, times, dependencies, partitions, QoS, accounts.

Pure. Each answer is the reason Slurm shows, with its long sentence where squeue prints one.
Source: squeue(1) JOB REASON CODES, recorded output of 22.05.8.
"""

from __future__ import annotations

from providers.sandbox.slurm.model import Assoc, Cluster, Job, Qos

NEVER = "DependencyNeverSatisfied"


class Usage:
    """What running jobs hold per user and QoS, per QoS, and per account; updated as jobs start."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.counts: dict[tuple[str, ...], list[int]] = {}
        self.array_running: dict[int, int] = {}
        for job in cluster.jobs:
            if job.state == "RUNNING":
                self.add(job, job.partition)

    def add(self, job: Job, partition: str, sign: int = 1) -> None:
        """Count a job in (or, with `sign` -1, out)."""
        keys: set[tuple[str, ...]] = {("account", job.account), ("assoc", job.account, job.user)}
        for name in limiting_qos(self.cluster, job, partition):
            keys |= {("qos", name), ("qos", name, job.user)}
        for key in keys:
            row = self.counts.setdefault(key, [0, 0, 0, 0])
            for place, amount in enumerate((1, job.gpus, job.cpus, job.nodes)):
                row[place] += sign * amount
        if job.array:
            self.array_running[job.array] = self.array_running.get(job.array, 0) + sign

    def of(self, *key: str) -> list[int]:
        """Return [jobs, GPUs, CPUs, nodes] held under a key."""
        return self.counts.get(key, [0, 0, 0, 0])


def limiting_qos(cluster: Cluster, job: Job, partition: str) -> list[str]:
    """Return the QoS whose limits count: the partition's, then the job's own."""
    part = cluster.partitions.get(partition)
    names = [part.qos] if part and part.qos else []
    return [*names, *([job.qos] if job.qos not in names else [])]


def priority(cluster: Cluster, job: Job, now: int) -> int:
    """Return the multifactor priority: base (fair share, QoS, partition) plus age; 0 when held."""
    if job.held:
        return 0
    weight = int(cluster.config.get("PriorityWeightAge", "1000"))
    waited = max(0, now - (job.eligible or job.submit)) if job.state == "PENDING" else 0
    return max(1, job.base_priority + min(weight, weight * waited // 604800) - job.nice)


def own_block(job: Job, now: int, ended: dict[int, str]) -> tuple[str, str]:
    """Return why the job itself is not eligible: ("", "") when it is."""
    if job.held:
        return ("JobHeldUser" if job.held == "user" else "JobHeldAdmin"), ""
    if job.begin > now:
        return "BeginTime", ""
    if job.dependency:
        state = dependency_state(job.dependency, ended)
        if state:
            return state, ""
    return "", ""


def dependency_state(dependency: str, ended: dict[int, str]) -> str:
    """Return "" when met, "Dependency" while waiting, or DependencyNeverSatisfied.

    `ended` maps job ids to their state ("PENDING"/"RUNNING" while live). Unknown ids count as ended well,
    as Slurm does with purged jobs for afterany, and as never for afterok.
    """
    separator = "?" if "?" in dependency else ","
    verdicts = []
    for part in dependency.split(separator):
        kind, _, targets = part.partition(":")
        for target in targets.split(":"):
            digits = target.split("_")[0].split("+")[0]
            verdicts.append(_one_dependency(kind, ended.get(int(digits or 0), "")))
    if separator == "?" and "" in verdicts:
        return ""
    if NEVER in verdicts and (separator == "," or set(verdicts) == {NEVER}):
        return NEVER
    return "Dependency" if "Dependency" in verdicts else ""


def _one_dependency(kind: str, state: str) -> str:
    if kind == "singleton":
        return ""
    if kind == "after":
        return "Dependency" if state == "PENDING" else ""
    if state in {"PENDING", "RUNNING", "COMPLETING", "SUSPENDED"}:
        return "Dependency"
    if kind == "afterok":
        return "" if state == "COMPLETED" else NEVER
    if kind == "afternotok":
        return NEVER if state in {"COMPLETED", ""} else ""
    return ""


def partition_block(cluster: Cluster, job: Job, partition: str) -> tuple[str, str]:
    """Return why this partition never takes the job as it stands."""
    part = cluster.partitions[partition]
    if part.state in {"DOWN", "INACTIVE", "DRAIN"}:
        return ("PartitionInactive" if part.state == "INACTIVE" else "PartitionDown"), ""
    if part.allow_accounts and job.account not in part.allow_accounts:
        allowed = ",".join(part.allow_accounts)
        words = (
            f"Job's account not permitted to use this partition "
            f"({part.name} allows {allowed} not {job.account})"
        )
        return "PartitionConfig", words
    if part.max_time and (job.limit > part.max_time or not job.limit):
        return "PartitionTimeLimit", ""
    if (part.max_nodes and job.nodes > part.max_nodes) or job.nodes < part.min_nodes:
        return "PartitionNodeLimit", ""
    return "", ""


def limit_block(cluster: Cluster, job: Job, partition: str, usage: Usage) -> tuple[str, str]:
    """Return the QoS or association limit that holds the job back now."""
    if job.array and job.throttle and usage.array_running.get(job.array, 0) >= job.throttle:
        return "JobArrayTaskLimit", ""
    for name in limiting_qos(cluster, job, partition):
        qos = cluster.qos.get(name)
        reason = _qos_block(qos, job, usage) if qos else ""
        if reason:
            return reason, ""
    for assoc in cluster.assocs:
        if assoc.account == job.account and assoc.user in {"", job.user}:
            reason = _assoc_block(assoc, job, usage)
            if reason:
                return reason, ""
    return "", ""


def _qos_block(qos: Qos, job: Job, usage: Usage) -> str:
    mine, all_of_it = usage.of("qos", qos.name, job.user), usage.of("qos", qos.name)
    checks = (
        (qos.max_wall and job.limit > qos.max_wall, "QOSMaxWallDurationPerJobLimit"),
        (qos.max_jobs_user and mine[0] >= qos.max_jobs_user, "QOSMaxJobsPerUserLimit"),
        (job.gpus and qos.max_gpus_user and mine[1] + job.gpus > qos.max_gpus_user, "QOSMaxGRESPerUser"),
        (qos.max_cpus_user and mine[2] + job.cpus > qos.max_cpus_user, "QOSMaxCpuPerUserLimit"),
        (qos.max_nodes_user and mine[3] + job.nodes > qos.max_nodes_user, "QOSMaxNodePerUserLimit"),
        (qos.grp_jobs and all_of_it[0] >= qos.grp_jobs, "QOSGrpJobsLimit"),
        (job.gpus and qos.grp_gpus and all_of_it[1] + job.gpus > qos.grp_gpus, "QOSGrpGRES"),
    )
    return next((reason for over, reason in checks if over), "")


def _assoc_block(assoc: Assoc, job: Job, usage: Usage) -> str:
    held = (
        usage.of("account", assoc.account) if not assoc.user else usage.of("assoc", assoc.account, job.user)
    )
    checks = (
        (assoc.max_wall and job.limit > assoc.max_wall, "AssocMaxWallDurationPerJobLimit"),
        (assoc.max_jobs and held[0] >= assoc.max_jobs, "AssocMaxJobsLimit"),
        (assoc.max_gpus and job.gpus > assoc.max_gpus, "AssocMaxGRESPerJob"),
        (job.gpus and assoc.grp_gpus and held[1] + job.gpus > assoc.grp_gpus, "AssocGrpGRES"),
    )
    return next((reason for over, reason in checks if over), "")
