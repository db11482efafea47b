"""The clusters of the lab as data: nodes, partitions, QoS, accounts and users.

Shaped after four published systems, small enough for one machine. Memory is MiB, as slurm.conf has it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

USERS: Mapping[str, int] = {"alice": 20001, "bob": 20002, "carol": 20003, "dave": 20004, "svcgw": 20010}
"""Users and their uid (and gid). `dave` has no account anywhere."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one shape, `prefix` + three digits from 001; `gres` as slurm.conf spells it, "" for none."""

    prefix: str
    count: int
    sockets: int
    cores_per_socket: int
    memory_mib: int
    gres: str
    features: str

    @property
    def names(self) -> tuple[str, ...]:
        """Every node name."""
        return tuple(f"{self.prefix}{i:03d}" for i in range(1, self.count + 1))

    @property
    def expression(self) -> str:
        """The names as one Slurm host list."""
        return f"{self.prefix}[001-{self.count:03d}]" if self.count > 1 else f"{self.prefix}001"


@dataclass(frozen=True, slots=True)
class Site:
    """One cluster. `partitions` and `extra` as slurm.conf has them; `qos` maps a name to its settings."""

    name: str
    nodes: tuple[NodeGroup, ...]
    partitions: tuple[Mapping[str, str], ...]
    accounts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    qos: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    is_cloud: bool = False
    """A controller alone: its nodes are `State=CLOUD` and have no daemon."""

    @property
    def node_names(self) -> tuple[str, ...]:
        """Every node of the cluster."""
        return tuple(name for group in self.nodes for name in group.names)


def _part(name: str, nodes: str, **settings: str) -> dict[str, str]:
    return {"PartitionName": name, "Nodes": nodes, "DefaultTime": "00:30:00", "State": "UP"} | settings


DELTA = Site(
    name="delta",
    nodes=(
        NodeGroup("gpua", 8, 2, 32, 256_000, "gpu:a100:4", "a100,nvlink,x86"),
        NodeGroup("gpub", 8, 2, 32, 256_000, "gpu:a40:4", "a40,x86"),
        NodeGroup("gpuc", 1, 2, 64, 2_000_000, "gpu:a100:8", "a100,nvlink,bigmem,x86"),
        NodeGroup("gpux", 1, 2, 32, 256_000, "gpu:a100:2,gpu:a40:2", "a100,a40,mixedgpu,x86"),
        NodeGroup("cn", 4, 2, 64, 256_000, "", "cpu,x86"),
    ),
    partitions=(
        _part("gpuA100x4", "gpua[001-008]", Default="YES", MaxTime="2-00:00:00", PriorityTier="10"),
        _part("gpuA100x4-interactive", "gpua[001-008]", MaxTime="01:00:00", PriorityTier="20"),
        _part(
            "gpuA100x4-preempt",
            "gpua[001-008]",
            MaxTime="2-00:00:00",
            PriorityTier="1",
            PreemptMode="REQUEUE",
            GraceTime="60",
        ),
        _part("gpuA40x4", "gpub[001-008]", MaxTime="2-00:00:00", PriorityTier="10"),
        _part("gpuA100x8", "gpuc001", MaxTime="2-00:00:00"),
        _part("gpuMixed", "gpux001", MaxTime="12:00:00"),
        _part("cpu", "cn[001-004]", MaxTime="2-00:00:00"),
        _part("maintq", "ALL", MaxTime="UNLIMITED", Hidden="YES", AllowGroups="root"),
    ),
    accounts={"bbka-delta-gpu": ("alice", "bob", "svcgw"), "bbka-delta-cpu": ("alice", "carol")},
    extra=("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE"),
)

