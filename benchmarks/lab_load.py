"""Background users on the clusters of the lab: jobs of seconds to minutes, submitted as they come.

What a real system does in hours happens here in minutes: runtimes have a median of three quarters of a
minute, limits are whole minutes as Slurm has them.
"""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Self

from tests.slurm.lab.cluster import Cluster, Refused

MEDIAN_S = 45
SPREAD = 0.7
MEAN_S = MEDIAN_S * math.exp(SPREAD * SPREAD / 2)


@dataclass(frozen=True, slots=True)
class Stream:
    """What one user asks of one partition. `share`: work submitted ÷ capacity."""

    partition: str
    user: str
    account: str
    nodes: int
    per_node: int
    """GPUs of a node, or its CPUs where it has none."""
    share: float
    cpus_per_gpu: int = 0
    """0: the stream asks for CPUs only."""

    @property
    def sizes(self) -> Sequence[int]:
        """Return what jobs ask for on one node, in GPUs or CPUs."""
        return [size for part in (4, 4, 2, 1) if (size := self.per_node // part)]

    @property
    def per_second(self) -> float:
        """Return the jobs a second that make up the share."""
        mean = sum(self.sizes) / len(self.sizes)
        return self.share * self.nodes * self.per_node / (mean * MEAN_S)

    def options(self, size: int, limit_minutes: int) -> tuple[str, ...]:
        """Return sbatch's options for one job."""
        words = ("-p", self.partition, "-A", self.account, "-t", str(limit_minutes), "-N", "1", "-n", "1")
        if not self.cpus_per_gpu:
            return (*words, "-c", str(size))
        return (*words, "-c", str(size * self.cpus_per_gpu), f"--gres=gpu:{size}")


STREAMS: dict[str, tuple[Stream, ...]] = {
    "delta": (
        Stream("gpuA100x4", "bob", "bbka-delta-gpu", 8, 4, 1.15, cpus_per_gpu=16),
        Stream("gpuA40x4", "svcgw", "bbka-delta-gpu", 8, 4, 0.9, cpus_per_gpu=16),
        Stream("cpu", "carol", "bbka-delta-cpu", 4, 128, 0.95),
    ),
    "deltaai": (Stream("ghx4", "bob", "bbka-dtai-gh", 12, 4, 1.25, cpus_per_gpu=72),),
    "anvil": (
        Stream("shared", "bob", "cis220051", 4, 128, 0.9),
        Stream("gpu", "svcgw", "cis220051-gpu", 3, 4, 1.2, cpus_per_gpu=32),
        Stream("ai", "bob", "cis220051-ai", 2, 4, 1.2, cpus_per_gpu=24),
    ),
    "vista": (
        Stream("gh", "bob", "ASC24001", 12, 1, 1.0, cpus_per_gpu=72),
        Stream("gh-dev", "svcgw", "ASC24001", 1, 1, 0.6, cpus_per_gpu=72),
    ),
}


class Load:
    """The streams of several clusters, each cluster fed by a thread of its own."""

    def __init__(self, clusters: Sequence[Cluster], *, seed: int, scale: float) -> None:
        """Prepare to submit `scale` times the streams' shares."""
        self._stop = threading.Event()
        self._scale = scale
        self.submitted = 0
        self.refused = 0
        self._threads = [
            threading.Thread(target=self._feed, args=(cluster, Random(f"{seed}/{cluster.name}")), daemon=True)
            for cluster in clusters
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=30)

    def _feed(self, cluster: Cluster, random: Random) -> None:
        streams = STREAMS[cluster.name]
        self._fill(cluster, streams, random)
        rates = [stream.per_second * self._scale for stream in streams]
        while not self._stop.wait(random.expovariate(sum(rates))):
            [stream] = random.choices(streams, rates)
            self._submit(cluster, stream, random)

    def _fill(self, cluster: Cluster, streams: Sequence[Stream], random: Random) -> None:
        """Submit at once what the partitions hold, so that they are busy when the first round begins."""
        for stream in streams:
            room = stream.nodes * stream.per_node * min(stream.share, 1.0) * self._scale
            while room > 0 and not self._stop.is_set():
                room -= self._submit(cluster, stream, random)

    def _submit(self, cluster: Cluster, stream: Stream, random: Random) -> int:
        """Submit one job and return its size."""
        size = random.choice(stream.sizes)
        runs_s = MEDIAN_S * math.exp(random.gauss(0, SPREAD))
        limit_minutes = max(1, math.ceil(runs_s * random.uniform(1.1, 4) / 60))
        try:
            cluster.submit(stream.user, f"sleep {runs_s:.1f}", *stream.options(size, limit_minutes))
            self.submitted += 1
        except Refused:
            self.refused += 1
        return size
