"""One look at a Slurm system: build the commands, read the answers.

Live state costs four short programs: a ping, so that a dead controller costs a moment instead of half a
minute, then nodes, queue, reservations. The full probe adds what changes rarely, and the jobs that ended
since the last one. A reply counts only when its program ended by itself with 0; an accounting database that
is down loses accounting alone.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple

from providers.dialects.slurm.finished import read_finished, show_finished
from providers.dialects.slurm.limits import (
    SHOW_ASSOCIATIONS,
    SHOW_QOS,
    SHOW_USAGE,
    read_associations,
    read_fairshare,
    read_qos,
)
from providers.dialects.slurm.nodes import KNOWN_FLAGS, SHOW_NODES, controller_version, read_nodes
from providers.dialects.slurm.partitions import SHOW_PARTITIONS, read_partitions
from providers.dialects.slurm.priority import (
    Weights,
    read_weights,
    weigh_associations,
    weigh_partitions,
    weigh_qos,
)
from providers.dialects.slurm.queue import SHOW_QUEUE, read_queue
from providers.dialects.slurm.records import counted
from providers.dialects.slurm.reservations import SHOW_RESERVATIONS, partly_reserved, read_reservations
from providers.dialects.slurm.units import read_memory_mib
from providers.errors import SchedulerDown, SiteError, UnparsableOutput
from providers.types import (
    Association,
    Batch,
    BatchReply,
    Exec,
    FinishedJob,
    Node,
    Partition,
    Probe,
    Qos,
    QueueJob,
)

ENVIRONMENT: Final[Mapping[str, str]] = MappingProxyType(
    {"LC_ALL": "C", "TZ": "UTC", "SLURM_BITSTR_LEN": "0", "SLURM_TIME_FORMAT": "standard"}
)
"""Times in UTC, English words, and array task lists that are never cut."""

_MIB: Final = 1024 * 1024
_PING: Final = re.compile(r"^Slurmctld\([^)]*\) at \S+ is (UP|DOWN)$", re.MULTILINE)
_CONFIG: Final = re.compile(r"^(\w+)\s*= ?(.*)$", re.MULTILINE)


def _exec(
    name: str, argv: tuple[str, ...], *, timeout_s: float, max_mib: int = 8, stop_on_failure: bool = False
) -> Exec:
    return Exec(
        name=name,
        argv=argv,
        env=ENVIRONMENT,
        timeout_s=timeout_s,
        max_bytes=max_mib * _MIB,
        stop_on_failure=stop_on_failure,
    )


def build_probe(*, full: bool, since: datetime | None = None) -> Batch:
    """Build the probe: live state, and with `full` also configuration, partitions, accounting.

    `since`: the newest end of a job known so far, by the site's clock.
    """
    live = (
        _exec("ping", ("scontrol", "ping"), timeout_s=5, max_mib=1, stop_on_failure=True),
        _exec("nodes", SHOW_NODES, timeout_s=15, max_mib=32, stop_on_failure=True),
        _exec("queue", SHOW_QUEUE, timeout_s=20, max_mib=64, stop_on_failure=True),
        _exec("reservations", SHOW_RESERVATIONS, timeout_s=10),
    )
    if not full:
        return Batch(operations=live, deadline_s=45)
    rare = (
        _exec("partitions", SHOW_PARTITIONS, timeout_s=10),
        _exec("config", ("scontrol", "show", "config"), timeout_s=10),
        _exec("user", ("id", "-un"), timeout_s=5, max_mib=1),
        _exec("qos", SHOW_QOS, timeout_s=10),
        _exec("associations", SHOW_ASSOCIATIONS, timeout_s=20, max_mib=32),
        _exec("usage", SHOW_USAGE, timeout_s=10),
        _exec("finished", show_finished(since), timeout_s=10),
    )
    return Batch(operations=(*live, *rare), deadline_s=90)


def read_ping(text: str) -> None:
    """Return when a controller answers.

    Raises:
        SchedulerDown: every controller is down.
        UnparsableOutput: no controller is named.
    """
    states = [match[1] for match in _PING.finditer(text)]
    if not states:
        raise UnparsableOutput(
            "scontrol ping printed no controller", command="scontrol ping", line=text[:500]
        )
    if "UP" not in states:
        raise SchedulerDown("no Slurm controller answers", command="scontrol ping", said=text[:500])


def read_probe(reply: BatchReply, *, now: datetime) -> Probe:
    """Return what was seen.

    Raises:
        SchedulerDown: the controller did not answer, or a live command failed or did not end in time.
        UnparsableOutput: something printed is not understood; the facts name command and line.
    """
    read_ping(counted(reply, "ping"))
    node_text = counted(reply, "nodes")
    queue_text = counted(reply, "queue")
    _no_complaint(reply, "queue")
    reservation_text = counted(reply, "reservations")
    nodes = read_nodes(node_text, partly_reserved=partly_reserved(reservation_text))
    is_full = "partitions" in reply.replies
    config = _read_config(counted(reply, "config")) if is_full else {}
    weights = read_weights(config)
    accounting = _read_accounting(reply, weights) if is_full else _Accounting()
    version = config.get("SLURM_VERSION") or controller_version(node_text)
    user, jobs = _read_user(reply), read_queue(queue_text)
    jobs_visible = "jobs" not in config.get("PrivateData", "").split(",")
    finished, unknown = _read_finished(reply, jobs, user=user) if is_full else (None, "")
    return Probe(
        scheduler=f"slurm {version}".strip(),
        cluster=config.get("ClusterName", ""),
        taken_at=now,
        nodes=nodes,
        partitions=_read_partitions(counted(reply, "partitions"), config, weights) if is_full else None,
        jobs=jobs,
        jobs_visible=jobs_visible,
        qos=accounting.qos,
        associations=accounting.associations,
        reservations=read_reservations(reservation_text),
        user=user,
        accounting_up=not accounting.lost,
        finished=finished,
        finished_unknown=unknown,
        warnings=(*accounting.lost, *_strange_states(nodes)),
    )


def _no_complaint(reply: BatchReply, name: str) -> None:
    """Refuse an answer of squeue that says it dropped a column it does not know, with exit status 0."""
    said = reply.replies[name].stderr
    if "Invalid job format specification" in said:
        raise UnparsableOutput(f"{name!r} complained: {said[:200]}", command=name, line=said[:500])


def _read_config(text: str) -> dict[str, str]:
    config = {match[1]: match[2].strip() for match in _CONFIG.finditer(text)}
    if "SLURM_VERSION" not in config:
        raise UnparsableOutput(
            "scontrol show config printed no SLURM_VERSION", command="scontrol show config", line=text[:500]
        )
    return config


def _read_partitions(text: str, config: Mapping[str, str], weights: Weights | None) -> tuple[Partition, ...]:
    """Return the partitions; where one has no memory default of its own, the cluster's holds."""
    per_cpu, per_node = (
        read_memory_mib(word) if (word := config.get(key, "")).isdigit() else None
        for key in ("DefMemPerCPU", "DefMemPerNode")
    )
    defaults = {"def_mem_per_cpu_mib": per_cpu or None, "def_mem_per_node_mib": per_node or None}
    found = read_partitions(text)
    return tuple(
        partition
        if partition.def_mem_per_cpu_mib or partition.def_mem_per_node_mib
        else partition.model_copy(update=defaults)
        for partition in (found if weights is None else weigh_partitions(found, weights))
    )


