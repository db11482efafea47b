"""What a profile says differently from what a probe found: for the person who keeps the profile. Pure.

Live facts win wherever both exist, so nothing here stops work; it tells what is worth correcting.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from federation.merge import PreparedPartition, prepare
from federation.profile import ProfileDocument
from federation.types import NodeView
from providers.types import Partition, Probe


@dataclass(frozen=True, slots=True)
class Difference:
    """One field of the profile beside what the probe found. `note` says what follows from it."""

    field: str
    stated: str
    found: str
    note: str = ""


def differences(
    profile: ProfileDocument, probe: Probe, partitions: Sequence[Partition] | None
) -> tuple[Difference, ...]:
    """Return every difference, partition by partition; these are compared where a full probe asked.

    Args:
        profile: the revision in question.
        probe: a good probe.
        partitions: the scheduler's partition table; None = not known.
    """
    found: list[Difference] = []
    for partition in prepare(profile, probe, partitions).partitions:
        if partition.name in profile.partitions:
            found += _of_partition(profile, partition, table_known=partitions is not None)
    found += _unlisted(profile, partitions or ())
    found += _unknown_qos(profile, probe)
    return tuple(found)


def _of_partition(
    profile: ProfileDocument, partition: PreparedPartition, *, table_known: bool
) -> Iterator[Difference]:
    where = f"partitions.{partition.name}"
    if table_known and partition.live is None:
        yield Difference(
            where, partition.scheduler_name, "no such partition", "no work goes there; remove or rename it"
        )
        return
    yield from _nodes(profile, partition, f"{where}.nodes")
    if partition.live is not None:
        yield from _caps(partition, partition.live, where)


def _nodes(profile: ProfileDocument, partition: PreparedPartition, where: str) -> Iterator[Difference]:
    stated: Counter[str] = Counter()
    for group in partition.profile.nodes:
        kind = profile.node_types[group.type]
        stated[_shape(kind.gpu, kind.gpus, kind.cpus)] += group.count
    found = Counter(_shape(node.gpu_type, node.gpus, node.cpus) for node in partition.nodes)
    if not partition.nodes and partition.profile.features:
        yield Difference(
            f"{where[: -len('nodes')]}features",
            ", ".join(partition.profile.features),
            "no node has all of them",
            "no work goes there",
        )
    elif stated and stated != found:
        yield Difference(where, _counted(stated), _counted(found), "the probe's nodes are used")
    for spelling in sorted(_unknown_gpus(profile, partition.nodes)):
        note = "add a node type, so that its memory is known"
        yield Difference("node_types", "not listed", f"GPU {spelling} in {partition.name}", note)


def _shape(gpu: str | None, gpus: int, cpus: int) -> str:
    return f"{gpus} × {gpu or 'unnamed GPU'}, {cpus} CPUs" if gpus else f"{cpus} CPUs"


def _counted(shapes: Counter[str]) -> str:
    """Return the shapes with their numbers, the most frequent first."""
    lines = [f"{count} node{'s' if count != 1 else ''} of {shape}" for shape, count in shapes.most_common(6)]
    more = len(shapes) - len(lines)
    return "; ".join([*lines, *([f"{more} more kinds"] if more > 0 else [])]) or "no nodes"


def _unknown_gpus(profile: ProfileDocument, nodes: Sequence[NodeView]) -> set[str]:
    known = {word for kind in profile.node_types.values() for word in (kind.gpu, kind.gpu_spelling) if word}
    return {node.gpu_type for node in nodes if node.gpus and node.gpu_type and node.gpu_type not in known}


def _caps(partition: PreparedPartition, live: Partition, where: str) -> Iterator[Difference]:
    stated = partition.profile
    if stated.max_walltime_s and live.max_walltime_s and stated.max_walltime_s != live.max_walltime_s:
        note = "the smaller counts"
        yield Difference(
            f"{where}.max_walltime_s", clock(stated.max_walltime_s), clock(live.max_walltime_s), note
        )
    if stated.max_nodes and live.max_nodes and stated.max_nodes != live.max_nodes:
        yield Difference(
            f"{where}.max_nodes", str(stated.max_nodes), str(live.max_nodes), "the smaller counts"
        )
    if stated.exclusive is not None and stated.exclusive != live.exclusive:
        words = {True: "whole nodes", False: "shared nodes"}
        yield Difference(
            f"{where}.exclusive", words[stated.exclusive], words[live.exclusive], "the profile counts"
        )
    if live.root_only:
        yield Difference(where, "listed", "only root may submit", "no work goes there")


def clock(seconds: int) -> str:
    """Return a length of time as Slurm writes it: [D-]HH:MM:SS."""
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3_600:02}:{rest % 3_600 // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def _unlisted(profile: ProfileDocument, partitions: Sequence[Partition]) -> Iterator[Difference]:
    listed = {profile.scheduler_name(name) for name in profile.partitions}
    note = "not used" if profile.only_listed_partitions else "used, without a charge"
    for partition in sorted(partitions, key=lambda each: each.name):
        if partition.name not in listed and not partition.root_only:
            nodes = f"{partition.nodes_total} node{'s' if partition.nodes_total != 1 else ''}"
            yield Difference(f"partitions.{partition.name}", "not listed", nodes, note)


def _unknown_qos(profile: ProfileDocument, probe: Probe) -> Iterator[Difference]:
    if not probe.qos:
        return
    known = {qos.name for qos in probe.qos}
    for name, partition in profile.partitions.items():
        asked = partition.scheduler_qos or partition.qos
        if asked and asked not in known:
            yield Difference(f"partitions.{name}.qos", asked, "no such QoS in the site's accounting")
    default = profile.policy.default_qos
    if default and default not in known:
        yield Difference("policy.default_qos", default, "no such QoS in the site's accounting")
