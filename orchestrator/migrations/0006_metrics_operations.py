"""What operators watch: the control loop, deliveries, circuits, and how placements turned out.

The dashboards and `/metrics` read these views; each answers from an index or from a table that is kept short.
"""

from django.db import migrations, models

VIEWS = {
    # Open tasks only: the terminal ones grow without end, and the partial index `task_active` leaves them out.
    "task_states": """
        SELECT state, count(*) AS tasks, extract(epoch FROM now() - min(created_at))::float AS oldest_s
        FROM orchestrator_task WHERE NOT (state IN ('succeeded', 'failed', 'cancelled')) GROUP BY state
    """,
    "attempt_states": """
        SELECT s.slug AS system, a.state, count(*) AS attempts,
               extract(epoch FROM now() - min(a.observed_at))::float AS oldest_look_s
        FROM orchestrator_attempt a JOIN federation_system s ON s.id = a.system_id
        WHERE NOT (a.state IN ('succeeded', 'failed', 'cancelled', 'superseded')) GROUP BY s.slug, a.state
    """,
    # `due`: what should have been looked at by now; `lag_s`: how long the first of it has been waiting.
    "due": """
        SELECT kind, count(at) AS scheduled, count(at) FILTER (WHERE at <= now()) AS due,
               coalesce(greatest(extract(epoch FROM now() - min(at)), 0), 0)::float AS lag_s
        FROM (VALUES ('task'), ('attempt'), ('group'), ('transfer'), ('delivery'), ('probe')) AS kinds (kind)
        LEFT JOIN (
            SELECT 'task' AS kind, due_at AS at FROM orchestrator_task WHERE due_at IS NOT NULL
            UNION ALL SELECT 'attempt', due_at FROM orchestrator_attempt WHERE due_at IS NOT NULL
            UNION ALL SELECT 'group', due_at FROM orchestrator_group WHERE due_at IS NOT NULL
            UNION ALL SELECT 'transfer', due_at FROM orchestrator_transfer WHERE due_at IS NOT NULL
            UNION ALL SELECT 'delivery', next_at FROM orchestrator_delivery WHERE state = 'pending'
            UNION ALL SELECT 'probe', next_probe_at FROM federation_system
                      WHERE is_enabled AND profile_id IS NOT NULL AND next_probe_at IS NOT NULL
        ) AS waiting USING (kind)
        GROUP BY kind
    """,
    "attempt_timings": """
        SELECT a.handle AS attempt, s.slug AS system, a.state, a.planned_at, a.dispatch_started_at, a.submitted_at,
               a.observed_at, a.ended_at, a.finished_at, a.dispatches,
               extract(epoch FROM a.submitted_at - a.planned_at)::float AS dispatch_s,
               extract(epoch FROM a.finished_at - a.ended_at)::float AS noticed_after_s
        FROM orchestrator_attempt a JOIN federation_system s ON s.id = a.system_id
    """,
    "decisions": """
        SELECT d.handle AS decision, d.purpose, nullif(d.system, '') AS system, nullif(d.partition, '') AS partition,
               d.created_at, d.body ->> 'result' AS result, (d.body ->> 'margin_s')::float AS margin_s
        FROM orchestrator_decision d
    """,
    # Regret: how much later it ended than the runner-up was expected to; 0 where the choice proved right.
    "regret": """
        SELECT attempt, task, system, partition, planned_at, ended_at, predicted_s, runner_up, runner_up_s, actual_s,
               actual_s - predicted_s AS late_by_s, greatest(actual_s - runner_up_s, 0) AS regret_s
        FROM (
            SELECT a.handle AS attempt, t.handle AS task, s.slug AS system, a.partition, a.planned_at, a.ended_at,
                   (d.body #>> '{selected,estimates,completion_s}')::float AS predicted_s,
                   d.body #>> '{runner_up,system}' AS runner_up,
                   (d.body #>> '{runner_up,estimates,completion_s}')::float AS runner_up_s,
                   extract(epoch FROM a.ended_at - a.planned_at)::float AS actual_s
            FROM orchestrator_attempt a JOIN orchestrator_decision d ON d.id = a.decision_id
            JOIN orchestrator_task t ON t.id = a.task_id JOIN federation_system s ON s.id = a.system_id
            WHERE a.state = 'succeeded' AND a.restarts = 0 AND a.ended_at IS NOT NULL
        ) AS outcomes
    """,
    "subscriptions": """
        SELECT s.handle AS subscription, u.username, s.target, s.state, s.failures,
               greatest(head.seq - CASE s.target WHEN 'cursor' THEN s.acked_seq ELSE s.cursor_seq END, 0) AS behind
        FROM orchestrator_subscription s JOIN auth_user u ON u.id = s.user_id
        CROSS JOIN (SELECT coalesce(max(seq), 0) AS seq FROM federation_eventposition) AS head
    """,
    "deliveries": """
        SELECT d.handle AS delivery, s.handle AS subscription, d.event_type, d.state, d.attempts AS tries,
               d.created_at, d.next_at, d.delivered_at, e.at AS event_at,
               extract(epoch FROM d.delivered_at - e.at)::float AS delay_s
        FROM orchestrator_delivery d JOIN orchestrator_subscription s ON s.id = d.subscription_id
        LEFT JOIN federation_event e ON e.handle = d.event
    """,
    "circuits": """
        SELECT slug AS system, coalesce(circuit ->> 'state', 'closed') AS state,
               coalesce((circuit ->> 'failures')::int, 0) AS failures, coalesce((circuit ->> 'trips')::int, 0) AS trips,
               (circuit ->> 'opened_at')::timestamptz AS opened_at, (circuit ->> 'retry_at')::timestamptz AS retry_at
        FROM federation_system
    """,
    "free_capacity": """
        SELECT s.slug AS system, p.taken_at, (p.counts ->> 'gpus')::int AS gpus, (p.counts ->> 'gpus_free')::int AS gpus_free,
               (p.counts ->> 'nodes')::int AS nodes, (p.counts ->> 'nodes_usable')::int AS nodes_usable,
               (p.counts ->> 'running')::int AS running, (p.counts ->> 'pending')::int AS pending
        FROM federation_system s JOIN federation_snapshot p ON p.id = s.snapshot_id
    """,
    "connections": """
        SELECT s.slug AS system, c.kind, c.state, count(*) AS connections
        FROM federation_connection c JOIN federation_system s ON s.id = c.system_id GROUP BY s.slug, c.kind, c.state
    """,
    "recent_outcomes": """
        SELECT state, cause, count(*) AS tasks FROM orchestrator_task
        WHERE finished_at > now() - interval '15 minutes' GROUP BY state, cause
    """,
}

CREATE = "\n".join(f"CREATE VIEW metrics.{name} AS {body};" for name, body in VIEWS.items())
DROP = "\n".join(f"DROP VIEW metrics.{name};" for name in reversed(VIEWS))


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0005_metrics_calibration"), ("federation", "0004_circuit")]
    operations = [
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                name="task_finished", fields=["finished_at"], condition=models.Q(finished_at__isnull=False)
            ),
        ),
        migrations.RunSQL(CREATE, DROP),
    ]
