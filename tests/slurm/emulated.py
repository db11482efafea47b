"""The emulated Slurm with the nodes, partitions and accounts of a cluster of the lab."""

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from providers.contracts import Link
from providers.links.local import LocalLink
from providers.sandbox.slurm import faults, setup
from providers.sandbox.slurm.model import Partition
from providers.sandbox.slurm.spec import ClusterSpec, NodeGroup
from providers.sandbox.slurm.store import Store
from tests.slurm.lab import sites


def spec(site: sites.Site) -> ClusterSpec:
    """Return a quiet emulated cluster of the same shape."""
    return ClusterSpec(
        name=site.name,
        nodes=tuple(_group(group) for group in site.nodes),
        partitions=tuple(_partition(part, site) for part in site.partitions),
        accounts=site.accounts,
        users={"root": 0, **sites.USERS},
    )


def _group(group: sites.NodeGroup) -> NodeGroup:
    gpus = []
    for entry in filter(None, group.gres.split(",")):
        _, *kind, count = entry.split(":")
        gpus.append((kind[0] if kind else "", int(count)))
    return NodeGroup(
        group.expression,
        group.sockets,
        group.cores_per_socket,
        group.memory_mib,
        tuple(gpus),
        tuple(group.features.split(",")),
    )


def _partition(words: Mapping[str, str], site: sites.Site) -> Partition:
    expressions = [group.expression for group in site.nodes] if words["Nodes"] == "ALL" else [words["Nodes"]]
    return Partition(
        name=words["PartitionName"],
        nodes=expressions,
        default=words.get("Default") == "YES",
        hidden=words.get("Hidden") == "YES",
        max_time=_seconds(words["MaxTime"]),
        default_time=_seconds(words["DefaultTime"]),
        tier=int(words.get("PriorityTier", "1")),
        exclusive=words.get("OverSubscribe") == "EXCLUSIVE",
        allow_groups=[words["AllowGroups"]] if "AllowGroups" in words else [],
        preempt=words.get("PreemptMode", "OFF"),
        grace=int(words.get("GraceTime", "0")),
    )


def _seconds(limit: str) -> int:
    """Return `D-HH:MM:SS` or `HH:MM:SS` in seconds; 0 for UNLIMITED."""
    if limit == "UNLIMITED":
        return 0
    days, _, clock = limit.rpartition("-")
    hours, minutes, seconds = map(int, clock.split(":"))
    return int(days or 0) * 86_400 + hours * 3600 + minutes * 60 + seconds


class EmulatedSite:
    """An emulated cluster in a directory of its own."""

    def __init__(self, root: Path, site: sites.Site) -> None:
        self._root, self._cluster = root, str(root / "cluster")
        setup.create(self._cluster, spec(site), seed=1)

    def env(self, user: str) -> dict[str, str]:
        """Return the variables that let any program of `user` reach it."""
        return setup.env(self._cluster, user=user)

    def link(self, user: str) -> Link:
        return LocalLink(env=self.env(user))

    def scratch(self, user: str) -> Path:
        place = self._root / f"{user}-{len(list(self._root.iterdir()))}"
        place.mkdir()
        return place

    def run(self, user: str, *argv: str) -> str:
        done = subprocess.run(
            argv,
            env=dict(os.environ) | self.env(user),
            cwd=self._root,
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        )
        return done.stdout.rstrip("\n")

    def kill_controller(self) -> None:
        faults.switch_on(self._cluster, "controller_dead")

    def freeze_controller(self) -> None:
        faults.switch_on(self._cluster, "controller_frozen")

    def kill_accounting(self) -> None:
        faults.switch_on(self._cluster, "database_dead")

    def node_down(self, node: str) -> None:
        self.run("root", "scontrol", "update", f"nodename={node}", "state=down", "reason=power supply failed")

    def expire(self, job_id: str) -> None:
        now = int(time.time())
        store = Store(self._cluster)
        with store.change(now) as cluster:  # below a minute, which no command can ask for
            [job] = [each for each in cluster.jobs if each.id == int(job_id)]
            job.limit = now - job.start + 1
            cluster.touch(job)
        store.close()

    def close(self) -> None:
        """End every job that still runs."""
        for fault in faults.NAMES:
            faults.switch_off(self._cluster, fault)
        for user in sites.USERS:
            self.run("root", "scancel", "--user", user)
