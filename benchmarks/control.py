"""What a control cycle costs against active and finished work.

    .venv/bin/python -m benchmarks.control [--finished 0 100000 1000000] [--active 10 100 1000 10000]

On a real PostgreSQL, filled with finished attempts and tasks; no site is asked. Prints the time of the
look-ups that every second makes (systems, tasks and groups with work) and of folding one observation into
each due attempt; both are to grow with active work only.
"""

import argparse
import time

from benchmarks import _services  # noqa: F401  # starts the servers before Django reads its settings

# isort: split
from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone

from federation.models import System
from orchestrator import control
from orchestrator.models import Attempt
from orchestrator.observation import Fold
from orchestrator.services import groups
from orchestrator.services.attempts import apply_fold

_BASE = """
INSERT INTO auth_user (id, password, is_superuser, username, first_name, last_name, email, is_staff, is_active, date_joined)
VALUES (1, '!', false, 'bench', '', '', '', false, true, now());
INSERT INTO federation_system (id, slug, name, centre, dialect, is_enabled, disabled_reason, health, health_reason,
  consecutive_failures, partitions, created_at) VALUES (1, 's', 'S', '', 'slurm', true, '', 'online', '', 0, '[]', now());
INSERT INTO federation_connection (id, handle, user_id, system_id, kind, remote_user, settings, state, state_reason, facts, created_at)
VALUES (1, 'con_1', 1, 1, 'local', '', '{}', 'active', '', '{}', now());
INSERT INTO orchestrator_envelope (id, handle, user_id, source, body, rationale, created_at)
VALUES (1, 'env_1', 1, 'user', '{}', '{}', now());
"""


def fill(first: int, count: int, state: str, task_state: str, due: str) -> None:
    """Write tasks and attempts straight into the tables, triggers off: this is only weight."""
    with connection.cursor() as cursor:
        for table in ("orchestrator_task", "orchestrator_attempt", "orchestrator_decision"):
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        span = f"generate_series({first}, {first + count - 1}) n"
        cursor.execute(f"""
            INSERT INTO orchestrator_task (id, handle, user_id, actor, name, objective, state, cause, reason, spec,
              envelope_id, client_ref, kind, replacements, excluded_systems, plan, created_at, updated_at, group_key,
              group_round, group_after)
            SELECT n, 'task_' || n, 1, 'u', 'x', '', '{task_state}', '', '', '{{"retry": {{}}}}', 1, '', '', 0, '[]', '{{}}',
              now(), now(), '', 1, '[]' FROM {span}""")
        cursor.execute(f"""
            INSERT INTO orchestrator_decision (id, handle, user_id, task_id, purpose, input_hash, system, partition, body, created_at)
            SELECT n, 'dec_' || n, 1, n, 'submit', '', 's', 'p', '{{}}', now() FROM {span}""")
        cursor.execute(f"""
            INSERT INTO orchestrator_attempt (id, handle, task_id, number, decision_id, connection_id, system_id, partition,
              account, qos, shape, predicted, submit_key, job_id, state, cause, state_raw, reason_raw, reason_explained,
              looks_without_trace, workdir, stdout_path, stderr_path, planned_at, dispatches, restarts, node_names,
              cancel_reason, due_at)
            SELECT n, 'att_' || n, n, 1, n, 1, 1, 'p', '', '', '{{}}', '{{}}', 'k' || n, n, '{state}', '', '', '', '', 0, '', '',
              '', now(), 1, 0, '[]', '', {due} FROM {span}""")
        for table in ("orchestrator_task", "orchestrator_attempt", "orchestrator_decision"):
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
        cursor.execute("ANALYZE orchestrator_task, orchestrator_attempt")


def lookups_ms() -> float:
    """Return the time of what the clock asks every second."""
    now = timezone.now()
    best = min(_once(now) for _ in range(5))
    return best * 1000


def _once(now: object) -> float:
    began = time.perf_counter()
    control.systems_with_work(now=now)  # type: ignore[arg-type]  # an instant
    control.tasks_with_work(now=now)  # type: ignore[arg-type]  # an instant
    groups.groups_with_work(now=now)  # type: ignore[arg-type]  # an instant
    return time.perf_counter() - began


def folds_ms(active: int) -> float:
    """Return the time of writing one unchanged look at up to 500 due attempts, as one cycle does."""
    now = timezone.now()
    began = time.perf_counter()
    for attempts in control._due(System.objects.get(pk=1), now=now).values():
        for attempt in attempts:
            with transaction.atomic():
                apply_fold(attempt, Fold(changes={"observed_at": now}), now=now, due_at=now)
    del active
    return (time.perf_counter() - began) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--finished", type=int, nargs="+", default=[0, 100_000, 1_000_000])
    parser.add_argument("--active", type=int, nargs="+", default=[10, 100, 1_000, 10_000])
    given = parser.parse_args()
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute(_BASE)
    number, active_total, finished_total = 1, 0, 0
    print(f"{'finished':>10} {'active':>8} {'look-ups':>12} {'one cycle of <= 500 folds':>28}")
    for finished in given.finished:
        fill(
            number, finished - finished_total, "succeeded", "succeeded", "NULL"
        ) if finished > finished_total else None
        number, finished_total = number + max(0, finished - finished_total), max(finished, finished_total)
        for active in given.active:
            if active > active_total:
                fill(number, active - active_total, "running", "running", "now() - interval '1 minute'")
                number, active_total = number + active - active_total, active
            print(
                f"{finished:>10} {Attempt.objects.filter(state='running').count():>8} {lookups_ms():>9.1f} ms {folds_ms(active):>25.0f} ms"
            )
        with connection.cursor() as cursor:
            for table in ("orchestrator_attempt", "orchestrator_task", "orchestrator_decision"):
                cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
            cursor.execute("DELETE FROM orchestrator_attempt WHERE state = 'running'")
            cursor.execute(
                "DELETE FROM orchestrator_decision d WHERE NOT EXISTS (SELECT 1 FROM orchestrator_attempt a WHERE a.decision_id = d.id)"
            )
            cursor.execute("DELETE FROM orchestrator_task WHERE state = 'running'")
            for table in ("orchestrator_attempt", "orchestrator_task", "orchestrator_decision"):
                cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
        active_total = 0


if __name__ == "__main__":
    main()
