"""The index for what the snapshots do not show: by when it was sent, no longer by when it was placed."""

from django.db import migrations, models

_ENDED = ["succeeded", "failed", "cancelled", "superseded"]


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0021_words_and_flights")]

    operations = [
        migrations.RemoveIndex("attempt", "attempt_in_flight"),
        migrations.AddIndex(
            "attempt",
            models.Index(
                fields=["dispatch_started_at"],
                condition=~models.Q(state__in=_ENDED),
                name="attempt_in_flight",
            ),
        ),
    ]
