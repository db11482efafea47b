"""How good predicted waits were, for dashboards: the figures of `placement/calibration.py`, of all users."""

from django.db import migrations

CREATE = """
    CREATE VIEW metrics.calibration AS
    SELECT system, partition, wait_class, count(*) AS n,
           avg((abs(actual_s - p50_s) <= 60)::int)::float AS within_1min,
           avg((ratio BETWEEN 0.5 AND 2)::int)::float AS within_2x,
           avg(abs(ln(ratio)))::float AS log_error,
           avg((actual_s <= p90_s)::int)::float AS p90_coverage
    FROM (
        SELECT system, partition, wait_class, p50_s, p90_s, actual_s,
               greatest(actual_s, 1) / greatest(p50_s, 1) AS ratio
        FROM (
            SELECT system, partition, wait_class, predicted_wait_p50_s AS p50_s, predicted_wait_p90_s AS p90_s,
                   greatest(waited_s, 0)::float AS actual_s
            FROM metrics.attempts
            WHERE wait_class IS NOT NULL AND predicted_wait_p50_s IS NOT NULL AND waited_s IS NOT NULL
                  AND restarts = 0 AND started_at > now() - interval '30 days'
        ) AS outcomes
    ) AS ratios
    GROUP BY system, partition, wait_class;
"""
DROP = "DROP VIEW metrics.calibration;"


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0004_subscriptions")]
    operations = [migrations.RunSQL(CREATE, DROP)]
