"""From sbatch's options to a job, and slurmctld's checks at submission. Pure.

Source: sbatch(1), recorded refusals of 22.05.8.
"""

from __future__ import annotations

import os
import re

from providers.sandbox.slurm.call import Options, Refused
from providers.sandbox.slurm.load import fair_share
from providers.sandbox.slurm.model import Cluster, Job, Partition
from providers.sandbox.slurm.packing import Request, has_features, shape_fits
from providers.sandbox.slurm.text import BadText, hosts, read_memory, read_moment, read_ranges, read_span

FAILED = "sbatch: error: Batch job submission failed: "


class NoSubmit(Exception):
    """slurmctld refuses; `job` is set where the real one has already given an id away."""

    def __init__(self, words: str, job: Job | None = None) -> None:
        super().__init__(words)
        self.words, self.job = words, job


def build_job(cluster: Cluster, given: Options, user: str, now: int, cwd: str) -> Job:
    """Return the job that the options describe.

    Raises:
        Refused: sbatch itself cannot read an option.
        NoSubmit: there is no such partition or account.
    """
    names = _partitions(cluster, given)
    part = cluster.partitions[names[0]]
    account = given.get("account").lower() or _default_account(cluster, user)
    job = Job(
        name=given.get("job-name"),
        user=user,
        account=account,
        qos=given.get("qos") or "normal",
        partitions=names,
        partition=names[0],
        submit=now,
        eligible=now,
        comment=given.get("comment"),
        reservation=given.get("reservation"),
        constraint=given.get("constraint").strip("\"'"),
        exclusive=given.has("exclusive"),
        held="user" if given.has("hold") else "",
        requeue=not given.has("no-requeue"),
        kill_on_invalid_dep=given.get("kill-on-invalid-dep") == "yes",
        workdir=os.path.normpath(os.path.join(cwd, given.get("chdir") or ".")),
        stdout=given.get("output"),
        stderr=given.get("error"),
        stdin=given.get("input") or "/dev/null",
        open_mode=given.get("open-mode") or "truncate",
        signal=given.get("signal"),
    )
    job.limit = (
        _read(given, "time", read_span, "--time")
        if given.has("time")
        else (part.default_time or part.max_time)
    )
    job.limit_given = given.has("time")
    if given.has("begin"):
        job.begin = job.eligible = _moment(given.get("begin"), now)
    _nice_and_dependency(job, given)
    _node_names(job, given)
    _array(cluster, job, given)
    _size(cluster, job, part, given)
    job.base_priority = _base_priority(cluster, job)
    return job


def _partitions(cluster: Cluster, given: Options) -> list[str]:
    names = given.names("partition") or [p.name for p in cluster.partitions.values() if p.default]
    for name in names:
        if name not in cluster.partitions:
            first = f"sbatch: error: invalid partition specified: {name}"
            raise NoSubmit(f"{first}\n{FAILED}Invalid partition name specified")
    if not names:
        raise NoSubmit(f"{FAILED}No partition specified or system default partition")
    return names


def _default_account(cluster: Cluster, user: str) -> str:
    return next((one.account for one in cluster.assocs if one.user == user), "")


def _read(given: Options, name: str, reader: object, shown: str) -> int:
    try:
        return int(reader(given.get(name)))  # type: ignore[operator]  # one of our text readers
    except (BadText, ValueError):
        raise Refused(f"sbatch: error: Invalid {shown} specification") from None


def _number(given: Options, name: str) -> int:
    """Return a positive count, 0 when not given.

    Raises:
        Refused: it is no positive number.
    """
    text = given.get(name)
    if not given.has(name):
        return 0
    if not text.isdigit() or int(text) < 1:
        raise Refused(f'sbatch: error: Invalid numeric value "{text}" for --{name}.')
    return int(text)


def _moment(text: str, now: int) -> int:
    try:
        return max(now, read_moment(text, now))
    except BadText:
        raise Refused(f"sbatch: error: Invalid --begin specification: {text}") from None


def _nice_and_dependency(job: Job, given: Options) -> None:
    if given.has("nice"):
        text = given.get("nice") or "100"
        if not re.fullmatch(r"-?\d+", text):
            raise Refused(f"sbatch: error: Invalid --nice value: {text}")
        job.nice = max(0, int(text))
    text = given.get("dependency")
    if not text:
        return
    kinds = r"(after|afterany|afterok|afternotok|aftercorr):\d+(_\d+)?(\+\d+)?(:\d+(_\d+)?(\+\d+)?)*"
    if not all(part == "singleton" or re.fullmatch(kinds, part) for part in re.split(r"[,?]", text)):
        raise NoSubmit(f"{FAILED}Job dependency problem")
    job.dependency = text


def _node_names(job: Job, given: Options) -> None:
    for option, field in (("nodelist", "want_nodes"), ("exclude", "avoid_nodes")):
        if given.has(option):
            try:
                setattr(job, field, hosts(given.get(option)))
            except BadText:
                raise Refused(f"sbatch: error: Invalid node name specified: {given.get(option)}") from None


