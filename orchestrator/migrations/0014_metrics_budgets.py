"""What budgets allow, hold and used, and which placements wait for a person: for dashboards and `/metrics`."""

from django.db import migrations

VIEWS = {
    "budgets": """
        SELECT b.handle AS budget, u.username, b.scope, b.subject, b.is_imposed, b.on_exhaustion, b.created_at,
               b.deadline_at, b.closed_at, m.measure, nullif(m.system, '') AS system, m.unit, m."limit",
               m.reserved, m.used, ((m.reserved + m.used) / nullif(m."limit", 0))::float AS share, m.exhausted_at
        FROM orchestrator_budget b JOIN auth_user u ON u.id = b.user_id
        JOIN orchestrator_meter m ON m.budget_id = b.id
    """,
    "approvals": """
        SELECT a.handle AS approval, u.username, t.handle AS task, a.state, a.needs_admin, a.created_at, a.expires_at,
               a.decided_at, extract(epoch FROM coalesce(a.decided_at, now()) - a.created_at)::float AS waited_s
        FROM orchestrator_approval a JOIN auth_user u ON u.id = a.user_id JOIN orchestrator_task t ON t.id = a.task_id
    """,
    "spending": """
        SELECT l.at, b.handle AS budget, b.scope, b.subject, m.measure, nullif(m.system, '') AS system, m.unit,
               l.amount
        FROM orchestrator_budgetline l JOIN orchestrator_meter m ON m.id = l.meter_id
        JOIN orchestrator_budget b ON b.id = m.budget_id WHERE l.kind IN ('settle', 'correct')
    """,
}
CREATE = "\n".join(f"CREATE VIEW metrics.{name} AS {body};" for name, body in VIEWS.items())
DROP = "\n".join(f"DROP VIEW metrics.{name};" for name in reversed(VIEWS))


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0013_admin_names")]
    operations = [migrations.RunSQL(CREATE, DROP)]
