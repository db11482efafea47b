"""Small federations for placement tests: records and envelopes with plain defaults, and strategies over them.

The strategies lean towards feasible, tied views: random ones are almost never feasible and prove nothing.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from federation.types import (
    ChargeRule,
    Health,
    NodeView,
    PartitionQueue,
    PendingShare,
    ResourceRecord,
    RunningShare,
    UserLimits,
)
from orchestrator.envelope.types import Accelerator, Envelope, Policy, Range
from orchestrator.placement.model import PlacementModel

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
MODEL = PlacementModel()


def node(name: str = "n1", **changes: Any) -> NodeView:
    """Return an idle node with 64 CPUs, 256 GiB and 4 A100 of 40 GiB, all free unless said otherwise."""
    figures: dict[str, Any] = {"cpus": 64, "memory_mib": 262_144, "gpus": 4} | changes
    figures.setdefault("cpus_free", figures["cpus"])
    figures.setdefault("memory_free_mib", figures["memory_mib"])
    figures.setdefault("gpus_free", figures["gpus"])
    if figures["gpus"]:
        figures.setdefault("gpu_type", "a100")
        figures.setdefault("gpu_memory_mib", 40_960)
    figures.setdefault("is_up", True)
    figures.setdefault("is_usable", True)
    return NodeView(name=name, **figures)


def record(system: str = "delta", partition: str = "gpu", **changes: Any) -> ResourceRecord:
    """Return a healthy record of two idle GPU nodes, seen just now."""
    plain: dict[str, Any] = {
        "account": "abc",
        "qos": None,
        "snapshot_id": None,
        "observed_at": NOW,
        "max_age_s": 600,
        "health": Health.ONLINE,
        "is_connected": True,
        "access_denied": None,
        "has_allocation": True,
        "blocked": None,
        "partition_state": "up",
        "architecture": "x86_64",
        "nodes": (node("n1"), node("n2")),
        "queue": PartitionQueue(),
        "max_walltime_s": 172_800,
        "max_nodes": None,
        "is_exclusive": False,
        "limits": UserLimits(),
    }
    return ResourceRecord(system=system, partition=partition, **(plain | changes))


def bounds(least: int, most: int | None = None) -> Range:
    """Return a range; without a maximum, of one value."""
    return Range(min=least, max=least if most is None else most)


def envelope(**changes: Any) -> Envelope:
    """Return a request for one GPU, 8 CPUs and one hour."""
    plain: dict[str, Any] = {"gpus": bounds(1), "cpus": bounds(8), "walltime_s": bounds(3600)}
    return Envelope(**(plain | changes))


def running(*names: str, ends_in_s: int = 3600, **changes: Any) -> RunningShare:
    """Return a job that holds the named nodes whole and reaches its limit in so many seconds."""
    plain: dict[str, Any] = {"user": "bob", "cpus_per_node": 64, "memory_per_node_mib": 262_144} | changes
    plain.setdefault("gpus_per_node", 4)
    return RunningShare(
        node_names=names, start_at=NOW - timedelta(seconds=600), walltime_s=600 + ends_in_s, **plain
    )


def pending(**changes: Any) -> PendingShare:
    """Return an eligible waiting job of one whole node for an hour, at priority 100."""
    plain: dict[str, Any] = {
        "user": "eve",
        "nodes": 1,
        "cpus": 64,
        "memory_mib": 1024,
        "gpus": 4,
        "gpu_type": None,
        "walltime_s": 3600,
        "priority": 100,
        "submit_at": NOW - timedelta(seconds=60),
        "is_eligible": True,
    }
    return PendingShare(**(plain | changes))


def busy(name: str, **changes: Any) -> NodeView:
    """Return a node with nothing free."""
    return node(name, cpus_free=0, memory_free_mib=0, gpus_free=0, **changes)


def now_by_limits_alone(system: str = "delta", **changes: Any) -> ResourceRecord:
    """Return a place where an hour fits before a wide job ahead of ours, unless jobs end early as usual.

    By limits the wide job begins in 5400 s, and ours now; by means it takes both nodes from 2700 to 4500 s.
    """
    wide = pending(nodes=2, cpus=128, gpus=8)
    queue = PartitionQueue(running=(running("n1", ends_in_s=5400),), pending=(wide,))
    return record(system, nodes=(busy("n1"), node("n2")), queue=queue, own_priority=50, **changes)


# --- strategies ----------------------------------------------------------------------------------


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """Draw the usual value three times out of four."""
    return st.sampled_from([usual] * (3 * len(others) or 1) + list(others))


@st.composite
def records(draw: st.DrawFn, system: str, partition: str) -> ResourceRecord:
    """Draw a record that is mostly feasible, mostly idle, and mostly like its neighbours."""
    exclusive = draw(mostly(False, True))
    nodes, shares = [], []
    gpus, cpus = draw(mostly(4, 2, 1)), draw(mostly(64, 16))
    gpu_memory_mib = draw(mostly(40_960, 81_920))
    for index in range(draw(st.integers(1, 4))):
        name = f"n{index}"
        if draw(mostly(False, True)):
            nodes.append(busy(name, gpus=gpus, cpus=cpus, gpu_memory_mib=gpu_memory_mib))
            ends = draw(st.sampled_from([20, 100, 600, 3600]))
            shares.append(running(name, ends_in_s=ends, cpus_per_node=cpus, gpus_per_node=gpus))
        else:
            nodes.append(
                node(
                    name,
                    gpus=gpus,
                    cpus=cpus,
                    gpu_memory_mib=gpu_memory_mib,
                    is_up=draw(mostly(True, False)),
                )
            )
    waiting = draw(
        st.lists(
            st.builds(
                pending,
                nodes=st.integers(1, 2),
                cpus=st.integers(1, 16),
                gpus=st.integers(0, 2),
                walltime_s=st.sampled_from([600, 3600]),
                priority=st.sampled_from([50, 100]),
                is_eligible=st.booleans(),
            ),
            max_size=draw(mostly(0, 3)),
        )
    )
    return record(
        system,
        partition,
        nodes=tuple(nodes),
        queue=PartitionQueue(running=tuple(shares), pending=tuple(waiting)),
        is_exclusive=exclusive,
        health=draw(mostly(Health.ONLINE, Health.OFFLINE)),
        max_walltime_s=draw(mostly(172_800, 1800)),
        charge=draw(
            mostly(
                ChargeRule(unit="SU", per_gpu=Decimal(1)),
                ChargeRule(unit="SU", per_gpu=Decimal(3)),
                ChargeRule(unit="NH", per_node=Decimal(1)),
                None,
            )
        ),
        credit_left=draw(mostly(Decimal(100), Decimal(50), Decimal(2), None)),
        dispatch_s=draw(mostly(0, 3, 4, 8)),
        limits=UserLimits(max_gpus_per_job=draw(mostly(None, 2)), max_nodes_per_job=draw(mostly(None, 1))),
        max_nodes=draw(mostly(None, 1, 2)),
    )


NAMES = [("delta", "gpu"), ("anvil", "ai"), ("vista", "gh"), ("delta", "cpu"), ("deltaai", "ghx4")]


@st.composite
def federations(draw: st.DrawFn, *, least: int = 1) -> list[ResourceRecord]:
    """Draw up to five records of different names: each for itself, or all alike but for what breaks ties."""
    count = draw(st.integers(least, len(NAMES)))
    if draw(st.booleans()):
        return [draw(records(*name)) for name in NAMES[:count]]
    base = replace(draw(records(*NAMES[0])), health=Health.ONLINE)
    free = draw(st.booleans())
    return [draw(twins(base, *name, free=free)) for name in NAMES[:count]]


@st.composite
def twins(
    draw: st.DrawFn, base: ResourceRecord, system: str, partition: str, *, free: bool
) -> ResourceRecord:
    """Draw the same record under another name, with its own credit, accelerator memory and dispatch time."""
    memory_mib = draw(st.sampled_from([40_960, 81_920]))
    return replace(
        base,
        system=system,
        partition=partition,
        nodes=tuple(replace(each, gpu_memory_mib=memory_mib) for each in base.nodes),
        charge=None if free else ChargeRule(unit="SU", per_gpu=Decimal(1)),
        credit_left=draw(st.sampled_from([Decimal(100), Decimal(200), Decimal(400)])),
        dispatch_s=draw(st.sampled_from([0, 0, 4, 8])),
    )


@st.composite
def envelopes(draw: st.DrawFn) -> Envelope:
    """Draw a small request, mostly one that fits."""
    least = draw(st.sampled_from([1, 1, 2, 2, 4, 3, 0]))
    most = max(least, draw(mostly(least, 2, 4, 8)))
    least_cpus = draw(mostly(4, 8))
    wall = draw(mostly(3600, 600))
    return envelope(
        gpus=bounds(least, most),
        cpus=bounds(least_cpus, draw(mostly(least_cpus, 16, 32))),
        walltime_s=bounds(wall, draw(mostly(wall, 7200))),
        nodes=draw(st.sampled_from([None, None, bounds(1), bounds(1, 2), bounds(2)])),
        accelerator=draw(mostly(None, Accelerator(types=("a100",)), Accelerator(types=("h100",)))),
        policy=Policy(
            prefer=draw(mostly((), ("vista", "anvil"))),
            max_charge=draw(mostly({}, {"delta": Decimal(2)})),
        ),
    )
