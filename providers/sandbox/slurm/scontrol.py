"""scontrol: show, ping, hold, release, requeue, update, and little else.

Source: scontrol(1), recorded output of 22.05.8. Verbs may be shortened as the real program allows.
"""

from __future__ import annotations

from collections.abc import Callable

from providers.sandbox.slurm import show
from providers.sandbox.slurm.call import NONE, Call, Refused, options
from providers.sandbox.slurm.controller import stop, tick_if_due
from providers.sandbox.slurm.engine import finish, requeue
from providers.sandbox.slurm.model import Cluster, Job, Node, Reservation
from providers.sandbox.slurm.nodestate import views
from providers.sandbox.slurm.squeue import matches
from providers.sandbox.slurm.text import BadText, hosts, read_moment, read_span

LONGS = {
    "all": NONE,
    "details": NONE,
    "oneliner": NONE,
    "quiet": NONE,
    "verbose": NONE,
    "future": NONE,
    "version": NONE,
}
SHORTS = {
    "a": "all",
    "d": "details",
    "o": "oneliner",
    "Q": "quiet",
    "v": "verbose",
    "F": "future",
    "V": "version",
}
DENIED = "Access/permission denied"


def run(call: Call) -> int:
    """Do one scontrol command."""
    given = options("scontrol", call.argv, LONGS, SHORTS)
    if given.has("version"):
        call.say(f"slurm-wlm {call.store.read(call.now).version}")
        return 0
    verb, *words = given.rest or [""]
    if verb == "show":
        separator = show.ONE_LINE if given.has("oneliner") else show.MANY_LINES
        return _show(call, words, separator, detail=given.has("details"), hidden=given.has("all"))
    if verb == "ping":
        host = call.store.read(call.now).config.get("SlurmctldHost[0]", "ctl").split("(")[0]
        call.say(f"Slurmctld(primary) at {host} is UP")
        return 0
    actions: dict[str, Callable[[Call, list[str]], int]] = {
        "hold": _hold,
        "uhold": _hold,
        "release": _release,
        "requeue": _requeue,
        "requeuehold": _requeue_and_hold,
        "update": _update,
        "create": _create,
        "delete": _delete,
    }
    if verb not in actions:
        raise Refused(f"invalid keyword: {verb}")
    return actions[verb](call, words)


def _show(call: Call, words: list[str], separator: str, *, detail: bool, hidden: bool) -> int:
    entity, name = ([*words, "", ""])[0].lower(), ([*words, "", ""])[1]
    hidden = hidden or call.user == "root"
    if entity in {"node", "nodes"}:
        _show_nodes(call, name, separator, detail=detail)
    elif entity in {"partition", "partitions"}:
        _show_partitions(call, name, separator, hidden=hidden)
    elif entity.startswith("res"):
        _show_reservations(call, name, separator)
    elif entity in {"job", "jobs"}:
        _show_jobs(call, name, separator)
    elif entity == "config":
        for line in show.config_lines(call.store.read(call.now), int(call.now)):
            call.say(line)
    elif entity in {"hostname", "hostnames"}:
        for host in _hosts(name or call.env.get("SLURM_JOB_NODELIST", "")):
            call.say(host)
    else:
        raise Refused(f"invalid entity:{entity} for keyword:show ")
    return 0


def _show_partitions(call: Call, name: str, separator: str, *, hidden: bool) -> None:
    cluster = call.store.read(call.now)
    every = cluster.partitions.values()
    parts = [p for p in every if p.name == name or (not name and (hidden or not p.hidden))]
    if name and not parts:
        raise Refused(f"Partition {name} not found")
    _records(call, [show.partition_lines(cluster, part) for part in parts], separator)


def _show_reservations(call: Call, name: str, separator: str) -> None:
    cluster = call.store.read(call.now)
    chosen = [r for r in cluster.reservations if not name or r.name == name]
    if name and not chosen:
        raise Refused(f"Reservation {name} not found")
    if not chosen:
        call.say("No reservations in the system")
    _records(call, [show.reservation_lines(cluster, one, int(call.now)) for one in chosen], separator)


def _show_jobs(call: Call, name: str, separator: str) -> None:
    cluster = call.store.read(call.now)
    jobs = [job for job in cluster.jobs if not name or matches(job, [name])]
    if name and not jobs:
        raise Refused("slurm_load_jobs error: Invalid job id specified")
    if not jobs:
        call.say("No jobs in the system")
    _records(call, [show.job_lines(cluster, job, int(call.now)) for job in jobs], separator)


