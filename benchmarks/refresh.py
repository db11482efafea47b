"""What a refresh costs beside the site's own commands, on real Slurm.

    .venv/bin/python -m benchmarks.refresh [--nodes 200] [--jobs 10000] [--rounds 7]

Prints, from one run: refresh of a system (link, probe, reading, merging) ÷ `sinfo` + `squeue` by hand, and
four systems side by side ÷ the slowest one alone.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from federation.merge import prepare
from federation.profile import ProfileDocument
from providers.dialects.slurm.dialect import SlurmDialect
from providers.links.local import LocalLink
from providers.types import Probe
from tests.slurm.lab.cluster import Cluster
from tests.slurm.lab.laboratory import Lab


def median_s(work: Callable[[], object], rounds: int) -> float:
    """Return the median wall time of some work."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def refreshed(cluster: Cluster, profile: ProfileDocument, user: str) -> Probe:
    """Probe a cluster as the collector does, up to the records that all users share."""
    link, speaks = LocalLink(env=cluster.env(user)), SlurmDialect()
    probe = speaks.read_probe(link.run(speaks.probe(full=False)), now=datetime.now(UTC))
    prepare(profile, probe, None)
    return probe


def profile_of(cluster: Cluster) -> ProfileDocument:
    """Return a profile that lists every partition the cluster has."""
    names = sorted(
        {line.split("|")[0].rstrip("*") for line in cluster.ask("sinfo", "-h", "-o", "%P").split()}
    )
    return ProfileDocument.model_validate(
        {
            "system": "bench",
            "name": "Bench",
            "architecture": "x86_64",
            "partitions": {name: {} for name in names},
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    lab = Lab.scale_controller(nodes=given.nodes, jobs=given.jobs)
    try:
        cluster = lab["scale"]
        profile = profile_of(cluster)

        def by_hand() -> None:
            cluster.ask("sinfo")
            cluster.ask("squeue")

        probe = refreshed(cluster, profile, "alice")
        hand, ours = (
            median_s(by_hand, given.rounds),
            median_s(lambda: refreshed(cluster, profile, "alice"), given.rounds),
        )
        print(f"{len(probe.nodes)} nodes, {len(probe.jobs)} job records")
        print(f"sinfo + squeue by hand  {hand * 1000:8.0f} ms")
        print(f"refresh                 {ours * 1000:8.0f} ms   ratio {ours / hand:.2f} (aim <= 1.3)")
    finally:
        lab.stop()
    side_by_side(given.rounds)


def side_by_side(rounds: int) -> None:
    lab = Lab.start()
    try:
        clusters = [lab[name] for name in ("delta", "deltaai", "anvil", "vista")]
        profiles = {cluster.name: profile_of(cluster) for cluster in clusters}
        alone = {
            cluster.name: median_s(lambda c=cluster: refreshed(c, profiles[c.name], "alice"), rounds)  # type: ignore[misc]  # bound now
            for cluster in clusters
        }

        def together() -> None:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda c: refreshed(c, profiles[c.name], "alice"), clusters))

        all_four, slowest = median_s(together, rounds), max(alone.values())
        print(f"slowest of four alone   {slowest * 1000:8.0f} ms")
        print(
            f"four side by side       {all_four * 1000:8.0f} ms   ratio {all_four / slowest:.2f} (aim <= 1.2)"
        )
    finally:
        lab.stop()


if __name__ == "__main__":
    main()
