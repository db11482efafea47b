"""Where environments are, filled from every run so far."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from orchestrator.environments import environment_of


def fill(apps, schema_editor):
    """Note the first and the last good run of every environment of every user at every system."""
    attempts = apps.get_model("orchestrator", "Attempt")
    uses = apps.get_model("orchestrator", "EnvironmentUse")
    rows = (
        attempts.objects.filter(state="succeeded", ended_at__isnull=False)
        .order_by("id")
        .values_list("pk", "task__user_id", "system_id", "ended_at", "task__spec", "task__envelope__body")
    )
    found = {}
    for pk, user_id, system_id, ended_at, spec, body in rows.iterator(chunk_size=1000):
        environment = environment_of(spec.get("environment"), (body.get("container") or {}).get("image"))
        if environment is not None:
            use = found.setdefault((user_id, environment, system_id), [pk, ended_at])
            use[1] = max(use[1], ended_at)
    uses.objects.bulk_create(
        [
            uses(
                user_id=user_id,
                environment=environment,
                system_id=system_id,
                first_attempt_id=pk,
                last_at=ended_at,
            )
            for (user_id, environment, system_id), (pk, ended_at) in found.items()
        ],
        batch_size=1000,
    )


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0001_initial"),
        ("orchestrator", "0019_task_lists_in_order"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="EnvironmentUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("environment", models.CharField(max_length=300)),
                ("last_at", models.DateTimeField()),
                (
                    "first_attempt",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="orchestrator.attempt"
                    ),
                ),
                (
                    "system",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="federation.system"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "environment", "system"), name="one_use_per_environment"
                    )
                ],
            },
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
