"""sinfo: partitions and nodes, node by node or grouped by what is shown.

Source: sinfo(1), recorded output of 22.05.8.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from providers.sandbox.slurm import tres
from providers.sandbox.slurm.call import NEEDS, NONE, Call, Options, Refused, options
from providers.sandbox.slurm.columns import BadFormat, Column, long_columns, short_columns, table
from providers.sandbox.slurm.model import Cluster, Partition
from providers.sandbox.slurm.nodestate import NodeView, views
from providers.sandbox.slurm.text import BadText, clock, host_list, hosts, span

LONGS = {
    "all": NONE, "dead": NONE, "exact": NONE, "format": NEEDS, "Format": NEEDS, "long": NONE,
    "clusters": NEEDS, "nodes": NEEDS, "noheader": NONE, "Node": NONE, "partition": NEEDS, "responding": NONE,
    "list-reasons": NONE, "summarize": NONE, "sort": NEEDS, "states": NEEDS, "hide": NONE, "version": NONE,
}  # fmt: skip
SHORTS = {
    "a": "all", "d": "dead", "e": "exact", "o": "format", "O": "Format", "l": "long", "M": "clusters",
    "n": "nodes", "h": "noheader", "N": "Node", "p": "partition", "r": "responding", "R": "list-reasons",
    "s": "summarize", "S": "sort", "t": "states", "V": "version",
}  # fmt: skip
DEFAULT = "%#P %.5a %.10l %.6D %.6t %N"
LONG = "%#P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"
SUMMARY = "%#P %.5a %.10l %.16F %N"
REASONS = "%20E %9u %19H %N"
BY_NODE = "%#N %.6D %#P %6t "
COUNTED = frozenset("ABCDFNn")
"""Columns that add up over a group instead of splitting it."""
RANGED = frozenset("cdmwXYZzeO")
"""Numbers that a group shows as its least value with a plus (`-e` splits the group instead)."""


class Row:
    """One printed line: a partition and some of its nodes."""

    __slots__ = ("nodes", "part")

    def __init__(self, part: Partition, nodes: list[NodeView]) -> None:
        self.part, self.nodes = part, nodes

    @property
    def names(self) -> list[str]:
        """Return the nodes' names."""
        return [view.node.name for view in self.nodes]


Reader = Callable[[Row], str]


def first(read: Callable[[NodeView], str]) -> Reader:
    """Return what the group's first node shows."""
    return lambda row: read(row.nodes[0]) if row.nodes else "n/a"


def least(read: Callable[[NodeView], int]) -> Reader:
    """Return the least number of the group, with a plus when they differ."""

    def shown(row: Row) -> str:
        values = sorted({read(view) for view in row.nodes})
        return "0" if not values else f"{values[0]}+" if len(values) > 1 else str(values[0])

    return shown


def spread(read: Callable[[NodeView], str]) -> Reader:
    """Return the least and greatest number of the group."""

    def shown(row: Row) -> str:
        values = sorted({read(view) for view in row.nodes}, key=float)
        return "0" if not values else f"{values[0]}-{values[-1]}" if len(values) > 1 else values[0]

    return shown


def readers(version: str) -> dict[str, tuple[str, Reader]]:
    """Return heading and reader of every `-o` code."""
    return {**_codes_to_l(), **_codes_from_m(version)}


def _codes_to_l() -> dict[str, tuple[str, Reader]]:
    return {
        "a": ("AVAIL", lambda r: available(r.part)),
        "A": ("NODES(A/I)", lambda r: "/".join(map(str, node_counts(r)[:2]))),
        "b": ("ACTIVE_FEATURES", first(lambda v: ",".join(v.node.features) or "(null)")),
        "B": ("MAX_CPUS_PER_NODE", lambda _: "UNLIMITED"),
        "c": ("CPUS", least(lambda v: v.node.cpus)),
        "C": ("CPUS(A/I/O/T)", lambda r: "/".join(map(str, cpu_counts(r)))),
        "d": ("TMP_DISK", lambda _: "0"),
        "D": ("NODES", lambda r: str(len(r.nodes))),
        "e": ("FREE_MEM", spread(lambda v: str(v.free_mem))),
        "E": ("REASON", first(lambda v: v.node.reason or "none")),
        "f": ("AVAIL_FEATURES", first(lambda v: ",".join(v.node.features) or "(null)")),
        "F": ("NODES(A/I/O/T)", lambda r: "/".join(map(str, node_counts(r)))),
        "g": ("GROUPS", lambda r: ",".join(r.part.allow_groups) or "all"),
        "G": ("GRES", first(lambda v: tres.gres(v.node))),
        "h": ("OVERSUBSCRIBE", lambda r: "EXCLUSIVE" if r.part.exclusive else "NO"),
        "H": ("TIMESTAMP", first(lambda v: clock(v.node.reason_at, "Unknown"))),
        "I": ("PRIO_JOB_FACTOR", lambda _: "1"),
        "l": ("TIMELIMIT", lambda r: span(r.part.max_time) if r.part.max_time else "infinite"),
        "L": ("DEFAULTTIME", lambda r: span(r.part.default_time) if r.part.default_time else "n/a"),
    }


