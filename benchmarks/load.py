"""What the product costs at scale: 10,000 active tasks, 100,000 finished, 1,000,000 events.

    .venv/bin/python -m benchmarks.load [--active 10000] [--goes 7]
        [--finished 5000 25000 100000] [--events 50000 250000 1000000]

On a real PostgreSQL, filled by multiplying one task, attempt, decision and event made through the product's
own tables; no site is asked. Measures the same calls at each size of history: the look-ups of every second,
one control cycle of 500 looks, pages, the API, and memory. Flat means that the last column is not
much over the first (the ratio at the end): nothing but history grew in between. Ends by itself, and says how
long it took. What archiving costs is told by `benchmarks.archive`.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from datetime import datetime

from benchmarks import _services  # noqa: F401  # starts the servers before Django reads its settings

# isort: split
import psutil
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, models, transaction
from django.test import Client
from django.utils import timezone

from federation.collector import Outcome, _apply
from federation.models import Connection, Event, System
from federation.profile import ProfileDocument
from federation.services import connect, store_profile
from orchestrator import control
from orchestrator.models import Attempt, Decision, Task
from orchestrator.observation import Fold
from orchestrator.services import groups, tasks
from orchestrator.services.attempts import apply_fold
from portal import tokens
from portal.skills.registry import Scope
from providers.types import GpuPool, Node, Partition, Probe

FINISHED = (5_000, 25_000, 100_000)
"""Finished tasks of each column; the first is more than any window of experience."""
EVENTS = (50_000, 250_000, 1_000_000)
_PROFILE = {
    "system": "bench",
    "name": "Bench",
    "architecture": "x86_64",
    "node_types": {"g": {"cpus": 64, "memory_mib": "256G", "gpus": 4, "gpu": "a100"}},
    "partitions": {"gpu": {"nodes": [{"type": "g", "count": 64}], "max_walltime_s": 86_400}},
    "probe": {"max_age_s": 86_400},
}


def multiply(row: models.Model, count: int, **changes: str) -> None:
    """Write `count` copies of a row, `n` numbering them; `changes` are SQL by column. Triggers are off."""
    table, last = (
        row._meta.db_table,
        type(row)._default_manager.order_by("-pk").values_list("pk", flat=True)[0],
    )
    columns = [field.column for field in row._meta.concrete_fields]
    quoted = [f'"{column}"' for column in columns]
    values = {column: f't."{column}"' for column in columns} | {"id": f"{last} + n"} | changes
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(quoted)}) "
            f"SELECT {', '.join(values[column] for column in columns)} "
            f"FROM {table} t, generate_series(1, {count}) n WHERE t.id = {row.pk}"
        )
        cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
        cursor.execute(
            f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) FROM {table}))"
        )


def work(task: Task, count: int, *, word: str, state: str, is_open: bool) -> None:
    """Write tasks with a decision and an attempt each, in one state."""
    decision, attempt = task.decisions.get(), task.attempts.get()
    base = {model: model.objects.order_by("-pk")[0].pk for model in (Task, Decision, Attempt)}
    # What is active was sent before the newest look at its system saw it: it is not in flight.
    at = f"now() - interval '{'10 minutes' if is_open else '1 hour'}'"
    due = "now() - interval '1 minute'" if is_open else "NULL"
    end = "NULL" if is_open else at
    common = {"state": f"'{state}'", "finished_at": end}
    multiply(
        task,
        count,
        handle=f"'task_{word}' || lpad(n::text, 9, '0')",
        attempt_id="NULL",
        client_ref="''",
        due_at="NULL",
        created_at=at,
        updated_at=at,
        **common,
    )
    multiply(decision, count, handle=f"'dec_{word}' || lpad(n::text, 9, '0')", task_id=f"{base[Task]} + n")
    multiply(
        attempt,
        count,
        handle=f"'att_{word}' || lpad(n::text, 9, '0')",
        task_id=f"{base[Task]} + n",
        decision_id=f"{base[Decision]} + n",
        submit_key=f"'k-{word}-' || n",
        job_id="n::text",
        planned_at=at,
        dispatch_started_at=at,
        submitted_at=at,
        started_at=at,
        ended_at=end,
        due_at=due,
        **common,
    )
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE orchestrator_task DISABLE TRIGGER USER")
        cursor.execute(
            f"UPDATE orchestrator_task t SET attempt_id = {base[Attempt]} + t.id - {base[Task]} "
            f"WHERE t.id > {base[Task]}"
        )
        cursor.execute("ALTER TABLE orchestrator_task ENABLE TRIGGER USER")


def happenings(event: Event, count: int, *, word: str) -> None:
    """Write events with positions; their hashes are only weight."""
    last = Event.objects.order_by("-pk")[0].pk
    multiply(event, count, handle=f"'evt_{word}' || lpad(n::text, 9, '0')", task="'task_' || (n / 10)")
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(max(seq), 0) FROM federation_eventposition")
        seq = cursor.fetchone()[0]
        cursor.execute("ALTER TABLE federation_eventposition DISABLE TRIGGER USER")
        cursor.execute(
            "INSERT INTO federation_eventposition (seq, event_id, hash) "
            f"SELECT {seq} + n, {last} + n, sha256(n::text::bytea) FROM generate_series(1, {count}) n"
        )
        cursor.execute("ALTER TABLE federation_eventposition ENABLE TRIGGER USER")


def analyse() -> None:
    """Let the planner know what is there, as autovacuum does in time."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _seen(system: System, *, now: datetime) -> None:
    """Store what a probe would have seen: 64 idle nodes."""
    pool = GpuPool(type="a100", total=4, used=0, free=4)
    nodes = tuple(
        Node(
            name=f"g{number}",
            partitions=("gpu",),
            state="idle",
            usable=True,
            cpus_total=64,
            cpus_free=64,
            memory_total_mib=262_144,
            memory_free_mib=262_144,
            gpus=(pool,),
        )
        for number in range(64)
    )
    partitions = (Partition(name="gpu", state="up", nodes_total=64),)
    probe = Probe(scheduler="slurm 24.11", taken_at=now, nodes=nodes, partitions=partitions, jobs=())
    way = Connection.objects.get(system=system)
    outcome = Outcome(connection=way, started_at=now, duration_s=0.1, is_full=True, probe=probe)
    _apply(system, ProfileDocument.model_validate(_PROFILE), outcome, now=now)


