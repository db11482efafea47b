"""Asking PostgreSQL and Redis for the figures of one scrape; what fails is counted and costs only itself."""

import time
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import DatabaseError, connection, transaction
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis import RedisError

from portal import heartbeat
from portal.celery import QUEUES
from portal.telemetry.sources import SOURCES, Source
from portal.version import version

PREFIX = "facet_"
_TIMEOUT_MS = 3000
"""For one source: a scrape must not become a load of its own."""


class Figures(Collector):
    """Everything that is known only by asking, under one registry entry."""

    def describe(self) -> list[Metric]:
        """Name nothing beforehand: that would ask the database while the program starts."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the families of every source, and how each source did."""
        ok = _family("scrape_ok", "1: this part of the scrape answered.", ("part",))
        took = _family("scrape_part_seconds", "How long this part of the scrape took.", ("part",))
        parts = [(source.name, source) for source in SOURCES]
        for name, source in [*parts, ("queues", None)]:
            started = time.monotonic()
            try:
                families = _of_database(source) if source else _of_redis()
            except (DatabaseError, RedisError):
                families = []
                ok.add_metric([name], 0)
            else:
                ok.add_metric([name], 1)
            took.add_metric([name], time.monotonic() - started)
            yield from families
        build = _family("build_info", "Which Facet this is.", ("version",))
        build.add_metric([version()], 1)
        yield from (ok, took, build)


def _family(name: str, means: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, means, labels=labels)


def _of_database(source: Source) -> list[GaugeMetricFamily]:
    families = {column: _family(*named, source.labels) for column, named in source.figures.items()}
    for row in _rows(source.sql):
        labels = [str(row[name] if row[name] is not None else "") for name in source.labels]
        for column, family in families.items():
            if row[column] is not None:
                family.add_metric(labels, _number(row[column]))
    return list(families.values())


def _rows(sql: str) -> list[dict[str, Any]]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL statement_timeout = {_TIMEOUT_MS}")
        cursor.execute(sql)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _number(value: Decimal | float | datetime) -> float:
    return value.timestamp() if isinstance(value, datetime) else float(value)


def _of_redis() -> list[GaugeMetricFamily]:
    """Return how many chores wait in each queue, and when each part was last heard."""
    depth = _family("queue_depth", "Chores that wait in a queue.", ("queue",))
    client = heartbeat.redis_client()
    for queue in QUEUES:
        depth.add_metric([queue], float(client.llen(queue)))
    heard = _family("heard_age_seconds", "Since a part of Facet was last heard; absent: never.", ("part",))
    for name in (*heartbeat.WORKERS, heartbeat.CLOCK, heartbeat.CONTROL_CYCLE):
        age_s = heartbeat.age(name)
        if age_s is not None:
            heard.add_metric([name], age_s)
    return [depth, heard]
