"""Indexes for tasks found by part of a name, and for what was placed since the snapshots."""

from django.contrib.postgres.indexes import GinIndex, OpClass
from django.contrib.postgres.operations import TrigramExtension
from django.db import migrations, models
from django.db.models.functions import Upper

_ENDED = ["succeeded", "failed", "cancelled", "superseded"]


def _words(column):
    index = GinIndex(OpClass(Upper(column), name="gin_trgm_ops"), name=f"task_words_of_{column}")
    return migrations.AddIndex("task", index)


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0020_environment_use")]

    operations = [
        # Trusted: the owner of the database may create it. It comes with PostgreSQL's own extra modules.
        TrigramExtension(),
        _words("name"),
        _words("objective"),
        migrations.AddIndex("attempt", models.Index(fields=["job_id"], name="attempt_by_job")),
        migrations.AddIndex(
            "attempt",
            models.Index(
                fields=["-planned_at", "-id"],
                condition=~models.Q(state__in=_ENDED),
                name="attempt_in_flight",
            ),
        ),
    ]
