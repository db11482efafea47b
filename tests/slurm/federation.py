"""The product over the real clusters of the lab: systems and ways into them, and what sacct says."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import AbstractBaseUser, User
from django.db import connections
from django.utils import timezone

from federation import collector
from federation.models import Event, LimitUseRow, Snapshot, System
from federation.profile import ProfileDocument
from federation.services import allocate, connect, store_profile
from orchestrator import control
from orchestrator.dispatch import dispatch
from orchestrator.models import Attempt, Task
from orchestrator.services import tasks
from tests.slurm.lab.cluster import Cluster, Refused
from tests.slurm.lab.laboratory import Lab
from tests.stepping import forget_what_is_cached, silence_the_bells

_PER_GPU = {"unit": "SU", "per_gpu": 1}
_RHYTHM = {"observe_s": 1, "timeout_s": 20}
PROFILES: dict[str, dict[str, Any]] = {
    "delta": {
        "name": "Delta",
        "architecture": "x86_64",
        "node_types": {
            "gpua": {"cpus": 64, "memory_mib": "250G", "gpus": 4, "gpu": "a100", "gpu_memory_mib": "40G"},
            "gpub": {"cpus": 64, "memory_mib": "250G", "gpus": 4, "gpu": "a40", "gpu_memory_mib": "48G"},
        },
        "partitions": {
            "gpuA100x4": {"accounts": ["*-gpu"], "charge": _PER_GPU},
            "gpuA40x4": {"accounts": ["*-gpu"], "charge": {"unit": "SU", "per_gpu": "0.5"}},
            "cpu": {"accounts": ["*-cpu"], "charge": {"unit": "SU", "per_cpu": "0.01"}},
        },
    },
    "deltaai": {
        "name": "DeltaAI",
        "architecture": "aarch64",
        "node_types": {
            "gh": {"cpus": 288, "memory_mib": 860_000, "gpus": 4, "gpu": "gh200", "gpu_memory_mib": "96G"}
        },
        "partitions": {"ghx4": {"charge": _PER_GPU}},
    },
    "anvil": {
        "name": "Anvil",
        "architecture": "x86_64",
        "scheduler": {"gpu_spelling": "gpus-per-node"},
        "node_types": {
            "a": {"cpus": 128, "memory_mib": 257_000},
            "g": {"cpus": 128, "memory_mib": 512_000, "gpus": 4, "gpu": "a100", "gpu_memory_mib": "40G"},
            "h": {"cpus": 96, "memory_mib": 1_030_000, "gpus": 4, "gpu": "h100", "gpu_memory_mib": "80G"},
        },
        "partitions": {
            "gpu": {"nodes": [{"type": "g", "count": 4}], "charge": _PER_GPU},
            "ai": {"nodes": [{"type": "h", "count": 3}], "charge": _PER_GPU},
            "shared": {"nodes": [{"type": "a", "count": 4}], "charge": {"unit": "SU", "per_cpu": 1}},
            "debug": {"nodes": [{"type": "a", "count": 2}]},
        },
    },
    "vista": {
        "name": "Vista",
        "architecture": "aarch64",
        "scheduler": {"gpu_spelling": "none", "memory_spelling": "none"},
        "node_types": {
            "gh": {"cpus": 72, "memory_mib": 237_000, "gpus": 1, "gpu": "gh200", "gpu_memory_mib": "96G"},
        },
        "partitions": {
            "gh": {"charge": {"unit": "SU", "per_node": 1}},
            "gg": {"charge": {"unit": "SU", "per_node": "0.33"}},
        },
    },
}
_NEVER = datetime.min.replace(tzinfo=UTC)
GPU_ACCOUNTS = {"delta": "bbka-delta-gpu", "deltaai": "bbka-dtai-gh", "vista": "ASC24001"}


@dataclass(frozen=True, slots=True)
class Accounted:
    """One row of sacct: an allocation of a job, requeued ones apart. None: not set."""

    job_id: str
    state: str
    exit_code: str
    submit_at: datetime | None
    start_at: datetime | None
    end_at: datetime | None
    tres: frozenset[str]
    """Words of AllocTRES, such as `gres/gpu=2`."""


class Federation:
    """The clusters as systems of the product."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def add(
        self,
        cluster: Cluster,
        user: AbstractBaseUser,
        *accounts: str,
        remote: str = "",
        granted: Decimal | None = Decimal(10_000),
        **changes: Any,
    ) -> System:
        """Make a system of a cluster, connect the user under the same name there, and probe it in full.

        `accounts`: what Facet is granted; none named = the one for its GPUs. `changes` replace parts of the
        profile.
        """
        now, slug = timezone.now(), cluster.name
        document = {"system": slug, "probe": _RHYTHM, **PROFILES[slug], **changes}
        store_profile(ProfileDocument.model_validate(document), str(document), now=now)
        system = System.objects.get(slug=slug)
        name = remote or user.get_username()
        uid, env = cluster.uid(name), cluster.env(name)
        become = {"name": name, "uid": uid, "gid": uid, "home": env["HOME"]}
        connect(
            user, system, kind="local", settings={"become": become, "env": env}, now=now, remote_user=name
        )
        for account in accounts or (GPU_ACCOUNTS[slug],):
            allocate(user, system, account, unit="SU", granted=granted, now=now)
        # The clusters of the lab remember what other tests ran on them, which must teach this one nothing.
        LimitUseRow.objects.create(system=system, until=now, updated_at=now)
        self.look(system, full=True)
        system.refresh_from_db()
        return system

    def look(self, *systems: System, full: bool = False) -> None:
        """Refresh systems now, one after the other."""
        for system in systems:
            collector.refresh(system.pk, now=timezone.now(), force_full=full)

    def cluster(self, attempt: Attempt) -> Cluster:
        """Return where an attempt went."""
        return self.lab[attempt.system.slug]

    def accounted(self, *attempts: Attempt) -> list[Accounted]:
        """Return every allocation that accounting ever made for these attempts, in order of ids and time.

        By their keys, so that a second job is seen too, and by their ids: a job that was never eligible, as
        one cancelled while held, lies in no window of time.
        """
        rows: set[Accounted] = set()
        for slug in sorted({attempt.system.slug for attempt in attempts}):
            here = [attempt for attempt in attempts if attempt.system.slug == slug]
            keys = ",".join(attempt.submit_key for attempt in here)
            ids = ",".join(attempt.job_id for attempt in here if attempt.job_id)
            rows |= _accounted(self.lab[slug], "-S", "now-1hours", f"--name={keys}")
            rows |= _accounted(self.lab[slug], "-j", ids) if ids else set()
        return sorted(rows, key=lambda row: (int(row.job_id), row.submit_at or _NEVER))

    def names(self, cluster: Cluster) -> list[str]:
        """Return the names of all jobs that wait or run at a cluster."""
        return cluster.ask("squeue", "-ah", "-o", "%j").splitlines()


