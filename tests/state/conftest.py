"""A small federation of emulated clusters on a real PostgreSQL, driven step by step."""

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from federation import collector
from federation.models import Connection, System
from federation.profile import ProfileDocument
from federation.services import allocate, connect, store_profile
from orchestrator.models import Task
from providers.sandbox.slurm import events, faults
from providers.sandbox.slurm.setup import DELTA, VISTA, create, env
from providers.sandbox.slurm.store import Store
from tests.stepping import forget_what_is_cached, silence_the_bells, step_until

PROFILES = {
    "delta": {
        "system": "delta",
        "name": "Delta",
        "architecture": "x86_64",
        "node_types": {
            "gpua": {"cpus": 64, "memory_mib": "256G", "gpus": 4, "gpu": "a100", "gpu_memory_mib": "40G"},
            "gpub": {"cpus": 64, "memory_mib": "256G", "gpus": 4, "gpu": "a40", "gpu_memory_mib": "48G"},
        },
        "partitions": {
            "gpuA100x4": {
                "accounts": ["*-gpu"],
                "charge": {"unit": "SU", "per_gpu": 1},
            },
            "gpuA40x4": {"accounts": ["*-gpu"], "charge": {"unit": "SU", "per_gpu": "0.5"}},
            "cpu": {"accounts": ["*-cpu"], "charge": {"unit": "SU", "per_cpu": "0.01"}},
        },
        "containers": ["apptainer"],
        "probe": {"observe_s": 1},
    },
    "vista": {
        "system": "vista",
        "name": "Vista",
        "architecture": "aarch64",
        "scheduler": {"gpu_spelling": "none", "memory_spelling": "none"},
        "node_types": {
            "gh": {"cpus": 72, "memory_mib": "237G", "gpus": 1, "gpu": "gh200", "gpu_memory_mib": "96G"},
        },
        "partitions": {"gh": {"charge": {"unit": "SU", "per_node": 1}}, "gh-dev": {}},
        "probe": {"observe_s": 1},
    },
}


@pytest.fixture(autouse=True)
def _by_hand() -> None:
    """Step by step: nothing happens on its own, nothing is left of the test before."""
    forget_what_is_cached()
    silence_the_bells()


@pytest.fixture
def now() -> datetime:
    return timezone.now()


@pytest.fixture
def alice(db: None) -> User:
    return User.objects.create_user("alice", password="a-long-password")


@pytest.fixture
def bob(db: None) -> User:
    return User.objects.create_user("bob", password="a-long-password")


class Sites:
    """The emulated clusters, and the systems that stand for them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.env: dict[str, dict[str, str]] = {}

    def add(
        self, slug: str, user: User, *, account: str, granted: Decimal | None = None, **config: str
    ) -> System:
        """Make a site without load, with what differs in its slurm.conf, and connect the user to it."""
        usual = {"delta": DELTA, "vista": VISTA}[slug].quiet()
        spec = replace(usual, config={**usual.config, **config})
        create(self.root / slug, spec, seed=7)
        self.env[slug] = env(self.root / slug, user="alice")
        text = str(PROFILES[slug])
        document = ProfileDocument.model_validate(PROFILES[slug])
        now = timezone.now()
        store_profile(document, text, now=now)
        system = System.objects.get(slug=slug)
        connect(
            user,
            system,
            kind="local",
            settings={"env": self.env[slug], "home": str(self.root / "home")},
            now=now,
            remote_user="alice",
        )
        Connection.objects.filter(system=system).update(facts={"home": str(self.root / "home")})
        if granted is not None:
            allocate(user, system, account, unit="SU", granted=granted, now=now)
        collector.refresh(system.pk, now=now, force_full=True)
        system.refresh_from_db()
        return system

    def squeue(self, slug: str, *argv: str) -> str:
        """Return what squeue prints there, asked directly."""
        return self.run(slug, "squeue", "-h", *argv)

    def run(self, slug: str, *argv: str) -> str:
        """Run a command of the site as its user."""
        done = subprocess.run(
            argv, env={**os.environ, **self.env[slug]}, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout

    def jobs(self, slug: str) -> list[str]:
        """Return the names of every job this site ever took from us, by accounting."""
        out = self.run(slug, "sacct", "-X", "-n", "-P", "-S", "now-1hours", "--format=JobName")
        return [line for line in out.splitlines() if line]

    def hold(self, slug: str, job_id: str) -> None:
        """Keep a job waiting, whether it has started meanwhile or not."""
        has_started = "PENDING" not in self.squeue(slug, "-j", job_id, "-o", "%T")
        self.run(slug, "scontrol", "requeuehold" if has_started else "hold", job_id)

    def fault(self, slug: str, name: str, **setting: object) -> None:
        """Switch a fault on."""
        faults.switch_on(str(self.root / slug), name, **setting)

    def heal(self, slug: str, name: str) -> None:
        """Switch a fault off."""
        faults.switch_off(str(self.root / slug), name)

    def happen(self, slug: str, kind: str, subject: str) -> None:
        """Let something happen to a node or job there."""
        events.happen(Store(str(self.root / slug)), kind, subject, now=time.time())


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    return Sites(tmp_path)


@pytest.fixture
def until() -> Callable[..., Task]:
    """Step until a task reaches a state (or any end); fails after `timeout` seconds."""
    return step_until
