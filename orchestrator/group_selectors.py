"""Reading what the children of a group left and cost together."""

from django.db import connection
from django.db.models import Max, Min

from orchestrator.budget_selectors import costs_of_group
from orchestrator.models import Attempt, Group
from orchestrator.shown import GroupManifestShown

_FILES = """
    SELECT count(*),
           count(*) FILTER (WHERE jsonb_typeof(left_.body -> 'files') IS DISTINCT FROM 'array'),
           coalesce(sum(listed.files), 0),
           coalesce(sum(listed.bytes), 0)
    FROM orchestrator_manifest left_
    JOIN orchestrator_task task ON task.id = left_.task_id
    CROSS JOIN LATERAL (
        SELECT count(*) AS files, sum((file ->> 'bytes')::numeric) AS bytes
        FROM jsonb_array_elements(
            CASE jsonb_typeof(left_.body -> 'files') WHEN 'array' THEN left_.body -> 'files' ELSE '[]' END
        ) AS file
    ) AS listed
    WHERE task.group_id = %s
"""
"""Counted by the database: a sweep's thousand manifests may list a million files."""


def manifest_of_group(group: Group) -> GroupManifestShown:
    """Return what all children left together so far, when they ran, and what they cost, site by site."""
    with connection.cursor() as cursor:
        cursor.execute(_FILES, [group.pk])
        manifests, unlisted, files, size = cursor.fetchone()
    ran = Attempt.objects.filter(task__group=group).aggregate(Min("started_at"), Max("ended_at"))
    return GroupManifestShown(
        manifests=manifests,
        unlisted=unlisted,
        files=int(files),
        bytes=int(size),
        started_at=ran["started_at__min"],
        ended_at=ran["ended_at__max"],
        cost=costs_of_group(group),
    )
