"""Health, static files, security headers, the queue's settings, the demo file: the engine's own edges."""

import asyncio
import os
import stat
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.staticfiles import finders
from django.http import HttpResponse
from django.test import AsyncClient, Client, RequestFactory, override_settings
from pytest_django.fixtures import Settings

from portal import demo_file, health, heartbeat
from portal import settings as facet_settings
from portal.celery import Every, app, schedule
from portal.chores import RHYTHM
from portal.middleware import StaticFiles
from portal.program import Backoff
from portal.secret_key import kept_key


@pytest.fixture
def everybody_lives() -> None:
    for name in (*heartbeat.WORKERS, heartbeat.CLOCK, heartbeat.CONTROL_CYCLE):
        heartbeat.beat(name)


@pytest.fixture(autouse=True)
def fresh_client() -> Any:
    yield
    heartbeat.redis_client().flushdb()
    heartbeat.redis_client().close()
    heartbeat.redis_client.cache_clear()


def test_healthz_needs_no_service(client: Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.post("/healthz").status_code == 405


@pytest.mark.django_db
@pytest.mark.services
def test_readyz_is_200_when_every_part_is_ok(client: Client, everybody_lives: None) -> None:
    answer = client.get("/readyz")

    assert answer.status_code == 200
    assert answer.json()["ready"] is True
    assert set(answer.json()["parts"]) == set(health.PARTS)
    assert answer["Cache-Control"] == "max-age=0, no-cache, no-store, must-revalidate, private"


@pytest.mark.django_db
@pytest.mark.services
@pytest.mark.parametrize(
    ("silent", "part", "limit_s"),
    [
        (heartbeat.CONTROL, "control_worker", 15),
        (heartbeat.DEFAULT, "default_worker", 15),
        (heartbeat.CLOCK, "clock", 30),
    ],
)
def test_a_silent_part_is_503_and_named(
    client: Client, everybody_lives: None, silent: str, part: str, limit_s: int
) -> None:
    heartbeat.redis_client().set(heartbeat.key_of(silent), str(time.time() - limit_s - 60))

    answer = client.get("/readyz")

    failed = {name: content for name, content in answer.json()["parts"].items() if not content["ok"]}
    assert answer.status_code == 503
    assert set(failed) == {part}
    assert failed[part]["why"] == f"silent for over {limit_s} s"
    assert failed[part]["age_s"] == pytest.approx(limit_s + 60, abs=5)


@pytest.mark.django_db
@pytest.mark.services
def test_a_gone_redis_is_503_with_its_reason_and_the_database_is_still_ok(
    client: Client, settings: Settings
) -> None:
    settings.REDIS_URL = "unix:///no/such/socket"
    heartbeat.redis_client.cache_clear()

    answer = client.get("/readyz")
    heartbeat.redis_client().close()
    settings.REDIS_URL = facet_settings.REDIS_URL
    heartbeat.redis_client.cache_clear()

    parts = answer.json()["parts"]
    assert answer.status_code == 503
    assert parts["database"]["ok"] is True
    assert parts["redis"]["ok"] is False
    assert "No such file or directory" in parts["redis"]["why"]


@pytest.mark.django_db
@pytest.mark.services
def test_readyz_waits_for_the_demo_file(
    client: Client, everybody_lives: None, settings: Settings, tmp_path: Path
) -> None:
    settings.DATA_DIR = tmp_path
    demo_file.offer(tmp_path, url="http://h", users=[{"username": "ada", "password": "p", "token": "t"}])
    waiting = client.get("/readyz")

    published = demo_file.publish(tmp_path)

    assert waiting.json()["parts"]["demo"] == {"ok": False, "why": "demo.json is not published yet"}
    assert client.get("/readyz").status_code == 200
    assert published is not None
    assert published["users"] == [{"username": "ada", "password": "p", "token": "t"}]
    assert stat.S_IMODE((tmp_path / "demo.json").stat().st_mode) == 0o600


def test_a_demo_file_is_taken_aside_at_the_next_start_and_stays_readable(tmp_path: Path) -> None:
    demo_file.offer(tmp_path, url="http://h", users=[])
    demo_file.publish(tmp_path)

    demo_file.withdraw(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["demo.json.new"]
    assert demo_file.earlier(tmp_path) == demo_file.Demo(url="http://h", users=[])


def test_without_a_demo_there_is_nothing_to_publish(tmp_path: Path) -> None:
    assert demo_file.publish(tmp_path) is None


def test_static_files_are_served_whole_to_both_kinds_of_server(client: Client) -> None:
    found = finders.find("admin/css/base.css")
    assert isinstance(found, str)
    wanted = Path(found).read_bytes()

    plain = client.get("/static/admin/css/base.css")
    asynchronous = asyncio.run(AsyncClient().get("/static/admin/css/base.css"))

    assert plain.content == asynchronous.content == wanted
    assert plain["Content-Type"] == asynchronous["Content-Type"] == 'text/css; charset="utf-8"'
    assert client.get("/static/no-such-file.css").status_code == 404
    assert client.head("/static/admin/css/base.css").content == b""


def test_an_unchanged_static_file_is_not_sent_again(client: Client) -> None:
    first = client.get("/static/admin/css/base.css")

    again = client.get("/static/admin/css/base.css", headers={"if-modified-since": first["Last-Modified"]})

    assert (again.status_code, again.content) == (304, b"")


def test_a_static_file_that_grew_is_sent_whole_and_not_under_the_old_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.css"
    path.write_bytes(b"a{}")
    request = RequestFactory().get("/static/a.css")
    with override_settings(WHITENOISE_AUTOREFRESH=False):
        noted = StaticFiles(lambda _request: HttpResponse(status=404))
    noted.add_file_to_dictionary("/static/a.css", str(path))
    first = noted(request)

    path.write_bytes(b"a{color:red}")
    grown = noted(request)

    assert (first.content, first["Content-Length"], "ETag" in first) == (b"a{}", "3", True)
    assert (grown.content, grown["Content-Length"]) == (b"a{color:red}", "12")
    assert "ETag" not in grown
    assert "Last-Modified" not in grown


def test_outside_production_a_changed_file_is_seen_without_a_restart() -> None:
    assert django_settings.WHITENOISE_AUTOREFRESH is True


@pytest.mark.django_db
def test_every_answer_carries_a_strict_policy_and_only_the_admin_a_looser_one(client: Client) -> None:
    page, admin = client.get("/healthz"), client.get("/admin/login/")

    assert "'unsafe-" not in page["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in page["Content-Security-Policy"]
    assert "script-src 'self' 'unsafe-inline' 'unsafe-eval'" in admin["Content-Security-Policy"]
    assert (page["X-Frame-Options"], page["X-Content-Type-Options"]) == ("DENY", "nosniff")


def test_a_chore_late_by_its_own_period_is_dropped() -> None:
    assert schedule({"portal.cycle": Every(3), "portal.prune": Every(1, "default", patience_s=30)}) == {
        "portal.cycle": {
            "task": "portal.cycle",
            "schedule": 3,
            "options": {"queue": "control", "expires": 3},
        },
        "portal.prune": {
            "task": "portal.prune",
            "schedule": 1,
            "options": {"queue": "default", "expires": 30},
        },
    }


def test_a_full_queue_of_sites_keeps_no_delivery_waiting() -> None:
    kombu: Any = import_module("kombu")  # its types are partial
    slow, told = kombu.Queue("a-sites", auto_delete=True), kombu.Queue("b-delivery", auto_delete=True)
    got: list[str] = []
    with app.connection_for_write() as link, link.channel() as channel:
        producer = kombu.Producer(channel)
        for _ in range(30):
            producer.publish("site", routing_key=slow.name, declare=[slow(channel)])
        producer.publish("event", routing_key=told.name, declare=[told(channel)])

        def take(body: str, message: Any) -> None:
            got.append(body)
            message.ack()

        consumer = kombu.Consumer(channel, [slow, told], callbacks=[take], prefetch_count=1)
        with consumer:
            while "event" not in got:
                link.drain_events(timeout=5)

    assert RHYTHM["portal.deliver"].queue == "delivery"
    assert len(got) <= 4


def test_a_chore_cannot_outlive_the_time_after_which_the_queue_gives_it_to_another() -> None:
    visible_again_s = app.conf.broker_transport_options["visibility_timeout"]

    assert app.conf.task_soft_time_limit < app.conf.task_time_limit < visible_again_s
    assert (app.conf.task_acks_late, app.conf.worker_prefetch_multiplier) == (True, 1)


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("redis://h:6379/2", "redis://h:6379/2"),
        ("unix:///a/valkey.sock?db=0", "redis+socket:///a/valkey.sock?virtual_host=0"),
        ("unix:///a%20b/valkey.sock?db=3", "redis+socket:///a b/valkey.sock?virtual_host=3"),
    ],
)
def test_the_broker_spells_sockets_its_own_way(url: str, broker: str) -> None:
    assert facet_settings._broker(url) == broker


def test_a_database_url_keeps_its_further_parameters() -> None:
    entry = facet_settings._database("postgresql://u:p%40w@h:6543/d?sslmode=verify-full")

    assert (entry["NAME"], entry["USER"], entry["PASSWORD"]) == ("d", "u", "p@w")
    assert (entry["HOST"], entry["PORT"]) == ("h", "6543")
    assert entry["OPTIONS"] == {
        "connect_timeout": 5,
        "tcp_user_timeout": 15_000,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 2,
        "sslmode": "verify-full",
    }
    assert entry["ATOMIC_REQUESTS"] is False


def test_the_kept_key_is_made_once_and_closed_to_others(tmp_path: Path) -> None:
    first = kept_key(tmp_path / "state")

    assert kept_key(tmp_path / "state") == first
    assert len(first) >= 60
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["secret_key"]
    assert stat.S_IMODE((tmp_path / "state" / "secret_key").stat().st_mode) == 0o600


def test_a_program_that_keeps_dying_is_started_ever_more_slowly() -> None:
    backoff = Backoff()

    pauses = []
    for now in (0.0, 2.0, 5.0, 10.0, 20.0, 40.0, 75.0):
        backoff.note_start(now)
        pauses.append(backoff.note_end(now + 0.5))

    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    backoff.note_start(200.0)
    assert backoff.note_end(300.0) == 1


def test_the_suite_runs_against_its_own_data_directory() -> None:
    assert django_settings.TESTING is True
    assert os.environ["FACET_TESTING"] == "1"
