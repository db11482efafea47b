"""Let a request that died be resumed from what it made."""

import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("portal", "0001_initial")]
    operations = [
        migrations.AddField(
            model_name="idempotencyrecord",
            name="created",
            field=models.CharField(blank=True, max_length=40),
        ),
        migrations.AddField(
            model_name="idempotencyrecord",
            name="started_at",
            field=models.DateTimeField(default=django.utils.timezone.now),
            preserve_default=False,
        ),
    ]
