"""Regret is unknown, and not 0, where a placement had no runner-up."""

from django.db import migrations

REGRET = """
    CREATE OR REPLACE VIEW metrics.regret AS
    SELECT attempt, task, system, partition, planned_at, ended_at, predicted_s, runner_up, runner_up_s, actual_s,
           actual_s - predicted_s AS late_by_s, {regret} AS regret_s
    FROM (
        SELECT a.handle AS attempt, t.handle AS task, s.slug AS system, a.partition, a.planned_at, a.ended_at,
               (d.body #>> '{{selected,estimates,completion_s}}')::float AS predicted_s,
               d.body #>> '{{runner_up,system}}' AS runner_up,
               (d.body #>> '{{runner_up,estimates,completion_s}}')::float AS runner_up_s,
               extract(epoch FROM a.ended_at - a.planned_at)::float AS actual_s
        FROM orchestrator_attempt a JOIN orchestrator_decision d ON d.id = a.decision_id
        JOIN orchestrator_task t ON t.id = a.task_id JOIN federation_system s ON s.id = a.system_id
        WHERE a.state = 'succeeded' AND a.restarts = 0 AND a.ended_at IS NOT NULL
    ) AS outcomes;
"""
NEW = REGRET.format(regret="CASE WHEN runner_up_s IS NOT NULL THEN greatest(actual_s - runner_up_s, 0) END")
OLD = REGRET.format(regret="greatest(actual_s - runner_up_s, 0)")


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0009_budgets")]
    operations = [migrations.RunSQL(NEW, OLD)]
