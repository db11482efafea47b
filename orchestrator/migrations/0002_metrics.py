"""The views that dashboards read: schema `metrics`, and nothing else of ours. No secrets, no free text of users."""

from django.db import migrations

VIEWS = {
    "systems": """
        SELECT s.slug AS system, s.name, s.centre, s.health, s.health_reason, s.health_since, s.is_enabled,
               s.last_success_at, extract(epoch FROM now() - s.last_success_at) AS age_s,
               s.consecutive_failures
        FROM federation_system s
    """,
    "probes": """
        SELECT s.slug AS system, p.taken_at AS at, p.duration_s, p.availability, p.is_full
        FROM federation_snapshot p JOIN federation_system s ON s.id = p.system_id
    """,
    "partition_samples": """
        SELECT s.slug AS system, p.partition, p.at, p.gpus_total, p.gpus_free, p.cpus_total, p.cpus_free,
               p.nodes_total, p.nodes_up, p.nodes_idle, p.running, p.pending, p.eligible
        FROM federation_partitionsample p JOIN federation_system s ON s.id = p.system_id
    """,
    "tasks": """
        SELECT t.handle AS task, u.username, t.state, t.cause, t.created_at, t.finished_at, t.replacements,
               s.slug AS system, a.partition
        FROM orchestrator_task t JOIN auth_user u ON u.id = t.user_id
        LEFT JOIN orchestrator_attempt a ON a.id = t.attempt_id
        LEFT JOIN federation_system s ON s.id = a.system_id
    """,
    "attempts": """
        SELECT a.handle AS attempt, t.handle AS task, a.number, s.slug AS system, a.partition, a.account,
               a.state, a.cause, a.planned_at, a.submitted_at, a.started_at, a.ended_at, a.restarts,
               (a.shape ->> 'gpus')::int AS gpus, (a.shape ->> 'cpus')::int AS cpus,
               (a.shape ->> 'nodes')::int AS nodes,
               a.predicted #>> '{wait,class}' AS wait_class,
               (a.predicted #>> '{wait_s,p50}')::float AS predicted_wait_p50_s,
               (a.predicted #>> '{wait_s,p90}')::float AS predicted_wait_p90_s,
               extract(epoch FROM a.started_at - a.submitted_at) AS waited_s,
               (a.predicted ->> 'runtime_s')::float AS predicted_runtime_s,
               extract(epoch FROM a.ended_at - a.started_at) AS ran_s
        FROM orchestrator_attempt a JOIN orchestrator_task t ON t.id = a.task_id
        JOIN federation_system s ON s.id = a.system_id
    """,
    "events": """
        SELECT p.seq, e.type, e.subject, e.system, e.at, e.state, e.wake
        FROM federation_event e JOIN federation_eventposition p ON p.event_id = e.id
    """,
    "allocations": """
        SELECT u.username, s.slug AS system, a.account, a.unit, a.granted, a.reserved, a.used
        FROM federation_allocation a JOIN auth_user u ON u.id = a.user_id
        JOIN federation_system s ON s.id = a.system_id
    """,
}

CREATE = "CREATE SCHEMA IF NOT EXISTS metrics;\n" + "\n".join(
    f"CREATE VIEW metrics.{name} AS {body};" for name, body in VIEWS.items()
)
DROP = "DROP SCHEMA metrics CASCADE;"


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0001_initial"), ("federation", "0002_event_hash")]
    operations = [migrations.RunSQL(CREATE, DROP)]