DELTAAI = Site(
    name="deltaai",
    nodes=(NodeGroup("gh", 12, 4, 72, 860_000, "gpu:gh200:4", "gh200,aarch64"),),
    partitions=(
        _part(
            "ghx4",
            "gh[001-012]",
            Default="YES",
            MaxTime="2-00:00:00",
            DefMemPerGPU="200000",
            DefCpuPerGPU="72",
        ),
        _part("ghx4-interactive", "gh[001-012]", MaxTime="02:00:00", PriorityTier="20"),
    ),
    accounts={"bbka-dtai-gh": ("alice", "bob", "svcgw")},
    extra=("MinJobAge=5",),  # the controller soon forgets: what happened is then known to accounting alone
)

ANVIL = Site(
    name="anvil",
    nodes=(
        NodeGroup("a", 4, 2, 64, 257_000, "", "cpu,A"),
        NodeGroup("g", 4, 2, 64, 512_000, "gpu:4", "gpu,G,a100"),  # GPUs without a type, as there
        NodeGroup("h", 3, 2, 48, 1_030_000, "gpu:h100:4", "gpu,H,h100"),
    ),
    partitions=(
        _part("shared", "a[001-004]", Default="YES", MaxTime="4-00:00:00", MaxNodes="1"),
        _part("wholenode", "a[001-004]", MaxTime="4-00:00:00", OverSubscribe="EXCLUSIVE"),
        _part("debug", "a[001-002]", MaxTime="02:00:00", QOS="debug"),
        _part("gpu", "g[001-004]", MaxTime="2-00:00:00", AllowAccounts="cis220051-gpu", QOS="gpu"),
        _part("gpu-debug", "g[001-002]", MaxTime="00:30:00", AllowAccounts="cis220051-gpu", QOS="debug"),
        _part("ai", "h[001-003]", MaxTime="2-00:00:00", AllowAccounts="cis220051-ai", QOS="ai"),
    ),
    accounts={
        "cis220051": ("alice", "bob"),
        "cis220051-gpu": ("alice", "svcgw"),
        "cis220051-ai": ("alice", "bob"),
    },
    qos={
        "debug": ("Priority=1000", "MaxWall=02:00:00", "MaxSubmitJobsPerUser=2", "MaxJobsPerUser=1"),
        "gpu": ("MaxTRESPerUser=gres/gpu=12",),
        "ai": ("MaxTRESPerUser=gres/gpu=8", "GrpTRES=gres/gpu=10"),
    },
)

VISTA = Site(
    name="vista",
    nodes=(
        NodeGroup("c608-", 12, 1, 72, 237_000, "gpu:gh200:1", "gh200,aarch64"),
        NodeGroup("c640-", 4, 2, 72, 237_000, "", "gg,aarch64"),
    ),
    partitions=(
        _part("gh", "c608-[001-012]", Default="YES", MaxTime="2-00:00:00", OverSubscribe="EXCLUSIVE"),
        _part(
            "gh-dev",
            "c608-[001-004]",
            MaxTime="02:00:00",
            OverSubscribe="EXCLUSIVE",
            MaxNodes="2",
            PriorityTier="20",
        ),
        _part("gg", "c640-[001-004]", MaxTime="2-00:00:00", OverSubscribe="EXCLUSIVE"),
    ),
    accounts={"ASC24001": ("alice", "bob", "svcgw")},
)

SITES: tuple[Site, ...] = (DELTA, DELTAAI, ANVIL, VISTA)


def scale_site(*, nodes: int = 200) -> Site:
    """Return a cluster of `nodes` cloud nodes with four GPUs each, for measuring reads at scale."""
    return Site(
        name="scale",
        nodes=(NodeGroup("n", nodes, 2, 32, 256_000, "gpu:a100:4", "a100"),),
        partitions=(_part("batch", f"n[001-{nodes:03d}]", Default="YES", MaxTime="2-00:00:00"),),
        extra=(
            "PrivateData=cloud",
            "SuspendProgram=/bin/true",
            "ResumeProgram=/bin/true",
            "SuspendTime=64800",
            "ResumeTimeout=64800",  # at most 65535
            "SuspendTimeout=10",
        ),
        is_cloud=True,
    )