def _array(cluster: Cluster, job: Job, given: Options) -> None:
    if not given.has("array"):
        return
    indexes, _, throttle = given.get("array").partition("%")
    try:
        tasks = read_ranges(indexes)
    except BadText:
        raise NoSubmit(f"{FAILED}Invalid job array specification") from None
    most = int(cluster.config.get("MaxArraySize", "1001"))
    if not tasks or tasks[-1] >= most or (throttle and not throttle.isdigit()):
        raise NoSubmit(f"{FAILED}Invalid job array specification")
    job.tasks, job.throttle, job.array_size = tasks, int(throttle or 0), len(tasks)


def _size(cluster: Cluster, job: Job, part: Partition, given: Options) -> None:
    """Fill nodes, tasks, CPUs, memory and GPUs."""
    nodes_text = given.get("nodes")
    shape = re.fullmatch(r"(\d+)(?:-(\d+))?", nodes_text) if nodes_text else None
    if nodes_text and (shape is None or int(shape.group(1)) < 1):
        raise Refused(f"sbatch: error: Invalid node count specification: {nodes_text}")
    per_node, tasks = _number(given, "ntasks-per-node"), _number(given, "ntasks")
    nodes = int(shape.group(1)) if shape else max(1, len(job.want_nodes))
    job.cpus_per_task = _number(given, "cpus-per-task") or 1
    job.tasks_per_node = per_node
    job.tasks_n = tasks or (per_node * nodes if per_node else nodes)
    per_node_gpus, total_gpus = _gpus(job, given)
    if not nodes_text and not job.want_nodes:
        nodes = _least_nodes(cluster, job, part, per_node, total_gpus)
        job.tasks_n = tasks or (per_node * nodes if per_node else nodes)
    job.nodes = nodes
    job.gpus_node = per_node_gpus or -(-total_gpus // nodes)
    per_gpu = _number(given, "cpus-per-gpu") or part.def_cpus_per_gpu
    wanted = job.tasks_n * job.cpus_per_task
    if per_gpu and job.gpus_node and not given.has("cpus-per-task"):
        wanted = max(wanted, per_gpu * job.gpus_node * nodes)
    job.cpus = max(wanted, _number(given, "mincpus") * nodes, nodes)
    _memory(cluster, job, part, given)


def _least_nodes(cluster: Cluster, job: Job, part: Partition, per_node: int, gpus: int) -> int:
    """Return how many nodes the tasks and GPUs need when `-N` is not given."""
    cpus = max((cluster.nodes[name].cpus for name in part.nodes), default=1)
    cards = max((len(cluster.nodes[name].gpu_types) for name in part.nodes), default=0)
    fit = max(1, cpus // job.cpus_per_task)
    by_tasks = -(-job.tasks_n // min(per_node or fit, fit))
    return max(1, by_tasks, -(-gpus // cards) if gpus and cards else 1)


def _gpus(job: Job, given: Options) -> tuple[int, int]:
    """Return (GPUs per node, GPUs in total); sets the type and the words of TRES_PER_NODE."""
    if given.has("gres"):
        per_node = 0
        for part in given.get("gres").split(","):
            shape = re.fullmatch(r"(?:gres[:/])?gpu(?::([A-Za-z][\w.-]*))?(?:[:=](\d+))?", part)
            if shape is None:
                if part.lower() == "none":
                    continue
                raise NoSubmit(f"{FAILED}Invalid generic resource (gres) specification")
            job.gpu_type = shape.group(1) or job.gpu_type
            per_node += int(shape.group(2) or 1)
            job.gpu_words = f"gres:{part.removeprefix('gres:')}"
        return per_node, 0
    for option, scale in (("gpus-per-node", 0), ("gpus", 1), ("gpus-per-task", 2)):
        if given.has(option):
            shape = re.fullmatch(r"(?:([A-Za-z][\w.-]*):)?(\d+)", given.get(option))
            if shape is None:
                raise Refused(f"sbatch: error: Invalid --{option} specification")
            job.gpu_type, count = shape.group(1) or "", int(shape.group(2))
            if scale == 0:
                job.gpu_words = f"gres:gpu:{given.get(option)}"
                return count, 0
            if scale == 1:
                job.gpu_job_words = f"gres:gpu:{given.get(option)}"
            return 0, count * (job.tasks_n if scale == 2 else 1)
    return 0, 0


def _memory(cluster: Cluster, job: Job, part: Partition, given: Options) -> None:
    if given.has("mem"):
        job.mem_node = _read(given, "mem", read_memory, "--mem")
        job.mem_all = job.mem_node == 0
    elif given.has("mem-per-cpu"):
        job.mem_cpu = _read(given, "mem-per-cpu", read_memory, "--mem-per-cpu")
    elif given.has("mem-per-gpu"):
        job.mem_node = _read(given, "mem-per-gpu", read_memory, "--mem-per-gpu") * job.gpus_node
    elif part.def_mem_per_gpu and job.gpus_node:
        job.mem_node = part.def_mem_per_gpu * job.gpus_node
    else:
        job.mem_cpu = part.def_mem_per_cpu or int(cluster.config.get("DefMemPerCPU", "0"))


def _base_priority(cluster: Cluster, job: Job) -> int:
    qos = cluster.qos.get(job.qos)
    most = max((each.priority for each in cluster.qos.values()), default=0)
    weight = 5000 * qos.priority // most if qos and most else 0
    return 1000 + fair_share(job.user) + weight


def check_submit(cluster: Cluster, job: Job) -> None:
    """Check a job as slurmctld does before it takes it.

    Raises:
        NoSubmit: it does not.
    """
    assoc = next((a for a in cluster.assocs if a.user == job.user and a.account == job.account), None)
    if assoc is None:
        raise NoSubmit(f"{FAILED}Invalid account or account/partition combination specified")
    if job.qos not in cluster.qos or job.qos not in assoc.qos:
        raise NoSubmit(f"{FAILED}Invalid qos specification")
    if job.reservation:
        _check_reservation(cluster, job)
    _check_counts(cluster, job, assoc.max_submit)
    parts = [cluster.partitions[name] for name in job.partitions]
    if all(part.state in {"DRAIN", "INACTIVE"} for part in parts):
        raise NoSubmit(f"{FAILED}Required partition not available (inactive or drain)")
    if any(part.allow_groups and job.user not in part.allow_groups for part in parts):
        raise NoSubmit(f"{FAILED}User's group not permitted to use this partition")
    if cluster.config.get("EnforcePartLimits") in {"ALL", "YES"}:
        _check_strict(job, parts)
    every = {feature for node in cluster.nodes.values() for feature in node.features}
    asked = set(re.split(r"[&|,\[\]()*]|\d+$", job.constraint)) - {""}
    if not asked <= every:
        raise NoSubmit(f"{FAILED}Invalid feature specification")
    if any(name not in cluster.nodes for name in [*job.want_nodes, *job.avoid_nodes]):
        raise NoSubmit(f"{FAILED}Invalid node name specified")
    if not any(_possible(cluster, job, part) for part in parts):
        _refuse_shape(cluster, job, parts[0])


def _check_reservation(cluster: Cluster, job: Job) -> None:
    one = next((r for r in cluster.reservations if r.name == job.reservation), None)
    if one is None:
        raise NoSubmit(f"{FAILED}Requested reservation is invalid")
    if job.user not in one.users and job.account not in one.accounts:
        raise NoSubmit(f"{FAILED}Access denied to requested reservation")


def _check_counts(cluster: Cluster, job: Job, most_of_assoc: int) -> None:
    """Check the numbers of submitted jobs; every array task counts."""
    new = max(1, len(job.tasks))
    mine = [j for j in cluster.jobs if j.live and j.user == job.user]
    policy = f"{FAILED}Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
    counted = sum(max(1, len(j.tasks)) for j in mine if j.account == job.account)
    if most_of_assoc and counted + new > most_of_assoc:
        raise NoSubmit(f"sbatch: error: AssocMaxSubmitJobLimit\n{policy}")
    for name in {job.qos, *(cluster.partitions[p].qos for p in job.partitions)} & cluster.qos.keys():
        most = cluster.qos[name].max_submit_user
        counted = sum(
            max(1, len(j.tasks))
            for j in mine
            if name in {j.qos, *(cluster.partitions[p].qos for p in j.partitions)}
        )
        if most and counted + new > most:
            raise NoSubmit(f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{policy}")


def _check_strict(job: Job, parts: list[Partition]) -> None:
    for part in parts:
        if part.max_time and (not job.limit or job.limit > part.max_time):
            raise NoSubmit(f"{FAILED}Requested time limit is invalid (missing or exceeds some limit)")
        if part.allow_accounts and job.account not in part.allow_accounts:
            raise NoSubmit(f"{FAILED}Invalid account or account/partition combination specified")
        if part.max_nodes and job.nodes > part.max_nodes:
            raise NoSubmit(f"{FAILED}Node count specification invalid")


def _possible(cluster: Cluster, job: Job, part: Partition) -> bool:
    request = Request(job, part)
    fitting = [name for name in part.nodes if shape_fits(cluster.nodes[name], request)]
    allowed = [name for name in fitting if name not in job.avoid_nodes]
    return len(allowed) >= job.nodes and set(job.want_nodes) <= set(allowed)


def _refuse_shape(cluster: Cluster, job: Job, part: Partition) -> None:
    words = f"{FAILED}Requested node configuration is not available"
    request = Request(job, part)
    nodes = [cluster.nodes[name] for name in part.nodes if has_features(cluster.nodes[name], job.constraint)]
    if nodes and all(node.mem < request.mem for node in nodes):
        words = f"sbatch: error: Memory specification can not be satisfied\n{words}"
    raise NoSubmit(words, job)