def _codes_from_m(version: str) -> dict[str, tuple[str, Reader]]:
    return {
        "m": ("MEMORY", least(lambda v: v.node.mem)),
        "M": ("PREEMPT_MODE", lambda r: r.part.preempt),
        "n": ("HOSTNAMES", lambda r: host_list(r.names)),
        "N": ("NODELIST", lambda r: host_list(r.names)),
        "o": ("NODE_ADDR", first(lambda v: v.node.addr or v.node.name)),
        "O": ("CPU_LOAD", spread(lambda v: v.load)),
        "p": ("PRIO_TIER", lambda r: str(r.part.tier)),
        "P": ("PARTITION", lambda r: r.part.name + "*" * r.part.default),
        "r": ("ROOT", lambda _: "no"),
        "R": ("PARTITION", lambda r: r.part.name),
        "s": ("JOB_SIZE", job_size),
        "S": ("ALLOCNODES", lambda _: "all"),
        "t": ("STATE", first(lambda v: v.short)),
        "T": ("STATE", first(lambda v: v.long)),
        "u": ("USER", first(lambda v: v.node.reason_user if v.node.reason_at else "Unknown")),
        "v": ("VERSION", lambda _: version),
        "w": ("WEIGHT", lambda _: "1"),
        "X": ("SOCKETS", least(lambda v: v.node.sockets)),
        "Y": ("CORES", least(lambda v: v.node.cores)),
        "Z": ("THREADS", lambda _: "1"),
        "z": ("S:C:T", first(lambda v: f"{v.node.sockets}:{v.node.cores}:1")),
    }


LONG_NAMES = {
    "available": "a",
    "nodeai": "A",
    "features_act": "b",
    "maxcpuspernode": "B",
    "cpus": "c",
    "cpusstate": "C",
    "disk": "d",
    "nodes": "D",
    "freemem": "e",
    "reason": "E",
    "features": "f",
    "nodeaiot": "F",
    "groups": "g",
    "gres": "G",
    "oversubscribe": "h",
    "timestamp": "H",
    "priorityjobfactor": "I",
    "time": "l",
    "defaulttime": "L",
    "memory": "m",
    "preemptmode": "M",
    "nodehost": "n",
    "nodelist": "N",
    "nodeaddr": "o",
    "cpusload": "O",
    "prioritytier": "p",
    "partition": "P",
    "root": "r",
    "partitionname": "R",
    "size": "s",
    "allocnodes": "S",
    "statecompact": "t",
    "statelong": "T",
    "user": "u",
    "version": "v",
    "weight": "w",
    "sockets": "X",
    "cores": "Y",
    "threads": "Z",
    "socketcorethread": "z",
}


def long_readers(short: dict[str, tuple[str, Reader]], cluster: Cluster) -> dict[str, tuple[str, Reader]]:
    """Return heading and reader of every `-O` field."""
    found = {name: short[code] for name, code in LONG_NAMES.items()}
    found |= {
        "statecomplete": ("STATECOMPLETE", lambda r: r.nodes[0].complete if r.nodes else "n/a"),
        "allocmem": ("ALLOCMEM", lambda r: str(r.nodes[0].held.mem) if r.nodes else "0"),
        "gresused": (
            "GRES_USED",
            lambda r: tres.gres_used(r.nodes[0].node, r.nodes[0].held) if r.nodes else "n/a",
        ),
        "cluster": ("CLUSTER", lambda _: cluster.name),
        "port": ("PORT", lambda r: str(r.nodes[0].node.port) if r.nodes else "0"),
        "userlong": (
            "USER",
            lambda r: (
                f"{r.nodes[0].node.reason_user}(0)" if r.nodes and r.nodes[0].node.reason_at else "Unknown"
            ),
        ),
    }
    return found


def available(part: Partition) -> str:
    """Return up, down, drain or inact."""
    return {"UP": "up", "DOWN": "down", "DRAIN": "drain", "INACTIVE": "inact"}[part.state]


def job_size(row: Row) -> str:
    """Return `1-infinite`, or the limits of nodes per job."""
    low, high = max(1, row.part.min_nodes), row.part.max_nodes
    return str(low) if low == high else f"{low}-{high or 'infinite'}"


def cpu_counts(row: Row) -> list[int]:
    """Return CPUs allocated, idle, other, total of a group."""
    return [sum(view.cpus[place] for view in row.nodes) for place in range(4)]