def _read_user(reply: BatchReply) -> str | None:
    found = reply.replies.get("user")
    if found is None or found.rc != 0:
        return None
    return found.stdout.strip() or None


class _Accounting(NamedTuple):
    qos: tuple[Qos, ...] | None = None
    associations: tuple[Association, ...] | None = None
    lost: tuple[str, ...] = ()
    """Why parts of it are missing."""


def _read_accounting(reply: BatchReply, weights: Weights | None) -> _Accounting:
    lost: list[str] = []
    qos: tuple[Qos, ...] | None = None
    associations: tuple[Association, ...] | None = None
    shares: dict[tuple[str, str], float] = {}
    try:
        shares = read_fairshare(counted(reply, "usage"))
    except SiteError as missing:
        lost.append(f"no fair-share: {missing.message}")
    try:
        qos = read_qos(counted(reply, "qos"))
    except SiteError as missing:
        lost.append(f"no QoS: {missing.message}")
    try:
        user = counted(reply, "user").strip()
        associations = read_associations(counted(reply, "associations"), user=user, fairshare=shares)
    except SiteError as missing:
        lost.append(f"no associations: {missing.message}")
    if weights is not None:
        qos = None if qos is None else weigh_qos(qos, weights)
        associations = None if associations is None else weigh_associations(associations, weights)
    return _Accounting(qos, associations, tuple(lost))


def _read_finished(
    reply: BatchReply, jobs: tuple[QueueJob, ...], *, user: str | None
) -> tuple[tuple[FinishedJob, ...] | None, str]:
    """Return the jobs that ended, and why they are missing or only our own; nothing else hangs on them.

    Accounting has a privacy setting of its own, which no command shows: where others run and only we ever
    finish, it hides them.
    """
    answer = reply.replies.get("finished")
    try:
        is_cut = answer is not None and answer.truncated
        text = answer.stdout if answer is not None and is_cut else counted(reply, "finished")
        found = read_finished(text, is_cut=is_cut)
    except SiteError as missing:
        return None, f"accounting tells no finished jobs: {missing.message}"
    others_run = any(job.user not in {None, user} for job in jobs)
    if user is not None and found and others_run and {job.user for job in found} == {user}:
        return found, "accounting shows no finished jobs but our own"
    return found, ""


def _strange_states(nodes: tuple[Node, ...]) -> tuple[str, ...]:
    """Return a warning per word of a state that this reader does not know."""
    words = sorted({flag for node in nodes for flag in node.flags} - KNOWN_FLAGS)
    return tuple(f"nodes in the unknown state {word} are not used" for word in words)
