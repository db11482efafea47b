"""A quiet emulated Slurm cluster in the database, and the control plane's work done by hand."""

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from django.contrib.auth.models import User

from federation.collector import refresh
from federation.models import System
from federation.profile import ProfileDocument
from federation.services import connect, store_profile
from orchestrator.control import control_system
from orchestrator.dispatch import dispatch
from orchestrator.models import Attempt, Task
from providers.sandbox.slurm.setup import ANVIL, create, env

PROFILE = ProfileDocument.model_validate(
    {
        "system": "anvil",
        "name": "Anvil",
        "centre": "Sandbox",
        "architecture": "x86_64",
        "workdir": "/tmp/facet-browser-test/{user}",
        "node_types": {
            "g": {"cpus": 128, "memory_mib": 512_000, "gpus": 4, "gpu": "a100", "gpu_memory_mib": "40G"}
        },
        "partitions": {"gpu": {"nodes": [{"type": "g", "count": 8}]}, "shared": {}},
    }
)


def now() -> datetime:
    return datetime.now(UTC)


def make_site(user: User, directory: Path) -> System:
    """Create the cluster and have it probed once, as its collector would."""
    create(directory, replace(ANVIL, load=()), seed=7)
    document = PROFILE.model_copy(update={"workdir": str(directory / "work")})
    store_profile(document, "system: anvil\n", now=now())
    system = System.objects.get(slug="anvil")
    connect(
        user,
        system,
        kind="local",
        settings={"env": env(directory, user="alice")},
        remote_user="alice",
        now=now(),
    )
    refresh(system.pk, now=now(), force_full=True)
    system.refresh_from_db()
    assert system.health == "online", system.health_reason
    return system


def hand_out() -> None:
    """Dispatch what is planned, as the worker does when the bell rings."""
    for pk in Attempt.objects.filter(state="planned").values_list("pk", flat=True):
        dispatch(pk, now=now())


def work_until(task: Task, state: str, *, within_s: float = 40) -> None:
    """Run control cycles until the task reaches a state."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        Attempt.objects.filter(task=task, due_at__isnull=False).update(due_at=now())
        control_system(System.objects.get().pk, now=now())
        task.refresh_from_db()
        if task.state == state:
            return
        time.sleep(0.3)
    raise AssertionError(f"{task.handle} is {task.state}, not {state}: {task.reason}")