def _show_nodes(call: Call, name: str, separator: str, *, detail: bool) -> None:
    cluster = call.store.read(call.now)
    seen = views(cluster, int(call.now))
    wanted = _hosts(name) if name else list(seen)
    missing = [host for host in wanted if host not in seen]
    if missing:
        raise Refused(f"Node {missing[0]} not found")
    _records(call, [show.node_lines(cluster, seen[host], detail=detail) for host in wanted], separator)


def _records(call: Call, records: list[list[str]], separator: str) -> None:
    for lines in records:
        call.say(separator.join(lines))
        if separator == show.MANY_LINES:
            call.say("")


def _hosts(text: str) -> list[str]:
    try:
        return hosts(text)
    except BadText:
        raise Refused(f"Invalid hostlist: {text}") from None


def _own(cluster: Cluster, call: Call, name: str) -> list[Job]:
    """Return the live jobs meant by an id (or `name=`), the caller's own or anyone's for root."""
    if name.startswith(("name=", "jobname=")):
        jobs = [job for job in cluster.live_jobs() if job.name == name.partition("=")[2]]
    else:
        jobs = [job for job in cluster.jobs if matches(job, [name])]
    if not jobs:
        raise Refused(f"Invalid job id specified for job {name}")
    if call.user != "root" and any(job.user != call.user for job in jobs):
        raise Refused(f"{DENIED} for job {name}")
    return jobs


def _hold(call: Call, words: list[str]) -> int:
    with call.store.change(call.now) as cluster:
        for word in _ids(words):
            for job in _own(cluster, call, word):
                if job.state == "PENDING":
                    job.held = "admin" if call.user == "root" else "user"
                    job.reason = "JobHeldAdmin" if call.user == "root" else "JobHeldUser"
                    job.expected, job.planned = 0, []
                    cluster.touch(job)
    return 0


def _release(call: Call, words: list[str]) -> int:
    with call.store.change(call.now) as cluster:
        for word in _ids(words):
            for job in _own(cluster, call, word):
                if job.held == "admin" and call.user != "root":
                    raise Refused(f"{DENIED} for job {job.id}")
                job.held, job.reason = "", "None"
                job.begin = 0
                cluster.touch(job)
    tick_if_due(call.store, call.now, force=True)
    return 0


def _requeue(call: Call, words: list[str]) -> int:
    hit: list[Job] = []
    with call.store.change(call.now) as cluster:
        for word in _ids(words):
            for job in _own(cluster, call, word):
                if job.state == "RUNNING":
                    hit.append(Job(**job.packed()))
                    requeue(cluster, job, "REQUEUED", int(call.now))
                elif job.live:
                    raise Refused(f"Job is pending execution for job {job.id}")
    for job in hit:
        stop(call.store.directory, job)
    return 0


def _requeue_and_hold(call: Call, words: list[str]) -> int:
    return _requeue(call, words) or _hold(call, words)


def _ids(words: list[str]) -> list[str]:
    if not words:
        raise Refused("too few arguments for keyword")
    return [word for each in words for word in each.split(",") if word]


