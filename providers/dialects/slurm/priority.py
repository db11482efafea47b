"""What a fresh job's priority would be made of: fair share, partition and QoS, weighed by the configuration.

A job gains its age part only while it waits. Parts for size and TRES depend on the job; they are left out.

Source: Slurm's Multifactor Priority Plugin ("Job Priority Factors In General"), slurm.conf(5)
PriorityWeight*, 20.11 to 25.11.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from providers.types import Association, Partition, Qos


class Weights(NamedTuple):
    """Points that the largest factor of each kind gives."""

    fair_share: int
    partition: int
    qos: int


def read_weights(config: Mapping[str, str]) -> Weights | None:
    """Return the weights of `scontrol show config`; None where priority is not made so, or is not told."""
    if config.get("PriorityType") != "priority/multifactor":
        return None
    words = [config.get(f"PriorityWeight{part}", "") for part in ("FairShare", "Partition", "QOS")]
    if not all(word.isdecimal() for word in words):
        return None
    return Weights(*(int(word) for word in words))


def weigh_associations(found: Iterable[Association], weights: Weights) -> tuple[Association, ...]:
    """Return associations with the points that their fair share gives; none where it is not known."""
    return tuple(
        each
        if each.fairshare is None
        else each.model_copy(update={"priority_points": int(weights.fair_share * each.fairshare)})
        for each in found
    )


def weigh_partitions(found: Iterable[Partition], weights: Weights) -> tuple[Partition, ...]:
    """Return partitions with the points of their job factor, relative to the largest of all."""
    kept = tuple(found)
    most = max((each.job_factor or 0 for each in kept), default=0)
    return tuple(
        each
        if each.job_factor is None
        else each.model_copy(
            update={"priority_points": weights.partition * each.job_factor // most if most else 0}
        )
        for each in kept
    )


def weigh_qos(found: Iterable[Qos], weights: Weights) -> tuple[Qos, ...]:
    """Return QoS with the points of their priority, relative to the largest of all."""
    kept = tuple(found)
    most = max((each.priority for each in kept), default=0)
    return tuple(
        each.model_copy(update={"priority_points": weights.qos * each.priority // most if most else 0})
        for each in kept
    )
