"""A small federation in the database: two systems with what a probe saw, and two researchers."""

from datetime import datetime, timedelta
from decimal import Decimal

from django.contrib.auth.models import User
from django.db import connection

from federation.collector import Outcome, _apply
from federation.models import Connection, System
from federation.profile import ProfileDocument
from federation.services import allocate, connect, store_profile
from providers.types import GpuPool, JobState, Node, Partition, Probe, QueueJob


def profile(slug: str, name: str, gpu: str, memory: str, per_node: int) -> ProfileDocument:
    """Return the profile of a small GPU system with one partition `gpu` of four nodes."""
    return ProfileDocument.model_validate(
        {
            "system": slug,
            "name": name,
            "centre": "Test Centre",
            "architecture": "x86_64",
            "node_types": {
                "g": {
                    "cpus": 64,
                    "memory_mib": "256G",
                    "gpus": per_node,
                    "gpu": gpu,
                    "gpu_memory_mib": memory,
                }
            },
            "partitions": {
                "gpu": {
                    "nodes": [{"type": "g", "count": 4}],
                    "max_walltime_s": "2-00:00:00",
                    "charge": {"unit": "SU", "per_gpu": "1"},
                }
            },
        }
    )


def probe(gpu: str, *, free: int, now: datetime, pending: int = 1) -> Probe:
    """Return what a probe saw: four nodes of four GPUs, the last one down, `free` GPUs on the first node."""
    nodes = tuple(
        Node(
            name=f"g{number}",
            partitions=("gpu",),
            state="down" if number == 3 else "mixed",
            usable=number != 3,
            cpus_total=64,
            cpus_free=32 if number == 0 else 0,
            memory_total_mib=262_144,
            memory_free_mib=131_072 if number == 0 else 0,
            gpus=(
                GpuPool(
                    type=gpu,
                    total=4,
                    used=0 if number == 3 else 4 - (free if number == 0 else 0),
                    free=free if number == 0 else 0,
                ),
            ),
        )
        for number in range(4)
    )
    running = QueueJob(
        job_id="11",
        state=JobState.RUNNING,
        state_raw="RUNNING",
        user="mira",
        partitions=("gpu",),
        gpus=4,
        cpus=32,
        nodes=1,
        node_names=("g1",),
        walltime_s=7200,
        start_at=now - timedelta(minutes=30),
        submit_at=now - timedelta(hours=1),
    )
    waiting = tuple(
        QueueJob(
            job_id=str(20 + number),
            state=JobState.QUEUED,
            state_raw="PENDING",
            user="kofi",
            partitions=("gpu",),
            gpus=4,
            cpus=32,
            walltime_s=3600,
            reason="Priority",
            priority=100,
            submit_at=now - timedelta(minutes=5),
        )
        for number in range(pending)
    )
    return Probe(
        scheduler="slurm 24.11.5",
        taken_at=now,
        nodes=nodes,
        partitions=(Partition(name="gpu", state="up", nodes_total=4, max_walltime_s=172_800),),
        jobs=(running, *waiting),
        user="mira",
    )


def make_system(
    user: User, slug: str, name: str, gpu: str, memory: str, *, free: int, now: datetime
) -> System:
    """Store a system this user is connected to, seen at `now`."""
    document = profile(slug, name, gpu, memory, 4)
    store_profile(document, f"system: {slug}\n", now=now)
    system = System.objects.get(slug=slug)
    link = connect(user, system, kind="local", settings={}, remote_user="mira", now=now)
    allocate(user, system, "science", unit="SU", granted=Decimal(1000), now=now)
    see(system, link, document, probe(gpu, free=free, now=now), now=now)
    system.refresh_from_db()
    return system


def see(system: System, link: Connection, document: ProfileDocument, found: Probe, *, now: datetime) -> None:
    """Store one probe as the collector does."""
    outcome = Outcome(connection=link, started_at=now, duration_s=0.2, is_full=True, probe=found)
    _apply(system, document, outcome, now=now)


GPU_SCRIPT = """#!/bin/bash
#SBATCH --gpus=2
#SBATCH --time=01:00:00
#SBATCH --wibble=3
srun ./simulate
"""


def positions() -> None:
    """Give events their places in the log, as at a commit."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