def node_counts(row: Row) -> list[int]:
    """Return nodes allocated, idle, other, total of a group."""
    taken = idle = 0
    for view in row.nodes:
        if view.base == "DOWN" or ("DRAIN" in view.flags and view.base == "IDLE"):
            continue
        if view.base == "IDLE":
            idle += 1
        else:
            taken += 1
    return [taken, idle, len(row.nodes) - taken - idle, len(row.nodes)]


def run(call: Call) -> int:
    """Print partitions and nodes."""
    given = options("sinfo", call.argv, LONGS, SHORTS)
    cluster = call.store.read(call.now)
    if given.has("version"):
        call.say(f"slurm-wlm {cluster.version}")
        return 0
    if given.rest:
        raise Refused(f"sinfo: error: Unrecognized option: {given.rest[0]}")
    short = readers(cluster.version)
    long = long_readers(short, cluster)
    try:
        if given.has("Format"):
            columns, values = long_columns(given.get("Format"), long), long
        else:
            columns, values = short_columns(given.get("format", usual(given)), short), short
    except BadFormat as bad:
        raise Refused(f"sinfo: error: Invalid node format specification: {bad}") from None
    everything = given.has("all") or call.user == "root"
    rows = selected(cluster, given, int(call.now), columns, values, everything=everything)
    if given.has("long") and not given.has("noheader"):
        call.say(time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(call.now)))
    for line in table(columns, rows, values, header=not given.has("noheader")):
        call.say(line)
    return 0


def usual(given: Options) -> str:
    """Return the format when none is asked for."""
    if given.has("list-reasons"):
        return REASONS
    if given.has("summarize"):
        return SUMMARY
    if given.has("Node"):
        return BY_NODE
    return LONG if given.has("long") else DEFAULT


def selected(
    cluster: Cluster,
    given: Options,
    now: int,
    columns: list[Column],
    values: dict[str, tuple[str, Reader]],
    *,
    everything: bool,
) -> list[Row]:
    """Return the lines: filtered, then one per node and partition (-N) or grouped."""
    seen = views(cluster, now)
    wanted = set(given.names("partition"))
    unknown = wanted - cluster.partitions.keys()
    if unknown:
        return []
    parts = [
        part
        for part in cluster.partitions.values()
        if (part.name in wanted) or (not wanted and (everything or not part.hidden))
    ]
    try:
        only = set(hosts(given.get("nodes"))) if given.has("nodes") else None
    except BadText as bad:
        raise Refused(f"sinfo: error: Invalid node name specified {bad}") from None
    states = {word.lower() for word in given.names("states")}

    def shown(view: NodeView) -> bool:
        word = {view.short.rstrip("*~#%$@^"), view.long.rstrip("*~#%$@^"), view.base.lower()}
        return (
            (only is None or view.node.name in only)
            and (not states or not states.isdisjoint(word | {flag.lower() for flag in view.flags}))
            and not (given.has("responding") and "NOT_RESPONDING" in view.flags)
            and not (given.has("dead") and "NOT_RESPONDING" not in view.flags)
            and not (given.has("list-reasons") and not view.node.reason)
        )

    if given.has("Node"):
        rows = [Row(part, [seen[name]]) for part in parts for name in part.nodes if shown(seen[name])]
        rows.sort(key=lambda row: row.names[0])
        return rows
    rows = [
        row
        for part in parts
        for row in grouped(
            part, [seen[n] for n in part.nodes if shown(seen[n])], columns, values, exact=given.has("exact")
        )
    ]
    return _merged(rows) if given.has("list-reasons") else rows


def grouped(
    part: Partition,
    nodes: list[NodeView],
    columns: list[Column],
    values: dict[str, tuple[str, Reader]],
    *,
    exact: bool,
) -> list[Row]:
    """Return one row per distinct set of shown values, highest state first; an empty partition has one."""
    codes = [
        column.code
        for column in columns
        if _code(column.code) not in COUNTED and (exact or _code(column.code) not in RANGED)
    ]
    by_state = any(_code(code) in {"t", "T", "statecomplete"} for code in codes)
    groups: dict[tuple[object, ...], list[NodeView]] = {}
    for view in nodes:
        key = tuple(values[code][1](Row(part, [view])) for code in codes)
        groups.setdefault(key, []).append(view)
    rows = [Row(part, members) for members in groups.values()]
    if by_state:
        rows.sort(key=lambda row: -max(view.number for view in row.nodes))
    return rows or [Row(part, [])]


def _code(code: str) -> str:
    return LONG_NAMES.get(code, code)


def _merged(rows: list[Row]) -> list[Row]:
    """Return `-R` rows, the same nodes of several partitions once."""
    merged: dict[tuple[str, ...], Row] = {}
    for row in rows:
        if row.nodes:
            merged.setdefault(tuple(row.names), row)
    return list(merged.values())
