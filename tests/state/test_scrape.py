"""`/metrics`: for the holder of the token only, and every figure is what the database and Redis say."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis

from federation.models import System
from orchestrator.models import Delivery, Subscription
from portal import heartbeat
from portal.telemetry.sources import SOURCES
from tests.state.conftest import Sites

pytestmark = pytest.mark.django_db(transaction=True)

TOKEN = "a-token-of-the-scraper"


@pytest.fixture(autouse=True)
def _served(settings: Any) -> None:
    settings.METRICS_TOKEN = TOKEN


def _scraped() -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return every sample by name and labels."""
    answer = Client().get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.content.decode())
        for sample in family.samples
    }


def _at(scraped: Mapping[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str) -> float:
    return scraped[f"facet_{name}", frozenset(labels.items())]


def test_only_the_holder_of_the_token_is_answered(settings: Any) -> None:
    client = Client()

    for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
        refused = client.get("/metrics", headers=given)
        assert (refused.status_code, refused["WWW-Authenticate"]) == (401, 'Bearer realm="facet metrics"')
        assert b"facet_" not in refused.content
    assert client.post("/metrics").status_code == 405

    settings.METRICS_TOKEN = ""
    assert client.get("/metrics", headers={"Authorization": "Bearer "}).status_code == 404


def test_every_part_answers_on_an_empty_installation() -> None:
    scraped = _scraped()

    parts = {
        dict(labels)["part"]: value for (name, labels), value in scraped.items() if name == "facet_scrape_ok"
    }
    assert parts == dict.fromkeys([*(source.name for source in SOURCES), "queues"], 1.0)
    assert _at(scraped, "work_due", kind="task") == 0
    assert _at(scraped, "work_lag_seconds", kind="delivery") == 0


def test_systems_and_work_are_told_as_they_stand(sites: Sites, alice: User, now: datetime) -> None:
    system = sites.add("delta", alice, account="bbka-delta-gpu")
    System.objects.filter(pk=system.pk).update(
        last_success_at=now - timedelta(minutes=5),
        next_probe_at=now - timedelta(seconds=90),
        circuit={"state": "open", "failures": 3},
    )
    assert system.snapshot is not None
    counts = system.snapshot.counts

    scraped = _scraped()

    assert _at(scraped, "system_up", system="delta") == 1
    assert _at(scraped, "system_snapshot_age_seconds", system="delta") == pytest.approx(300, abs=60)
    assert _at(scraped, "system_gpus", system="delta") == counts["gpus"]
    assert _at(scraped, "system_gpus_free", system="delta") == counts["gpus_free"]
    assert _at(scraped, "system_circuit", system="delta", state="open") == 1
    assert _at(scraped, "work_due", kind="probe") == 1
    assert _at(scraped, "work_lag_seconds", kind="probe") == pytest.approx(90, abs=60)
    assert _at(scraped, "connections", system="delta", kind="local", state="active") == 1
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(seq) FROM federation_eventposition")
        assert _at(scraped, "events_last_seq") == cursor.fetchone()[0]


def test_deliveries_and_how_late_they_are(alice: User, now: datetime) -> None:
    subscription = Subscription.objects.create(
        handle="sub_1", user=alice, name="s", target="webhook", url="https://x.example", cursor_seq=0,
        acked_seq=0, created_at=now, updated_at=now,
    )  # fmt: skip
    for number, state in enumerate(("pending", "dead", "dead")):
        Delivery.objects.create(
            handle=f"dlv_{number}", subscription=subscription, seq=number, event=f"evt_{number}",
            event_type="task.failed", body="{}", state=state, created_at=now,
            next_at=now - timedelta(minutes=10) if state == "pending" else None,
        )  # fmt: skip

    scraped = _scraped()

    assert _at(scraped, "deliveries", state="dead") == 2
    assert _at(scraped, "work_due", kind="delivery") == 1
    assert _at(scraped, "work_lag_seconds", kind="delivery") == pytest.approx(600, abs=60)
    assert _at(scraped, "subscriptions", target="webhook", state="active") == 1


def test_queues_and_signs_of_life_come_from_redis() -> None:
    client = heartbeat.redis_client()
    heartbeat.beat(heartbeat.CLOCK)
    before = client.llen("control")
    client.lpush("control", "a-chore")
    try:
        scraped = _scraped()
    finally:
        client.lrem("control", 1, "a-chore")

    assert _at(scraped, "queue_depth", queue="control") == before + 1
    assert _at(scraped, "heard_age_seconds", part="clock") < 60


def test_redis_away_costs_only_its_own_part(monkeypatch: pytest.MonkeyPatch) -> None:

    away = Redis.from_url("redis://127.0.0.1:1/0", socket_connect_timeout=0.2)
    monkeypatch.setattr(heartbeat, "redis_client", lambda: away)

    scraped = _scraped()

    assert _at(scraped, "scrape_ok", part="queues") == 0
    assert _at(scraped, "scrape_ok", part="due") == 1
    assert not [name for name, _ in scraped if name == "facet_queue_depth"]


def test_answers_are_counted_by_route_and_not_by_path() -> None:
    client = Client()
    before = _scraped()
    client.get("/healthz")
    client.get("/no/such/place/tsk_123")
    after = _scraped()

    def grew(route: str, status: str) -> float:
        key = {"method": "GET", "route": route, "status": status}.items()
        name = "facet_http_request_seconds_count", frozenset(key)
        return after[name] - before.get(name, 0)

    assert grew("/healthz", "200") == 1
    assert grew("none", "404") == 1
    assert "tsk_123" not in str(after)