def _accounted(cluster: Cluster, *selection: str) -> set[Accounted]:
    columns = "jobid,state,exitcode,submit,start,end,alloctres"
    argv = ("sacct", "-aXDPn", "-o", columns, *selection)
    answer = cluster.client("root", argv, env={"SLURM_TIME_FORMAT": "%s", "TZ": "UTC"})
    if answer.rc != 0:
        raise Refused(answer)
    return {_row(line) for line in answer.stdout.splitlines()}


def _row(line: str) -> Accounted:
    job_id, state, code, submit, start, end, tres = line.split("|")
    words = frozenset(filter(None, tres.split(",")))
    return Accounted(job_id, state, code, _instant(submit), _instant(start), _instant(end), words)


def _instant(word: str) -> datetime | None:
    return datetime.fromtimestamp(int(word), UTC) if word.isdigit() else None


def submit(user: AbstractBaseUser, command: object = ("true",), **given: Any) -> Task:
    """Submit a task of one GPU, two CPUs and ten minutes, with what differs."""
    wanted = {"command": command, "envelope": {"gpus": 1, "cpus": 2, "walltime_s": 600}, **given}
    if "script" in wanted:
        wanted.pop("command")
    actor = f"user:{user.get_username()}"
    return tasks.submit_task(user, wanted, actor=actor, now=timezone.now()).task


def send(task: Task) -> Attempt | None:
    """Dispatch a task's attempt now, as a worker would; None when another one has it."""
    if task.attempt_id is None:
        raise LookupError(f"{task.name} is {task.state}: {task.reason}")
    return dispatch(task.attempt_id, now=timezone.now())


def told(task: Task) -> list[str]:
    """Return the types of a task's events, its attempts' included, in order."""
    return list(Event.objects.filter(task=task.handle).order_by("id").values_list("type", flat=True))


def snapshot(system: System) -> Snapshot:
    """Return the newest good snapshot of a system."""
    found = System.objects.select_related("snapshot").get(pk=system.pk).snapshot
    if found is None:
        raise LookupError(f"{system} was never seen")
    return found


def last_event(task: Task, type_: str) -> Event:
    """Return the newest event of a type."""
    return Event.objects.filter(task=task.handle, type=type_).order_by("-id")[0]


def look_now(system: System) -> None:
    """Run one control cycle of a system in which every attempt is due."""
    Attempt.objects.update(due_at=timezone.now())
    control.control_system(system.pk, now=timezone.now())


def health(system: System) -> str:
    """Return the health of a system as it is kept now."""
    return System.objects.get(pk=system.pk).health


def only_attempt(task: Task) -> Attempt:
    """Return the one attempt of a task, read anew."""
    return task.attempts.get()


def side_by_side(*work: Callable[[], Any]) -> list[Any]:
    """Run each in a thread of its own, as workers would, with a database connection of its own."""

    def run(one: Callable[[], Any]) -> Any:
        try:
            return one()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(run, work))


@pytest.fixture
def federation(lab: Lab, transactional_db: None) -> Federation:
    """An empty federation over the running lab, driven by hand."""
    forget_what_is_cached()
    silence_the_bells()
    return Federation(lab)


@pytest.fixture
def researcher(transactional_db: None) -> User:
    """Alice as the product knows her."""
    return User.objects.create_user("alice", password=os.urandom(9).hex())


@pytest.fixture
def colleague(transactional_db: None) -> User:
    """Bob as the product knows him."""
    return User.objects.create_user("bob", password=os.urandom(9).hex())