def first_task(user: User) -> Task:
    """Return one task with an attempt, made as the product makes them."""
    now = timezone.now()
    document = ProfileDocument.model_validate(_PROFILE)
    store_profile(document, str(_PROFILE), now=now)
    system = System.objects.get(slug="bench")
    connect(user, system, kind="local", settings={}, now=now, remote_user="bench")
    _seen(system, now=now)
    given = {"name": "load", "command": ["true"], "envelope": {"gpus": 1, "walltime_s": 600}}
    task = tasks.submit_task(user, given, actor="user:bench", now=now).task
    if task.attempt_id is None:
        raise SystemExit(f"the first task is {task.state}: {task.reason}")
    return task


def cycle() -> None:
    """Write one unchanged look at 500 due attempts, as one control cycle does."""
    now = timezone.now()
    for attempts in control._due(System.objects.get(slug="bench"), now=now).values():
        for attempt in attempts:
            with transaction.atomic():
                apply_fold(attempt, Fold(changes={"observed_at": now}), now=now, due_at=attempt.due_at)


def look_up() -> None:
    """Ask what the clock asks every second."""
    now = timezone.now()
    control.systems_with_work(now=now)
    control.tasks_with_work(now=now)
    groups.groups_with_work(now=now)


def calls(user: User, task: Task) -> Mapping[str, Callable[[], None]]:
    """Return what is measured, by name."""
    page, api = Client(SERVER_NAME="127.0.0.1"), Client(SERVER_NAME="127.0.0.1")
    page.force_login(user)
    _row, secret = tokens.issue_token(user, name="load", scopes=[Scope.READ], now=timezone.now())
    head = {"Authorization": f"Bearer {secret}"}

    def get(client: Client, path: str, headers: dict[str, str] | None = None) -> Callable[[], None]:
        def call() -> None:
            answer = client.get(path, headers=headers)
            if answer.status_code != 200:
                raise SystemExit(f"{path}: {answer.status_code} {answer.content[:300]!r}")

        return call

    def deep() -> None:
        cursor = ""
        for _page in range(5):
            answer = api.get(f"/api/v1/tasks?limit=200{cursor}", headers=head).json()
            cursor = f"&cursor={answer['next']}"

    reads = ("tasks?limit=50", "tasks?state=running&limit=50", "attempts?limit=50", "events?limit=100")
    return {
        "look-ups of the clock": look_up,
        "a control cycle of 500 looks": cycle,
        **{
            f"page {path}": get(page, path)
            for path in ("/", "/tasks/", "/events/", "/groups/", "/allocations/")
        },
        "page of a task": get(page, f"/tasks/{task.handle}/"),
        **{f"API {path}": get(api, f"/api/v1/{path}", headers=head) for path in reads},
        "API a task": get(api, f"/api/v1/tasks/{task.handle}", headers=head),
        "API 1,000 tasks by cursor": deep,
    }


