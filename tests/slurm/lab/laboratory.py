"""The lab as a whole: several clusters started together, in seconds, and ended by one signal."""

import json
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.slurm.lab import daemons, database
from tests.slurm.lab.cluster import Cluster
from tests.slurm.lab.configuration import write_site
from tests.slurm.lab.layout import PORTS_PER_SITE, Layout, PortRange, lacking, write_users
from tests.slurm.lab.namespace import Namespace, until
from tests.slurm.lab.sites import SITES, Site, scale_site

OWNER = "owner.json"


class Lab:
    """Running clusters by name. Several labs may run side by side."""

    def __init__(self, *, layout: Layout, space: Namespace, clusters: Sequence[Cluster]) -> None:
        self.layout = layout
        self.space = space
        self.clusters = {cluster.name: cluster for cluster in clusters}

    def __getitem__(self, name: str) -> Cluster:
        return self.clusters[name]

    @classmethod
    def start(
        cls,
        sites: Sequence[Site] = SITES,
        *,
        accounting: bool = True,
        root: Path | None = None,
        attached: bool = True,
    ) -> "Lab":
        """Start the clusters and return when every node is idle.

        Args:
            sites: What to start; any part of `SITES`, or clusters of one's own.
            accounting: With slurmdbd and MariaDB. Without, associations do not exist.
            root: Run directory to make (short: sockets lie below it); None makes one in /tmp.
            attached: The lab ends with this process, however it ends.

        Raises:
            RuntimeError: the machine lacks something, or a daemon did not start.
        """
        if gaps := lacking():
            raise RuntimeError("real Slurm needs: " + ", ".join(gaps))
        if root is None:
            root = Path(tempfile.mkdtemp(prefix="facet-slurm-", dir="/tmp"))
        else:
            root.mkdir(parents=True)
        root.chmod(0o755)
        ports = PortRange(size=_port_count(sites))
        try:
            layout = Layout(root=root, port_base=ports.base)
            space = Namespace.start(root, attached=attached, keep=[ports.fileno])
        finally:
            ports.release()
        lab = cls(layout=layout, space=space, clusters=_clusters(layout, space, sites, accounting=accounting))
        try:
            lab._bring_up(accounting=accounting)
        except BaseException:
            space.stop()
            raise
        return lab

    @classmethod
    def scale_controller(cls, *, nodes: int = 200, jobs: int = 10_000, attached: bool = True) -> "Lab":
        """Start one controller alone, named `scale`, with cloud nodes and `jobs` pending job records."""
        lab = cls.start([scale_site(nodes=nodes)], accounting=False, attached=attached)
        cluster = lab["scale"]
        # One array is one record until its tasks are told apart; a new name does that, and is fast.
        words = ("--begin=now+16hours", "-o", "/dev/null", f"--array=0-{jobs - 1}", "--wrap", "true")
        array = cluster.ask("sbatch", "--parsable", *words)
        for first in range(0, jobs, 1000):
            last = min(first + 999, jobs - 2)  # the one left over is a record already
            cluster.ask("scontrol", "update", f"jobid={array}_[{first}-{last}]", f"name=sweep{first // 1000}")
        return lab

    @classmethod
    def attach(cls, root: Path) -> "Lab":
        """Return a lab that another process started detached.

        Raises:
            FileNotFoundError: no lab was started there, or it ended.
        """
        kept = json.loads((root / OWNER).read_text())
        space = Namespace(root=root, owner=kept["owner"], inode=kept["inode"])
        if not space.is_running():
            raise FileNotFoundError(f"{root}: the lab has ended")
        known = {site.name: site for site in (*SITES, scale_site(nodes=kept["scale_nodes"]))}
        sites = [known[name] for name in kept["sites"]]
        layout = Layout(root=root, port_base=kept["port_base"])
        return cls(
            layout=layout,
            space=space,
            clusters=_clusters(layout, space, sites, accounting=kept["accounting"]),
        )

    def stop(self, *, keep: bool = False) -> None:
        """End every process of the lab at once; `keep` leaves its files and logs."""
        self.space.stop()
        if not keep:
            shutil.rmtree(self.layout.root, ignore_errors=True)

    def reset(self) -> None:
        """Reset every cluster, side by side."""
        with ThreadPoolExecutor(len(self.clusters)) as pool:
            list(pool.map(Cluster.reset, self.clusters.values()))

    def _bring_up(self, *, accounting: bool) -> None:
        write_users(self.layout)
        clusters = list(self.clusters.values())
        for cluster in clusters:
            write_site(cluster.site, cluster.place, accounting=accounting)
            self.space.spawn(daemons.munged(cluster.name, cluster.place))
        if accounting:
            database.restore(self.layout, [cluster.site for cluster in clusters])
            self.space.spawn(daemons.mariadbd(self.layout))
            until(lambda: daemons.is_listening(self.layout.database_port), "mariadbd")
        with ThreadPoolExecutor(len(clusters)) as pool:
            list(pool.map(self._bring_up_one, clusters))
        self._write_owner(accounting=accounting)

    def _bring_up_one(self, cluster: Cluster) -> None:
        site, place = cluster.site, cluster.place
        until(lambda: daemons.is_munge_answering(place), f"munged of {site.name}")
        if cluster.accounting:
            self.space.spawn(daemons.slurmdbd(site.name, place))
            until(lambda: daemons.is_listening(place.database_daemon_port), f"slurmdbd of {site.name}")
        self.space.spawn(daemons.slurmctld(site.name, place))
        until(lambda: daemons.is_listening(place.controller_port), f"slurmctld of {site.name}")
        if not site.is_cloud:
            self.space.spawn(*[daemons.slurmd(site.name, place, node) for node in site.node_names])
        cluster.wait_idle(timeout=90)

    def _write_owner(self, *, accounting: bool) -> None:
        nodes = [len(c.site.node_names) for c in self.clusters.values() if c.site.is_cloud]
        kept = {
            "owner": self.space.owner,
            "inode": self.space.inode,
            "port_base": self.layout.port_base,
            "sites": list(self.clusters),
            "accounting": accounting,
            "scale_nodes": nodes[0] if nodes else 1,
        }
        (self.layout.root / OWNER).write_text(json.dumps(kept))


def _port_count(sites: Sequence[Site]) -> int:
    for site in sites:
        if not site.is_cloud and len(site.node_names) + 2 > PORTS_PER_SITE:
            raise ValueError(f"{site.name}: more nodes than ports ({PORTS_PER_SITE})")
    return 1 + PORTS_PER_SITE * len(sites)


def _clusters(layout: Layout, space: Namespace, sites: Sequence[Site], *, accounting: bool) -> list[Cluster]:
    return [
        Cluster(site, layout.site(site, index), space, accounting=accounting)
        for index, site in enumerate(sites)
    ]
