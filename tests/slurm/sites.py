"""A Slurm site as the product meets it: a link for each user, and the means to break it and to mend it."""

import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from providers.contracts import Link
from providers.dialects.slurm.dialect import SlurmDialect
from providers.links.local import Become, LocalLink
from providers.types import (
    Batch,
    BatchReply,
    JobRef,
    JobRequest,
    JobState,
    Node,
    Observation,
    Probe,
    QueueJob,
    ReadFile,
    SubmitResult,
)
from tests.slurm.lab.cluster import Cluster
from tests.slurm.lab.namespace import until

_keys = itertools.count(1)
SLEEP = "sleep 300"
TERMINAL = frozenset(
    {
        JobState.COMPLETED,
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.TIMEOUT,
        JobState.OUT_OF_MEMORY,
        JobState.NODE_FAIL,
        JobState.PREEMPTED,
    }
)


class Site(Protocol):
    """What the contract tests need of a site, real or emulated, with the nodes and accounts of `delta`."""

    def link(self, user: str) -> Link:
        """Return the user's way to it."""
        ...

    def scratch(self, user: str) -> Path:
        """Return a new empty directory of the user's."""
        ...

    def run(self, user: str, *argv: str) -> str:
        """Run one program there and return what it printed."""
        ...

    def kill_controller(self) -> None:
        """Let the controller die."""
        ...

    def freeze_controller(self) -> None:
        """Let the controller stop answering."""
        ...

    def kill_accounting(self) -> None:
        """Let the accounting daemon die."""
        ...

    def node_down(self, node: str) -> None:
        """Let a node die."""
        ...

    def expire(self, job_id: str) -> None:
        """Let a running job's wall time be over, long before its minutes have passed."""
        ...


class RealSite:
    """A cluster of the lab."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def link(self, user: str) -> Link:
        uid = self._cluster.uid(user)
        env = self._cluster.env(user)
        return LocalLink(become=Become(name=user, uid=uid, gid=uid, home=env["HOME"]), env=env)

    def scratch(self, user: str) -> Path:
        place = self._cluster.jobs_dir / f"{user}-{next(_keys)}"
        place.mkdir()
        os.chown(place, self._cluster.uid(user), self._cluster.uid(user))
        return place

    def run(self, user: str, *argv: str) -> str:
        return self._cluster.ask(*argv, user=user)

    def kill_controller(self) -> None:
        self._cluster.kill("slurmctld")

    def freeze_controller(self) -> None:
        self._cluster.freeze("slurmctld")

    def kill_accounting(self) -> None:
        self._cluster.kill("slurmdbd")

    def node_down(self, node: str) -> None:
        self._cluster.node_down(node)

    def expire(self, job_id: str) -> None:
        self.run("root", "scontrol", "update", f"jobid={job_id}", "timelimit=0")  # seen within 30 s


@dataclass
class Speaker:
    """One user who speaks to one site through our dialect and our link, as the product does."""

    site: Site
    user: str = "alice"
    account: str = "bbka-delta-gpu"
    partition: str = "gpuA100x4"
    dialect: SlurmDialect = field(default_factory=SlurmDialect)

    def ask(self, batch: Batch) -> BatchReply:
        """Run one batch."""
        return self.site.link(self.user).run(batch)

    def probe(self, *, full: bool = False) -> Probe:
        """Look at the whole system."""
        return self.dialect.read_probe(self.ask(self.dialect.probe(full=full)), now=datetime.now(UTC))

    def request(self, shell_command: str, **changes: object) -> JobRequest:
        """Return a job of one CPU and five minutes, with what differs."""
        place = changes.pop("workdir", None) or self.site.scratch(self.user)
        words: dict[str, object] = {
            "submit_key": f"facet-{os.getpid()}-{next(_keys)}",
            "name": "contract",
            "account": self.account,
            "partition": self.partition,
            "walltime_s": 300,
            "workdir": str(place),
            "stdout_path": f"{place}/out.txt",
            "stderr_path": f"{place}/err.txt",
            "shell_command": shell_command,
        }
        return JobRequest.model_validate(words | changes)

    def submit(self, job: JobRequest) -> SubmitResult:
        """Submit it."""
        return self.dialect.read_submit(self.ask(self.dialect.submit(job)))

    def start(self, shell_command: str, **changes: object) -> JobRef:
        """Submit a job that the site must accept."""
        job = self.request(shell_command, **changes)
        asked_at = datetime.now(UTC)
        result = self.submit(job)
        if result.outcome != "accepted":
            raise AssertionError(result)
        return JobRef(submit_key=job.submit_key, job_id=result.job_id, submitted_at=asked_at)

    def observe(self, *refs: JobRef) -> Mapping[str, Observation | None]:
        """Look once at several jobs."""
        now = datetime.now(UTC)
        since = min((ref.submitted_at or now for ref in refs), default=now) - timedelta(minutes=1)
        return self.dialect.read_observe(
            self.ask(self.dialect.observe(refs, since=since, now=now)), refs, now=now
        )

    def wait(self, ref: JobRef, *states: JobState, timeout_s: float = 30.0) -> Observation:
        """Look until the job is in one of `states`, and return what was seen."""
        return self.wait_for(ref, lambda seen: seen.state in states, str(states), timeout_s=timeout_s)

    def wait_end(self, ref: JobRef, *, timeout_s: float = 30.0) -> Observation:
        """Look until the job has ended."""
        return self.wait(ref, *TERMINAL, timeout_s=timeout_s)

    def wait_for(
        self, ref: JobRef, claim: Callable[[Observation], bool], what: str, *, timeout_s: float = 30.0
    ) -> Observation:
        """Look until `claim` holds of what is seen, and return it."""
        seen: list[Observation] = []

        def holds() -> bool:
            found = self.observe(ref).get(ref.submit_key)
            if found is not None:
                seen.append(found)
            return found is not None and claim(found)

        try:
            until(holds, what, timeout_s=timeout_s, step_s=0.25)
        except TimeoutError as late:
            raise AssertionError(f"{what}: last seen {seen[-1:]}") from late
        return seen[-1]

    def cancel(self, *refs: JobRef) -> Mapping[str, str]:
        """Cancel jobs."""
        return self.dialect.read_cancel(self.ask(self.dialect.cancel(refs)), refs)

    def read(self, path: str | Path) -> str:
        """Return a file's text, read at the site."""
        batch = Batch(operations=(ReadFile(name="file", path=str(path)),))
        return self.ask(batch).replies["file"].stdout


def node(probe: Probe, name: str) -> Node:
    """Return the one node of that name."""
    [found] = [each for each in probe.nodes if each.name == name]
    return found


def queued(probe: Probe, job_id: str | None) -> QueueJob:
    """Return the one job of that id in the queue."""
    [found] = [job for job in probe.jobs if job.job_id == job_id]
    return found
