"""The hash of one event over the hash before it. Epoch times and separators, so that no locale or zone matters."""

from django.db import migrations

CREATE = """
CREATE FUNCTION facet_event_hash(e federation_event, previous bytea) RETURNS bytea
LANGUAGE sql STABLE AS $$
    SELECT sha256(coalesce(previous, ''::bytea) || convert_to(concat_ws(chr(31),
        e.handle, e.type, e.subject, coalesce(e.user_id::text, '-'), e.system, e.task, e."group", e.attempt,
        e.transfer, e.actor, e.on_behalf_of, extract(epoch FROM e.at)::text, e.state, e.summary,
        e.data::text, e.next_actions::text, e.wake), 'UTF8'))
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("federation", "0001_initial")]
    operations = [migrations.RunSQL(CREATE, "DROP FUNCTION facet_event_hash(federation_event, bytea)")]