def measure(named: Mapping[str, Callable[[], None]], goes: int) -> dict[str, float]:
    """Return the median time of each call, ms, after one that warms up."""
    found = {}
    for name, call in named.items():
        call()
        times = []
        for _go in range(goes):
            began = time.perf_counter()
            call()
            times.append((time.perf_counter() - began) * 1000)
        found[name] = statistics.median(times)
    return found


def grow(task: Task, event: Event, sizes: tuple[int, int], more: tuple[int, int]) -> None:
    """Add finished tasks and events up to these sizes."""
    finished, events = (much - little for much, little in zip(more, sizes, strict=True))
    if finished:
        work(task, finished, word=f"f{more[0]}", state="succeeded", is_open=False)
    if events:
        happenings(event, events, word=f"e{more[1]}")
    analyse()


def table(columns: Mapping[tuple[int, int], Mapping[str, float]]) -> None:
    """Print one line for each call, a column for each size, and the last over the first."""
    print(f"{'finished tasks':36} " + " ".join(f"{tasks:>10,}" for tasks, _ in columns))
    print(f"{'events':36} " + " ".join(f"{events:>10,}" for _, events in columns))
    first, *_, last = columns.values()
    for name in first:
        row = " ".join(f"{found[name]:>10.1f}" for found in columns.values())
        print(f"{name:36} {row} {last[name] / first[name]:>6.2f} ×")


def main() -> None:
    began = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--active", type=int, default=10_000)
    parser.add_argument("--finished", type=int, nargs="+", default=FINISHED, help="of each column, rising")
    parser.add_argument("--events", type=int, nargs="+", default=EVENTS, help="of each column, rising")
    parser.add_argument("--goes", type=int, default=7)
    given = parser.parse_args()
    sizes = list(zip(given.finished, given.events, strict=False))
    rising = all(sorted(each) == list(each) for each in (given.finished, given.events))
    if len(sizes) < 2 or len(given.finished) != len(given.events) or not rising:
        parser.error("--finished and --events take as many sizes each, two or more, rising")
    call_command("migrate", verbosity=0)
    user = User.objects.create_user("bench")
    task = first_task(user)
    event = Event.objects.filter(task=task.handle).order_by("-pk")[0]
    work(task, given.active, word="b", state="running", is_open=True)
    named, process = calls(user, task), psutil.Process()
    columns: dict[tuple[int, int], dict[str, float]] = {}
    before = (0, 0)
    for size in sizes:
        grow(task, event, before, size)
        before = size
        columns[size] = measure(named, given.goes) | {
            "memory of this process, MiB": process.memory_info().rss / 2**20
        }
        print(f"measured at {size[0]:,} finished after {time.perf_counter() - began:.0f} s", flush=True)
    rows = {model.__name__: model.objects.count() for model in (Task, Attempt, Event)}
    print(f"{given.active} active; in the end {rows}; medians of {given.goes}, ms")
    table(columns)
    print(f"the whole run took {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
