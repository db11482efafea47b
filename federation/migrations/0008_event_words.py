"""Statistics of the words in events: without them a search that fits a million rows is planned as if for few."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("federation", "0007_balance_problem")]

    operations = [
        # An index of the words would find the rare ones sooner, and make every event dearer to write.
        migrations.RunSQL(
            "CREATE STATISTICS event_words ON (upper(summary::text)) FROM federation_event",
            "DROP STATISTICS event_words",
        )
    ]
