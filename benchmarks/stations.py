"""One cluster of the lab as one user of the product meets it: looked at, submitted to, asked what became."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from federation.limit_use import LimitUse, UseOfLimits, merged
from federation.merge import prepare
from federation.profile import ProfileDocument
from federation.records import records
from federation.types import Access, Credit, Health, ResourceRecord, Standing
from orchestrator.placement.types import Shape
from providers.dialects.slurm.dialect import SlurmDialect
from providers.links.local import Become, LocalLink
from providers.types import JobRequest, Probe
from tests.slurm.lab.cluster import Cluster

USER = "alice"
RUNS_S = 10
"""What each copy of a probe job sleeps."""
SACCT_FIELDS = "JobIDRaw,Submit,Eligible,Start,Priority"

PARTITIONS: dict[str, dict[str, dict[str, object]]] = {
    "delta": {
        "gpuA100x4": {"accounts": ["*-gpu"]},
        "gpuA40x4": {"accounts": ["*-gpu"]},
        "cpu": {"accounts": ["*-cpu"]},
    },
    "deltaai": {"ghx4": {}},
    "anvil": {"shared": {"accounts": ["cis220051"]}, "gpu": {}, "ai": {}},
    "vista": {"gh": {}, "gh-dev": {}},
}


@dataclass(frozen=True, slots=True)
class Start:
    """What accounting tells of a job that started, in its own words."""

    submit: str
    eligible: str
    start: str
    priority: str

    @property
    def wait_s(self) -> int:
        """Return the seconds from the submission to the start."""
        began = datetime.fromisoformat(self.start) - datetime.fromisoformat(self.submit)
        return int(began.total_seconds())


@dataclass(slots=True)
class Station:
    """One cluster as one user of the product meets it."""

    cluster: Cluster
    dialect: SlurmDialect = field(default_factory=SlurmDialect)
    full: Probe | None = None
    seen: Probe | None = None
    """What the last look saw."""
    use: LimitUse = field(default_factory=LimitUse)
    """What finished jobs tell, as the product keeps it."""
    copies: int = 0

    @property
    def name(self) -> str:
        """Return the system's name."""
        return self.cluster.name

    def refresh(self) -> Probe:
        """Probe fully, as the product does now and then: partitions, QoS, priorities, finished jobs."""
        self.full = self._probe(full=True)
        only_own = bool(self.full.finished_unknown)
        self.use = merged(self.use, self.full.finished or (), only_own=only_own)
        return self.full

    def look(self) -> tuple[ResourceRecord, ...]:
        """Probe the cluster and return our records, one for each partition that admits us."""
        self.seen = self.refresh() if self.full is None else self._probe(full=False)
        assert self.full is not None
        return records_of(self.name, self.seen, self.full)

    def submit(self, record: ResourceRecord, shape: Shape) -> str:
        """Submit one copy as the product renders it, and return its job id.

        Raises:
            RuntimeError: the scheduler did not take it.
        """
        self.copies += 1
        spelling = next((node.gpu_spelling for node in record.nodes if node.gpus), None)
        workdir = self.cluster.jobs_dir / USER
        if not workdir.exists():
            workdir.mkdir()
            os.chown(workdir, self.cluster.uid(USER), self.cluster.uid(USER))
        job = JobRequest(
            submit_key=f"round-{os.getpid()}-{self.copies}",
            name="round",
            partition=record.partition,
            account=record.account,
            nodes=shape.nodes,
            cpus=shape.cpus,
            gpus=shape.gpus,
            gpu_type=spelling if shape.gpus else None,
            memory_mib=shape.memory_mib,
            walltime_s=shape.walltime_s,
            workdir=str(workdir),
            stdout_path=str(workdir / f"{self.copies}.out"),
            stderr_path=str(workdir / f"{self.copies}.err"),
            shell_command=f"sleep {RUNS_S}",
        )
        result = self.dialect.read_submit(self._link().run(self.dialect.submit(job)))
        if result.outcome != "accepted" or result.job_id is None:
            raise RuntimeError(f"{self.name}/{record.partition}: {result.said}")
        return result.job_id

    def starts(self, jobs: Iterable[str]) -> dict[str, Start]:
        """Return when each job that has started did, from accounting."""
        ids = ",".join(jobs)
        if not ids:
            return {}
        said = self.cluster.ask("sacct", "-X", "-n", "-P", "-j", ids, "-o", SACCT_FIELDS)
        found = {}
        for line in said.splitlines():
            job_id, submitted, eligible, started, priority = line.split("|")
            if started not in {"Unknown", "None"}:
                found[job_id] = Start(submitted, eligible, started, priority)
        return found

    def cancel(self, jobs: Sequence[str]) -> None:
        """Cancel what never started."""
        if jobs:
            self.cluster.client("root", ("scancel", *jobs))

    def _probe(self, *, full: bool) -> Probe:
        reply = self._link().run(self.dialect.probe(full=full))
        return self.dialect.read_probe(reply, now=datetime.now(UTC))

    def _link(self) -> LocalLink:
        uid, env = self.cluster.uid(USER), self.cluster.env(USER)
        return LocalLink(become=Become(name=USER, uid=uid, gid=uid, home=env["HOME"]), env=env)


def records_of(name: str, probe: Probe, full: Probe) -> tuple[ResourceRecord, ...]:
    """Return our records of a cluster as the product makes them, where they admit us.

    `full` is the last full probe: partitions, QoS and associations.
    """
    profile = ProfileDocument.model_validate(
        {
            "system": name,
            "name": name,
            "architecture": "x86_64",
            "only_listed_partitions": True,
            "partitions": PARTITIONS[name],
        }
    )
    prepared = prepare(profile, probe, full.partitions)
    mine = [each for each in full.associations or () if each.user == USER]
    credit = Credit(unit="SU", granted=None, left=None)
    access = Access(
        is_connected=True,
        remote_user=USER,
        associations=tuple(mine),
        qos=full.qos or (),
        credits={each.account: credit for each in mine},
    )
    key = f"{name}-{probe.taken_at.timestamp()}"
    standing = Standing(health=Health.ONLINE, snapshot_id=key, observed_at=probe.taken_at)
    return tuple(each for each in records(prepared, access, standing) if each.access_denied is None)


def use_of(stations: Iterable[Station]) -> UseOfLimits:
    """Return what finished jobs tell of every cluster, as a plan asks for it."""
    seen = [(each.name, each.use) for each in stations]
    return UseOfLimits(
        by_user={(name, user): shares for name, use in seen for user, shares in use.by_user.items()},
        by_partition={
            (name, part): shares for name, use in seen for part, shares in use.by_partition.items()
        },
    )
