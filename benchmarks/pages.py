"""What the pages cost: server time and queries, bytes on first load, time until one can act.

    .venv/bin/python -m benchmarks.pages [--systems 4 40] [--tasks 100000] [--events 1000000] [--rounds 20]

On a real PostgreSQL filled to the given size; every system has 64 nodes of 4 GPUs in two partitions and 200
jobs in its queue. Server times are those of the whole request in one process; Chromium, where it is on the
PATH, loads the first page from the web process as it is served, with an empty cache.
"""

import argparse
import os
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from decimal import Decimal

os.environ |= {"FACET_RATE_PER_MINUTE": "0", "FACET_LOG_LEVEL": "warning", "DJANGO_ALLOW_ASYNC_UNSAFE": "1"}

from benchmarks import _services  # noqa: F401  # starts the servers before Django reads its settings

# isort: split
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from federation.models import Event, System
from federation.profile import ProfileDocument
from federation.services import allocate, connect, store_profile
from orchestrator.models import Attempt, Task
from orchestrator.services.tasks import submit_task
from providers.types import GpuPool, JobState, Node, Partition, Probe, QueueJob
from tests.api.test_stream import serving
from tests.web.world import see

NODES, PER_NODE, JOBS = 64, 4, 200
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu"]


def main() -> None:
    """Fill, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--systems", type=int, nargs="+", default=[4, 40])
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    call_command("migrate", verbosity=0)
    user = User.objects.create_user("mira", password="a-long-password")
    made = 0
    for count in given.systems:
        for number in range(made, count):
            _system(user, f"s{number:02}", now=timezone.now())
        made = max(made, count)
        if not Task.objects.exists():
            _fill(user, given.tasks, given.events)
        _refresh(user)
        print(f"\n{made} systems, {Task.objects.count()} tasks, {Event.objects.count()} events")
        _server(user, given.rounds)
        _browser(user)


def _document(slug: str) -> ProfileDocument:
    partition = {"nodes": [{"type": "g", "count": NODES}], "charge": {"unit": "SU", "per_gpu": "1"}}
    node = {"cpus": 64, "memory_mib": "256G", "gpus": PER_NODE, "gpu": "a100", "gpu_memory_mib": "40G"}
    return ProfileDocument.model_validate(
        {
            "system": slug,
            "name": slug.upper(),
            "centre": "Benchmark",
            "architecture": "x86_64",
            "node_types": {"g": node},
            "partitions": {"gpu": partition, "debug": partition},
        }
    )


def _probe(now: datetime) -> Probe:
    nodes = tuple(
        Node(
            name=f"g{n:03}",
            partitions=("gpu", "debug"),
            state="mixed",
            usable=True,
            cpus_total=64,
            cpus_free=n % 64,
            memory_total_mib=262_144,
            memory_free_mib=131_072,
            gpus=(GpuPool(type="a100", total=PER_NODE, used=PER_NODE - n % 5 % 3, free=n % 5 % 3),),
        )
        for n in range(NODES)
    )
    jobs = tuple(
        QueueJob(
            job_id=str(n),
            state=JobState.RUNNING if n < JOBS // 4 else JobState.QUEUED,
            state_raw="RUNNING" if n < JOBS // 4 else "PENDING",
            user=f"u{n % 30}",
            partitions=("gpu",),
            gpus=1 + n % 4,
            cpus=8,
            nodes=1,
            node_names=(f"g{n % NODES:03}",) if n < JOBS // 4 else (),
            walltime_s=3600 * (1 + n % 12),
            priority=1000 - n,
            start_at=now - timedelta(minutes=n) if n < JOBS // 4 else None,
            submit_at=now - timedelta(minutes=2 * n),
        )
        for n in range(JOBS)
    )
    parts = tuple(
        Partition(name=name, state="up", nodes_total=NODES, max_walltime_s=172_800)
        for name in ("gpu", "debug")
    )
    return Probe(scheduler="slurm 24.11", taken_at=now, nodes=nodes, partitions=parts, jobs=jobs, user="mira")


def _system(user: User, slug: str, *, now: datetime) -> None:
    document = _document(slug)
    store_profile(document, f"system: {slug}\n", now=now)
    system = System.objects.get(slug=slug)
    connect(user, system, kind="local", settings={}, remote_user="mira", now=now)
    allocate(user, system, "science", unit="SU", granted=Decimal(100_000), now=now)


def _refresh(user: User) -> None:
    """Have every system seen just now, four times over the last hour, so that there is history to draw."""
    for system in System.objects.all():
        link = system.connections.get(user=user)
        for ago in (3600, 1800, 600, 0):
            now = timezone.now() - timedelta(seconds=ago)
            see(system, link, _document(system.slug), _probe(now), now=now)


def _fill(user: User, tasks: int, events: int) -> None:
    """Multiply one real task, its attempt and its events, triggers off: this is only weight."""
    _refresh(user)
    task = submit_task(
        user,
        {"name": "weight", "command": ["true"], "envelope": {"gpus": 1, "walltime_s": 3600}},
        actor="user:mira",
        now=timezone.now(),
    ).task
    attempt = Attempt.objects.get(task=task)
    event = Event.objects.filter(task=task.handle).first()
    assert event is not None
    ended = {"state": "'succeeded'", "finished_at": "now() - n * interval '1 minute'", "due_at": "NULL"}
    _multiply(
        "orchestrator_task",
        task.pk,
        tasks - 1,
        {"handle": "'task_' || n", "name": "'weight-' || n", "attempt_id": "NULL", **ended},
    )
    keys = {"handle": "'att_' || n", "task_id": "n", "submit_key": "'k' || n", "job_id": "n::text"}
    _multiply("orchestrator_attempt", attempt.pk, tasks - 1, keys | ended)
    _multiply(
        "federation_event",
        event.pk,
        events,
        {"handle": "'evt_' || n", "task": f"'task_' || 1000 + n % {tasks}"},
    )
    with _quiet("federation_eventposition", "orchestrator_task"), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO federation_eventposition (seq, event_id, hash)"
            " SELECT 1000000 + e.id, e.id, p.hash"
            " FROM federation_event e, (SELECT hash FROM federation_eventposition LIMIT 1) p"
            " WHERE e.id >= 1000"
        )
        cursor.execute("UPDATE orchestrator_task SET attempt_id = id WHERE id >= 1000")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _multiply(table: str, pk: int, count: int, changed: dict[str, str]) -> None:
    """Copy one row `count` times under ids from 1000 up, with some columns computed from `n`, the new id."""
    with _quiet(table), connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name FROM information_schema.columns"
            " WHERE table_name = %s AND is_generated = 'NEVER'",
            [table],
        )
        names = [name for (name,) in cursor.fetchall()]
        values = ", ".join({"id": "n", **changed}.get(name, f't."{name}"') for name in names)
        columns = ", ".join(f'"{name}"' for name in names)
        cursor.execute(
            f"INSERT INTO {table} ({columns}) SELECT {values}"
            f" FROM {table} t, generate_series(1000, {999 + count}) n WHERE t.id = {pk}"
        )


@contextmanager
def _quiet(*tables: str) -> Iterator[None]:
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        yield
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def _server(user: User, rounds: int) -> None:
    client = Client(SERVER_NAME="localhost")
    client.force_login(user)
    pages = {
        "federation": "/",
        "one system": "/systems/s00/",
        "where would it run": "/where/?gpus_min=2&walltime_min=2:00:00&accelerator_types=a100",
        "tasks": "/tasks/",
        "tasks by change": "/tasks/?sort=changed",
        "tasks by name": "/tasks/?sort=name",
        "tasks with a word": "/tasks/?q=weight-77777",
        "tasks without a match": "/tasks/?q=no+such+word",
        "one task": f"/tasks/{Task.objects.earliest('id').handle}/",
        "events": "/events/",
        "events with a word": "/events/?about=weight",
        "events without a match": "/events/?about=no+such+word",
    }
    print(f"{'page':>20} {'p50':>9} {'p95':>9} {'queries':>8} {'HTML':>9}")
    for name, path in pages.items():
        client.get(path)
        times = []
        for _ in range(rounds):
            began = time.perf_counter()
            answer = client.get(path)
            times.append((time.perf_counter() - began) * 1000)
            assert answer.status_code == 200, (path, answer.status_code)
        with CaptureQueriesContext(connection) as asked:
            client.get(path)
        p50, p95 = statistics.median(times), sorted(times)[int(0.95 * (len(times) - 1))]
        size = len(answer.content) / 1024
        print(f"{name:>20} {p50:>6.0f} ms {p95:>6.0f} ms {len(asked):>8} {size:>5.0f} KiB", flush=True)


def _browser(user: User) -> None:
    program = shutil.which("chromium")
    if program is None:
        print("no chromium on the PATH: nothing is said of the browser")
        return
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # a development package

    client = Client(SERVER_NAME="localhost")
    client.force_login(user)
    with serving() as server, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=FLAGS)
        found = [_load(browser, client, f"http://localhost:{server.port}") for _ in range(3)]
        browser.close()
    sent, paint, ready = (statistics.median(each[n] for each in found) for n in range(3))
    print(f"first load, nothing cached: {sent / 1024:.0f} KiB sent,", end=" ")
    print(f"first paint {paint:.0f} ms, interactive {ready:.0f} ms", flush=True)


def _load(browser: object, client: Client, base: str) -> tuple[float, float, float]:
    """Return bytes sent, first contentful paint and when every script of the page had run, ms."""
    context = browser.new_context()  # type: ignore[attr-defined]  # playwright is only here where it is installed
    context.add_cookies([{"name": k, "value": m.value, "url": base} for k, m in client.cookies.items()])
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    sizes: list[int] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.goto(base)
    page.locator("html[data-keys=on]").wait_for(state="attached")
    paint, ready = page.evaluate(
        "[performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0,"
        " performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd]"
    )
    page.wait_for_timeout(500)
    context.close()
    return float(sum(sizes)), float(paint), float(ready)


if __name__ == "__main__":
    main()
