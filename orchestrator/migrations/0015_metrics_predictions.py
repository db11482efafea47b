"""What dashboards read of balances, archives and predictions, and how runs came out."""

from django.db import migrations

ALLOCATIONS = """
    CREATE OR REPLACE VIEW metrics.allocations AS
    SELECT u.username, s.slug AS system, a.account, a.unit, a.granted, a.reserved, a.used{more}
    FROM federation_allocation a JOIN auth_user u ON u.id = a.user_id
    JOIN federation_system s ON s.id = a.system_id;
"""
BALANCE = """,
           nullif(a.site_unit, '') AS site_unit, a.site_granted, a.site_used, a.site_left, a.site_at,
           extract(epoch FROM now() - a.site_at)::float AS site_age_s"""
VIEWS = {
    "event_archives": """
        SELECT first_seq, last_seq, events, first_at, last_at, bytes, created_at FROM federation_eventarchive
    """,
    # What was expected of each attempt and what came; charges by the whole wall time are linear in time.
    "predictions": """
        SELECT attempt, system, partition, state, restarts, planned_at, ended_at, runtime_source, unit,
               wait_p50_s, wait_p90_s, waited_s, runtime_p50_s, runtime_p90_s, ran_s,
               charge_most * least(runtime_p50_s / walltime_s, 1) AS charge_p50,
               charge_most * least(runtime_p90_s / walltime_s, 1) AS charge_p90, charge_most, charge_cost
        FROM (
            SELECT a.handle AS attempt, s.slug AS system, a.partition, a.state, a.restarts, a.planned_at, a.ended_at,
                   a.predicted ->> 'runtime_source' AS runtime_source,
                   a.predicted #>> '{charge,unit}' AS unit,
                   (a.predicted #>> '{wait_s,p50}')::float AS wait_p50_s,
                   (a.predicted #>> '{wait_s,p90}')::float AS wait_p90_s,
                   extract(epoch FROM a.started_at - a.submitted_at)::float AS waited_s,
                   (a.predicted ->> 'runtime_s')::float AS runtime_p50_s,
                   (a.predicted ->> 'runtime_p90_s')::float AS runtime_p90_s,
                   extract(epoch FROM a.ended_at - a.started_at)::float AS ran_s,
                   (a.predicted #>> '{charge,amount}')::float AS charge_most,
                   nullif((a.shape ->> 'walltime_s')::float, 0) AS walltime_s,
                   a.charge_cost::float AS charge_cost
            FROM orchestrator_attempt a JOIN federation_system s ON s.id = a.system_id
        ) AS figures
    """,
    "run_calibration": """
        SELECT measure, system, partition, runtime_source, unit, count(*) AS n,
               CASE WHEN measure = 'runtime' THEN avg((abs(actual - p50) <= 60)::int)::float END AS within_1min,
               avg((ratio BETWEEN 0.5 AND 2)::int)::float AS within_2x,
               avg(abs(ln(ratio)))::float AS log_error,
               avg((actual <= p90)::int)::float AS p90_coverage
        FROM (
            SELECT *, greatest(actual, least_of) / greatest(p50, least_of) AS ratio
            FROM (
                SELECT 'runtime' AS measure, system, partition, runtime_source, 's' AS unit, 1::float AS least_of,
                       runtime_p50_s AS p50, runtime_p90_s AS p90, greatest(ran_s, 0) AS actual, state, restarts, ended_at
                FROM metrics.predictions
                UNION ALL
                SELECT 'charge', system, partition, runtime_source, unit, 0.0001, charge_p50, charge_p90, charge_cost,
                       state, restarts, ended_at
                FROM metrics.predictions WHERE unit IS NOT NULL
            ) AS outcomes
            WHERE state = 'succeeded' AND restarts = 0 AND p50 IS NOT NULL AND p90 IS NOT NULL AND actual IS NOT NULL
                  AND ended_at > now() - interval '30 days'
        ) AS ratios
        GROUP BY measure, system, partition, runtime_source, unit
    """,
}

CREATE = ALLOCATIONS.format(more=BALANCE) + "\n".join(
    f"CREATE VIEW metrics.{name} AS {body};" for name, body in VIEWS.items()
)
DROP = (
    "\n".join(f"DROP VIEW metrics.{name};" for name in reversed(VIEWS))
    + "DROP VIEW metrics.allocations;"
    + ALLOCATIONS.format(more="").replace("CREATE OR REPLACE", "CREATE")
)


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0014_metrics_budgets"), ("federation", "0007_balance_problem")]
    operations = [migrations.RunSQL(CREATE, DROP)]
