"""Invented but plausible values for the federation pages, to draw templates without a database."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from federation.shown import History, HistoryPoint
from portal.web.find import Found, Hit
from portal.web.presenters import federation
from portal.web.presenters.access import AccessRow, AccessView, ProbeRow
from portal.web.presenters.groups import ChildLane, ChildSpan
from portal.web.presenters.history import history_view
from portal.web.presenters.shared import SystemRef
from portal.web.presenters.timeline import Frame, Span
from portal.web.presenters.work import WorkView

NOW = datetime(2026, 3, 4, 14, 10, 12, tzinfo=UTC)
ANVIL, DELTA, DELTAAI, VISTA, LAPTOP = (
    SystemRef("anvil", "Anvil", 1),
    SystemRef("delta", "Delta", 2),
    SystemRef("deltaai", "DeltaAI", 3),
    SystemRef("vista", "Vista", 4),
    SystemRef("here", "This machine", 5),
)
HANDLE = "task_01jnh4w7s8q2v9x3k5m7p1r4t6"


def ago(**parts: int) -> datetime:
    return NOW - timedelta(**parts)


def card(
    ref: SystemRef, centre: str, health: str, pools: tuple[federation.Pool, ...], **more: Any
) -> federation.SystemCard:
    base: dict[str, Any] = {
        "scheduler": "slurm 24.11.5",
        "health_reason": "",
        "observed_at": ago(seconds=14),
        "unit": "GPU",
        "free": sum(p.free for p in pools),
        "total": sum(p.total for p in pools),
        "queue": federation.QueueBar(41, 88, 2, 3),
        "wait_p50_s": 360,
        "wait_p90_s": 1500,
        "wait_for": "1 GPU for 1 h",
    }
    return federation.SystemCard(
        ref=ref, centre=centre, health=health, pools=federation.on_one_scale(pools), **{**base, **more}
    )


CARDS = (
    card(
        ANVIL,
        "Purdue RCAC",
        "online",
        (federation.Pool("A100 40 GB", 23, 9, 32, 0), federation.Pool("H100 80 GB", 1, 0, 6, 1)),
        wait_p50_s=4,
        wait_p90_s=40,
    ),
    card(
        DELTA,
        "NCSA",
        "degraded",
        (
            federation.Pool("A100 40 GB", 6, 14, 372, 8),
            federation.Pool("A40 48 GB", 31, 0, 361, 8),
            federation.Pool("H200 141 GB", 0, 0, 64, 0),
        ),
        health_reason="Two of the last three probes took longer than 20 s.",
        wait_p50_s=2880,
        wait_p90_s=9000,
        queue=federation.QueueBar(183, 240, 1, 5),
        observed_at=ago(minutes=3),
    ),
    card(
        DELTAAI,
        "NCSA",
        "online",
        (federation.Pool("GH200 96 GB", 12, 8, 572, 16),),
        wait_p50_s=9400,
        wait_p90_s=30000,
        queue=federation.QueueBar(823, 310, 0, 2),
    ),
    card(
        VISTA,
        "TACC",
        "stale",
        (federation.Pool("GH200 96 GB", 11, 0, 85, 4),),
        health_reason="The controller has not answered since 13:52.",
        queue=federation.QueueBar(None, None, 0, 0, hidden=True),
        observed_at=ago(minutes=18),
        wait_p50_s=None,
        wait_p90_s=None,
    ),
    card(
        LAPTOP,
        "",
        "online",
        (federation.Pool("Nodes", 1, 0, 0, 0),),
        unit="node",
        scheduler="machine",
        queue=federation.QueueBar(0, 1, 0, 1),
        wait_p50_s=0,
        wait_p90_s=0,
    ),
)


def partition(
    ref: SystemRef, name: str, accelerator: str, free: int, total: int, largest: int, **more: Any
) -> federation.PartitionRow:
    base: dict[str, Any] = {
        "state": "up",
        "cpus_free": 312,
        "cpus_total": 2048,
        "nodes_usable": 14,
        "nodes_total": 16,
        "pending": 41,
        "running": 63,
        "max_walltime_s": 172_800,
        "wait_p50_s": 360,
        "wait_p90_s": 1500,
        "account": "bdem-delta-gpu",
    }
    return federation.PartitionRow(
        ref=ref,
        name=name,
        accelerator=accelerator,
        gpus_free=free,
        gpus_total=total,
        largest_free=largest,
        **{**base, **more},
    )


PARTITIONS = (
    partition(ANVIL, "gpu", "A100 40 GB", 23, 64, 4, wait_p50_s=4, wait_p90_s=40, account="cis230010-gpu"),
    partition(ANVIL, "ai", "H100 80 GB", 1, 8, 1, wait_p50_s=5400, wait_p90_s=11_000, account="cis230010-ai"),
    partition(
        ANVIL,
        "wholenode",
        "",
        0,
        0,
        0,
        cpus_free=12_800,
        cpus_total=128_000,
        nodes_usable=990,
        nodes_total=1000,
        pending=512,
        running=803,
        wait_p50_s=900,
        wait_p90_s=3600,
        account="cis230010",
    ),
    partition(
        DELTA,
        "gpuA100x4",
        "A100 40 GB",
        6,
        400,
        2,
        pending=183,
        running=240,
        wait_p50_s=2880,
        wait_p90_s=9000,
    ),
    partition(DELTA, "gpuA40x4", "A40 48 GB", 31, 400, 4, wait_p50_s=120, wait_p90_s=900),
    partition(
        DELTA,
        "gpuH200x8",
        "H200 141 GB",
        0,
        64,
        0,
        state="drain",
        blocked="The partition is draining for maintenance.",
    ),
    partition(
        DELTAAI,
        "ghx4",
        "GH200 96 GB",
        12,
        608,
        4,
        wait_p50_s=9400,
        wait_p90_s=30_000,
        pending=823,
        running=310,
        max_walltime_s=None,
    ),
    partition(
        VISTA,
        "gh-dev",
        "GH200 96 GB",
        11,
        100,
        1,
        wait_p50_s=None,
        wait_p90_s=None,
        pending=None,
        running=None,
        max_walltime_s=7200,
    ),
)

WORK_AXIS = Frame(
    ago(hours=1), 7200.0, ((25.0, ago(minutes=30)), (75.0, NOW + timedelta(minutes=30))), 4, 50.0, NOW
)
WORK = WorkView(
    WORK_AXIS,
    (
        ChildLane(
            HANDLE,
            "md-equil-041",
            "running",
            "Anvil · gpu",
            "",
            ChildSpan(ANVIL, Span(40.0, 40.0, 10.0, "planned", "expected", "What the decision expected")),
            (ChildSpan(ANVIL, Span(40.0, 10.0, 20.0, "running", "Anvil: running", "Anvil gpu: Running")),),
        ),
        ChildLane("task_2", "waits", "placing", "", "Placing it now.", None, ()),
    ),
    (ANVIL,),
)
FEDERATION = federation.FederationPage(CARDS, PARTITIONS, 84, 1540, 3, 3, 4, ago(seconds=14), WORK, ())
EMPTY_FEDERATION = federation.FederationPage((), (), 0, 0, 0, 0, 0, None, None, ())
HISTORY = history_view(
    [
        History(
            system="delta",
            partition="gpuA100x4",
            points=[
                HistoryPoint(
                    at=ago(minutes=15 * n), gpus_free=20 - n % 9, cpus_free=80, running=40, pending=n
                )
                for n in range(90, -1, -1)
                if n not in range(30, 40)
            ],
        )
    ],
    "gpuA100x4",
    {"gpuA100x4": 400, "cpu": 0},
    {"gpuA100x4": 6400, "cpu": 128},
    hours=24,
    now=NOW,
)

SYSTEM = federation.SystemPage(
    card=CARDS[1],
    partitions=tuple(row for row in PARTITIONS if row.ref == DELTA),
    node_groups=tuple(
        federation.NodeGroup(
            label,
            tuple(
                federation.NodeSquare(
                    f"gpub{n:03}", "bbbbmbbfbd"[n * 7 % 10], f"gpub{n:03}: mixed, 2 of 4 GPUs free"
                )
                for n in range(count)
            ),
            free,
            count,
        )
        for label, count, free in (
            ("4 × A100 40 GB, 64 CPUs, 250 GiB", 100, 20),
            ("4 × A40 48 GB, 64 CPUs, 250 GiB", 100, 18),
            ("8 × H200 141 GB, 96 CPUs, 2 TiB", 8, 1),
        )
    ),
    queue=(
        federation.QueueRow(
            "8841207",
            "amber",
            "gpuA100x4",
            "running",
            "1 node, 4 GPUs",
            172_800,
            ago(hours=9),
            ago(hours=6),
            "",
        ),
        federation.QueueRow(
            "8841533",
            "mira",
            "gpuA100x4",
            "pending",
            "1 node, 2 GPUs",
            7200,
            ago(minutes=44),
            NOW + timedelta(minutes=30),
            "Waits for others of higher priority (Priority).",
            HANDLE,
        ),
        federation.QueueRow(
            "8841534_[1-40%4]",
            "kofi",
            "gpuA40x4",
            "pending",
            "1 node, 1 GPU × 40",
            3600,
            ago(minutes=41),
            None,
            "Its own array limit is reached (JobArrayTaskLimit).",
        ),
    ),
    queue_hidden=180,
    limits=(
        federation.LimitRow("Jobs waiting or running", "50", "6", "QoS normal"),
        federation.LimitRow("GPUs at once", "32", "14", "association bdem-delta-gpu"),
        federation.LimitRow("Wall time of a job", "2 d", "", "partition gpuA100x4"),
    ),
    maintenance=(
        federation.MaintenanceRow(
            "maint-2026-03", NOW + timedelta(days=2), NOW + timedelta(days=2, hours=9), 208
        ),
    ),
    forecasts=(
        federation.ForecastRow("gpuA100x4", "Wait", "free, others ahead", 41, 73, 49, 2.1, 90),
        federation.ForecastRow("gpuA100x4", "Charge", "as declared", 12, None, 67, 1.4, 92),
    ),
    remote_user="mira",
    profile_revision="r4",
    warnings=(),
    history=HISTORY,
    access=AccessView(
        may=(
            AccessRow("gpuA100x4", "bdem-delta-gpu", "normal", "", Decimal(1984), "SU", "1 SU/GPU"),
            AccessRow("cpu", "bdem-delta-cpu", "", "", None, "", ""),
        ),
        may_not=(AccessRow("gpuH200x8", "", "", "The account may not use it.", None, "", ""),),
        offers=(("Processor", "x86_64"), ("Containers", "apptainer")),
    ),
    probes=(
        ProbeRow(ago(seconds=9), 1.1, "available", ""),
        ProbeRow(ago(minutes=9), 20.0, "unreachable", "No answer within 20 s."),
    ),
    max_age_s=600,
)

FOUND = (
    Found("tasks", "Tasks", (Hit("/tasks/task_1/", "md-equil-041", "Running", "loader"),)),
    Found(
        "systems", "Systems", (Hit("/systems/anvil/", "Anvil", "anvil", ref=SystemRef("anvil", "Anvil", 1)),)
    ),
)