def _pairs(words: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise Refused(f"Invalid input: {word}  Request aborted")
        pairs[name.lower()] = value
    return pairs


def _update(call: Call, words: list[str]) -> int:
    pairs = _pairs(words)
    with call.store.change(call.now) as cluster:
        if "jobid" in pairs:
            for job in _own(cluster, call, pairs.pop("jobid")):
                _update_job(call, cluster, job, pairs)
        elif "nodename" in pairs:
            _update_nodes(call, cluster, pairs)
        elif "partitionname" in pairs:
            _update_partition(call, cluster, pairs)
        else:
            raise Refused(
                "No valid entity in update command\n"
                'Input line must include "NodeName", "JobId" or "PartitionName"'
            )
    tick_if_due(call.store, call.now, force=True)
    return 0


def _update_job(call: Call, cluster: Cluster, job: Job, pairs: dict[str, str]) -> None:
    for name, value in pairs.items():
        if name == "timelimit":
            _update_limit(call, job, value)
        elif name in {"name", "jobname"}:
            job.name = value
        elif name == "comment":
            job.comment = value
        elif name == "nice":
            job.nice = int(value or 100)
        elif name == "partition":
            if not set(value.split(",")) <= cluster.partitions.keys():
                raise Refused(f"Invalid partition name specified for job {job.id}")
            job.partitions, job.partition = value.split(","), value.split(",")[0]
        elif name in {"starttime", "begin"}:
            job.begin = read_moment(value, int(call.now))
        elif name == "priority" and call.user == "root":
            job.held, job.base_priority = ("admin", job.base_priority) if value == "0" else ("", int(value))
        else:
            raise Refused(f"Invalid input: {name}={value}  Request aborted")
    cluster.touch(job)


def _update_limit(call: Call, job: Job, value: str) -> None:
    """Set a time limit, or add to it with `+`; only root may lengthen it."""
    limit = read_span(value.lstrip("+"))
    limit = job.limit + limit if value.startswith("+") else limit
    if call.user != "root" and (limit == 0 or limit > job.limit > 0):
        raise Refused(f"{DENIED} for job {job.id}")
    job.limit = limit


def _update_nodes(call: Call, cluster: Cluster, pairs: dict[str, str]) -> None:
    _only_root(call)
    state, reason = pairs.get("state", "").upper(), pairs.get("reason", "")
    if state in {"DRAIN", "DOWN", "FAIL"} and not reason:
        raise Refused("You must specify a reason when DOWNING or DRAINING a node. Request denied")
    for name in _hosts(pairs["nodename"]):
        node = cluster.nodes.get(name)
        if node is None:
            raise Refused(f"Invalid node name specified: {name}")
        _set_node(cluster, node, state, reason, int(call.now))
    cluster.nodes_changed = True


def _set_node(cluster: Cluster, node: Node, state: str, reason: str, now: int) -> None:
    if state in {"RESUME", "IDLE", "UNDRAIN"}:
        node.flags, node.reason, node.reason_at = [], "", 0
        return
    if state not in {"DRAIN", "DOWN", "FAIL"}:
        raise Refused(f"Invalid node state specified: {state}")
    node.flags = sorted({*node.flags, state})
    node.reason, node.reason_user, node.reason_at = reason, "root", now
    if state == "DOWN":
        for job in [j for j in cluster.jobs if j.state == "RUNNING" and node.name in j.alloc]:
            if job.requeue:
                requeue(cluster, job, "NODE_FAIL", now)
            else:
                finish(cluster, job, "NODE_FAIL", now)
                job.reason = "NodeDown"


def _update_partition(call: Call, cluster: Cluster, pairs: dict[str, str]) -> None:
    _only_root(call)
    part = cluster.partitions.get(pairs["partitionname"])
    state = pairs.get("state", "").upper()
    if part is None or state not in {"UP", "DOWN", "DRAIN", "INACTIVE"}:
        raise Refused("slurm_update error: Invalid partition name specified")
    part.state = state
    cluster.nodes_changed = True


def _create(call: Call, words: list[str]) -> int:
    _only_root(call)
    pairs = _pairs([word for word in words if word.lower() not in {"reservation", "reservationname"}])
    now = int(call.now)
    start = read_moment(pairs.get("starttime", "now"), now)
    with call.store.change(call.now) as cluster:
        names = list(cluster.nodes) if pairs.get("nodes", "") == "ALL" else _hosts(pairs.get("nodes", ""))
        if not names or any(name not in cluster.nodes for name in names):
            raise Refused("Error creating the reservation: Invalid node name specified")
        one = Reservation(
            name=pairs.get("reservationname", f"{pairs.get('users', 'root')}_{now}"),
            start=start,
            end=start + read_span(pairs.get("duration", "60")),
            nodes=names,
            flags=[*[f.upper() for f in pairs.get("flags", "").split(",") if f], "SPEC_NODES"],
            users=[u for u in pairs.get("users", "").split(",") if u],
            accounts=[a for a in pairs.get("accounts", "").split(",") if a],
        )
        cluster.reservations.append(one)
        cluster.nodes_changed = True
    call.say(f"Reservation created: {one.name}")
    return 0


def _delete(call: Call, words: list[str]) -> int:
    _only_root(call)
    name = _pairs(words).get("reservationname", _pairs(words).get("reservation", ""))
    with call.store.change(call.now) as cluster:
        if name not in {r.name for r in cluster.reservations}:
            raise Refused("Error deleting the reservation: The requested reservation is invalid")
        cluster.reservations = [r for r in cluster.reservations if r.name != name]
        cluster.nodes_changed = True
    return 0


def _only_root(call: Call) -> None:
    if call.user != "root":
        raise Refused(f"slurm_update error: {DENIED}")
