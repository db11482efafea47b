"""Webhooks reach their receiver at least once, signed, in spite of faults, and never anybody else."""

import base64
import hashlib
import hmac
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django import Settings

from federation.models import EventPosition, System
from orchestrator.models import Delivery, Subscription, Task
from orchestrator.retries import DELAYS_S, TRIES
from orchestrator.services.deliveries import LEASE
from portal.webhooks import post
from portal.webhooks.address import Allowed, place_of
from portal.webhooks.deliver import deliver
from tests.api.conftest import Api
from tests.api.test_stream import _database_url
from tests.delivery.conftest import Got, Receiver, happen, subscribe

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.services]


def verified(secret: str, got: Got) -> list[bool]:
    """Check each signature of a request as the specification says it is checked; nothing of ours is used."""
    key = base64.b64decode(secret[len("whsec_") :])
    signed = b".".join(
        [got.headers["webhook-id"].encode(), got.headers["webhook-timestamp"].encode(), got.body]
    )
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return [each == f"v1,{expected}" for each in got.headers["webhook-signature"].split(" ")]


def test_an_event_arrives_signed_small_and_once(api: Api, alice: User, receiver: Receiver) -> None:
    made = subscribe(api, target="webhook", url=receiver.url, types=["task.*"])
    [event] = happen(alice, task="task_1", state="succeeded", data={"exit": 0, "said": "secret of the site"})

    assert deliver() == 1
    assert deliver() == 0

    [got] = receiver.got
    assert got.headers["webhook-id"] == event
    assert abs(int(got.headers["webhook-timestamp"]) - time.time()) < 30
    assert got.headers["content-type"] == "application/json"
    assert verified(made["secret"], got) == [True]
    assert len(got.body) < 8192
    body = json.loads(got.body)
    assert body["type"] == "task.succeeded"
    assert (body["data"]["task"], body["data"]["state"], body["data"]["facts"]) == (
        "task_1",
        "succeeded",
        {"exit": 0},
    )
    assert b"secret of the site" not in got.body
    [delivery] = api.get(f"deliveries?subscription={made['id']}").json()["results"]
    assert (delivery["state"], delivery["event"], delivery["attempts"]) == ("delivered", event, 1)
    assert delivery["tries"][0]["status"] == 204


def test_the_secret_is_shown_once_and_kept_sealed(api: Api, alice: User, receiver: Receiver) -> None:
    made = subscribe(api, target="webhook", url=receiver.url)

    row = Subscription.objects.get(handle=made["id"])
    assert made["secret"].startswith("whsec_")
    assert made["secret"] not in row.sealed_secret
    for path in ("subscriptions", f"subscriptions/{made['id']}"):
        assert made["secret"] not in api.get(path).content.decode()


def test_only_the_owners_events_of_the_types_asked_for_are_told(
    api: Api, alice: User, bob: User, receiver: Receiver
) -> None:
    subscribe(api, target="webhook", url=receiver.url, types=["task.succeeded", "group.*"])
    happen(bob)
    happen(alice, type_="task.started")
    wanted = happen(alice) + happen(alice, type_="group.submitted")

    deliver()

    assert [got.headers["webhook-id"] for got in receiver.got] == wanted


def test_without_types_only_what_wakes_is_told(api: Api, alice: User, receiver: Receiver) -> None:
    subscribe(api, target="webhook", url=receiver.url)
    happen(alice, type_="task.submitted")
    wanted = happen(alice, type_="task.failed")

    deliver()

    assert [got.headers["webhook-id"] for got in receiver.got] == wanted


def test_a_failed_try_is_repeated_later_with_the_same_id_and_body(
    api: Api, alice: User, receiver: Receiver
) -> None:
    made = subscribe(api, target="webhook", url=receiver.url)
    [event] = happen(alice)
    receiver.answers(500)
    start = timezone.now()

    assert deliver(now=start) == 1
    assert deliver(now=start + timedelta(seconds=1)) == 0
    row = Delivery.objects.get()
    assert row.next_at is not None
    pause_s = (row.next_at - start).total_seconds()
    assert DELAYS_S[0] * 0.8 <= pause_s <= DELAYS_S[0] * 1.2
    receiver.answers(200)
    assert deliver(now=start + timedelta(seconds=7)) == 1

    first, second = receiver.got
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == event
    assert first.body == second.body
    assert verified(made["secret"], second) == [True]
    row.refresh_from_db()
    assert [each["status"] for each in row.tries] == [500, 200]
    assert (row.state, row.attempts) == ("delivered", 2)


def test_the_tries_spread_over_days_and_then_the_delivery_is_dead(
    api: Api, alice: User, receiver: Receiver
) -> None:
    made = subscribe(api, target="webhook", url=receiver.url)
    happen(alice)
    receiver.answers(503)
    start = instant = timezone.now()

    tried = deliver(now=instant)
    while (row := Delivery.objects.get()).next_at is not None:
        instant = max(row.next_at, instant + timedelta(minutes=6))
        tried += deliver(now=instant)
    assert row.state == "dead"

    assert tried == TRIES == len(receiver.got)
    assert timedelta(days=2) < instant - start < timedelta(days=5)
    shown = api.get(f"subscriptions/{made['id']}").json()
    assert (shown["state"], shown["reason"]) == ("disabled", "no try succeeded for days: answered 503")
    receiver.answers(200)
    assert api.patch(f"subscriptions/{made['id']}", {"state": "active"}).json()["state"] == "active"
    replayed = api.post(f"subscriptions/{made['id']}/replay", {"dead": True}).json()
    assert replayed["requeued"] == 1
    assert deliver() == 1
    assert Delivery.objects.get().state == "delivered"


def test_retry_after_is_heeded(api: Api, alice: User, receiver: Receiver) -> None:
    subscribe(api, target="webhook", url=receiver.url)
    happen(alice)
    receiver.answers(429, Retry_After="900")
    start = timezone.now()

    deliver(now=start)

    assert Delivery.objects.get().next_at == start + timedelta(seconds=900)


def test_gone_disables(api: Api, alice: User, receiver: Receiver) -> None:
    made = subscribe(api, target="webhook", url=receiver.url)
    happen(alice, count=3)
    receiver.answers(410)

    assert deliver() == 1

    shown = api.get(f"subscriptions/{made['id']}").json()
    assert shown["state"] == "disabled"
    assert "410" in shown["reason"]
    assert deliver(now=timezone.now() + timedelta(days=1)) == 0
    assert len(receiver.got) == 1


def test_redirects_are_refused(api: Api, alice: User, receiver: Receiver) -> None:
    subscribe(api, target="webhook", url=receiver.url)
    happen(alice)
    receiver.answers(307, Location=f"http://127.0.0.1:{receiver.port}/elsewhere")

    deliver()

    assert [got.path for got in receiver.got] == ["/hook"]
    assert Delivery.objects.get().tries[0]["error"] == "answered 307: redirects are not followed"


def test_a_receiver_that_says_nothing_or_drips_is_cut_off(
    api: Api, alice: User, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post.Sender.__init__, "__kwdefaults__", {"deadline_s": 0.6})
    subscribe(api, target="webhook", url=receiver.url)
    happen(alice)

    def drip(_receiver: Receiver, request: BaseHTTPRequestHandler) -> None:
        try:
            for letter in b"HTTP/1.1 200 OK\r\n" + b"x" * 40:
                request.wfile.write(bytes([letter]))
                request.wfile.flush()
                time.sleep(0.1)
        except OSError:
            return

    receiver.answer = drip
    began = time.monotonic()
    deliver()

    assert time.monotonic() - began < 3
    [tried] = Delivery.objects.get().tries
    assert tried["status"] is None
    assert tried["error"].startswith("no answer within")


@pytest.mark.parametrize(
    ("scheme", "does", "said"),
    [
        ("http", None, "it refused the connection: nothing listens there"),
        ("http", b"", "it hung up without an answer"),
        ("http", b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "what it answered is not HTTP"),
        ("https", b"HTTP/1.1 400 Bad Request\r\n\r\n", "TLS failed: "),
    ],
)
def test_a_fault_is_told_in_words(scheme: str, does: bytes | None, said: str) -> None:
    def answer(server: socket.socket, sent: bytes) -> None:
        link, _ = server.accept()
        with link, suppress(OSError):  # a sender may break off first
            link.recv(4096)
            link.sendall(sent)
            link.shutdown(socket.SHUT_WR)
            while link.recv(4096):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        place = place_of(f"{scheme}://127.0.0.1:{server.getsockname()[1]}/hook")
        sender = post.Sender(place, Allowed(["127.0.0.1"]), deadline_s=5)
        if does is None:
            server.close()
            heard = sender.send(b"{}", {})
        else:
            listener = threading.Thread(target=answer, args=(server, does))
            listener.start()
            heard = sender.send(b"{}", {})
            listener.join(5)

    assert heard.status is None
    assert heard.error.startswith(said)


def test_a_name_that_is_not_found_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    heard = post.Sender(place_of("https://gone.example.org/hook"), Allowed()).send(b"{}", {})

    assert heard.error == "its name was not found"


def test_a_private_address_is_refused_when_subscribing_and_when_sending(
    api: Api, alice: User, receiver: Receiver, settings: Settings
) -> None:
    made = subscribe(api, target="webhook", url=receiver.url)
    settings.WEBHOOK_ALLOW = ()
    for url in (
        receiver.url,
        "https://127.0.0.1/x",
        "https://10.1.2.3/x",
        "https://[::1]/x",
        "https://[::ffff:169.254.169.254]/x",
        "https://169.254.169.254/latest/meta-data",
        "https://localhost/x",
        "https://127.1/x",
        "https://0x7f.1/x",
        "https://017700000001/x",
        "https://2130706433/x",
        "https://0/x",
        "http://example.org/x",
    ):
        answer = api.post("subscriptions", {"target": "webhook", "url": url})
        assert (answer.status_code, answer.json()["code"]) == (422, "forbidden_address"), url
    happen(alice)

    deliver()

    assert receiver.got == []
    assert "not on the list" in Delivery.objects.get().tries[0]["error"]
    assert api.get(f"subscriptions/{made['id']}").json()["failures"] == 1


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "a..example"])
def test_a_host_that_no_name_server_knows_is_refused_when_subscribing(api: Api, host: str) -> None:
    answer = api.post("subscriptions", {"target": "webhook", "url": f"https://{host}/hook"})

    assert answer.status_code == 422
    assert answer.json()["errors"][0] == {
        "pointer": "/url",
        "code": "bad_url",
        "message": "Each part of the URL's host must have 1 to 63 characters.",
    }


def test_a_name_that_leads_to_a_private_address_is_refused(
    api: Api, alice: User, receiver: Receiver, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resolver is the world's, so its answer is put in its place; the second answer would be public."""
    answers = iter(["127.0.0.1", "93.184.216.34"])
    monkeypatch.setattr(
        "portal.webhooks.address.socket.getaddrinfo",
        lambda host, port, **_: [(2, 1, 6, "", (next(answers), port))],
    )
    settings.WEBHOOK_ALLOW = ()
    subscribe(api, target="webhook", url=f"https://rebind.example:{receiver.port}/hook")
    happen(alice)

    deliver()

    assert receiver.got == []
    assert Delivery.objects.get().tries[0]["error"] == (
        "rebind.example is 127.0.0.1, which is not a public address."
    )


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/",
        "https://user:word@example.org/",
        "https://",
        "https://e.org/#x",
        "https://e.org:0/",
        "x",
    ],
)
def test_a_strange_url_is_refused(api: Api, url: str) -> None:
    answer = api.post("subscriptions", {"target": "webhook", "url": url})

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/url"


def test_a_rotated_secret_overlaps_with_the_one_before(api: Api, alice: User, receiver: Receiver) -> None:
    made = subscribe(api, target="webhook", url=receiver.url)

    rotated = api.post(f"subscriptions/{made['id']}/rotate", {"overlap_s": 3600}).json()
    happen(alice)
    deliver()
    Subscription.objects.update(previous_until=timezone.now() - timedelta(seconds=1))
    happen(alice)
    deliver()

    during, after = receiver.got
    assert rotated["secrets"] == 2
    assert verified(rotated["secret"], during) == [True, False]
    assert verified(made["secret"], during) == [False, True]
    assert verified(rotated["secret"], after) == [True]


def test_a_sample_can_be_sent(api: Api, receiver: Receiver) -> None:
    made = subscribe(api, target="webhook", url=receiver.url)

    answer = api.post(f"subscriptions/{made['id']}/test").json()

    assert (answer["delivered"], answer["status"]) == (True, 204)
    assert verified(made["secret"], receiver.got[0]) == [True]
    assert json.loads(receiver.got[0].body)["type"] == "webhook.test"


_SENDER = """
import django, sys
django.setup()
from django.conf import settings
settings.WEBHOOK_ALLOW = (sys.argv[1],)
from portal.webhooks.deliver import deliver
deliver()
"""


def test_a_sender_killed_between_sending_and_recording_costs_a_repetition_never_a_loss(
    api: Api, alice: User, receiver: Receiver
) -> None:
    subscribe(api, target="webhook", url=receiver.url)
    events = happen(alice, count=3)
    killed = threading.Event()

    def hold(_receiver: Receiver, _request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str]] | None:
        return (200, {}) if killed.wait(20) else None

    receiver.answer = hold
    sender = subprocess.Popen(
        [sys.executable, "-c", _SENDER, f"127.0.0.1:{receiver.port}"],
        env={**os.environ, "DATABASE_URL": _database_url()},
    )
    try:
        receiver.wait(1, within_s=30)
    finally:
        sender.send_signal(signal.SIGKILL)
        sender.wait(10)
    killed.set()
    assert Delivery.objects.filter(state="pending").count() == 3
    assert deliver() == 0, "they are leased to the sender that died"

    assert deliver(now=timezone.now() + LEASE + timedelta(seconds=1)) == 3

    assert [got.headers["webhook-id"] for got in receiver.got] == [events[0], *events]
    assert Delivery.objects.filter(state="delivered").count() == 3


def test_two_thousand_events_arrive_without_a_gap_in_spite_of_faults(
    api: Api, alice: User, receiver: Receiver
) -> None:
    subscribe(api, target="webhook", url=receiver.url, types=["task.*"])
    events: list[str] = []
    seen = {"count": 0}

    def falter(_receiver: Receiver, _request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str]] | None:
        seen["count"] += 1
        if seen["count"] % 400 == 0:
            return 500, {}
        return None if seen["count"] % 300 == 0 else (204, {})

    receiver.answer = falter
    instant = timezone.now()
    for _ in range(10):
        events += happen(alice, count=200)
        deliver(now=instant)
    while Delivery.objects.filter(state="pending").exists():
        instant += timedelta(minutes=6)
        deliver(now=instant)

    arrived = [got.headers["webhook-id"] for got in receiver.got]
    assert len(events) == 2000
    assert set(arrived) == set(events)
    assert len(arrived) < 2020, "only what failed was sent again"
    assert Subscription.objects.get().cursor_seq == EventPosition.objects.order_by("-seq")[0].seq


def test_what_was_never_written_is_replayed_too(api: Api, alice: User, receiver: Receiver) -> None:
    before = happen(alice, count=2)
    made = subscribe(api, target="webhook", url=receiver.url)
    later = happen(alice)
    deliver()
    assert [got.headers["webhook-id"] for got in receiver.got] == later

    answer = api.post(f"subscriptions/{made['id']}/replay", {"after": 0}).json()
    deliver()

    assert answer["requeued"] == 1
    assert [got.headers["webhook-id"] for got in receiver.got] == [*later, *before, *later]


def test_a_paused_subscription_waits_and_then_goes_on(api: Api, alice: User, receiver: Receiver) -> None:
    made = subscribe(api, target="webhook", url=receiver.url)
    api.patch(f"subscriptions/{made['id']}", {"state": "paused"})
    events = happen(alice, count=2)
    assert deliver() == 0
    assert api.get(f"subscriptions/{made['id']}").json()["lag"]["events"] == 2

    api.patch(f"subscriptions/{made['id']}", {"state": "active"})
    deliver()

    assert [got.headers["webhook-id"] for got in receiver.got] == events
    assert api.get(f"subscriptions/{made['id']}").json()["lag"] == {"events": 0, "oldest_s": None}


def test_one_receiver_that_is_down_does_not_keep_others_waiting(
    api: Api, alice: User, receiver: Receiver
) -> None:
    down = subscribe(api, target="webhook", url=receiver.url + "/down")
    subscribe(api, target="webhook", url=receiver.url + "/up")
    happen(alice, count=60)
    receiver.answer = lambda _r, request: (500 if request.path.endswith("down") else 204, {})

    deliver()

    ups = [got for got in receiver.got if got.path.endswith("up")]
    assert len(ups) == 60
    assert len(receiver.got) == 61
    assert api.get(f"subscriptions/{down['id']}").json()["lag"]["events"] == 60


def test_a_task_wakes_whom_it_names_by_the_types_it_says(
    api: Api, alice: User, receiver: Receiver, delta: System
) -> None:
    named = subscribe(
        api, target="webhook", url=receiver.url + "/named", only_named=True, types=["group.failed"]
    )
    subscribe(api, target="webhook", url=receiver.url + "/other", types=["task.accepted"])
    continuation: dict[str, Any] = {"on": ["task.accepted"], "subscriptions": [named["id"]]}
    work = {"command": ["true"], "envelope": {"gpus": 1, "memory_mib": "4G"}}

    task = api.post("tasks?wait_s=0", {**work, "continuation": continuation}).json()["id"]
    other = api.post("tasks?wait_s=0", work).json()["id"]
    deliver()

    told = sorted((got.path, json.loads(got.body)["data"]["task"]) for got in receiver.got)
    assert told == sorted([("/hook/named", task), ("/hook/other", task), ("/hook/other", other)])


def test_a_task_that_says_only_types_narrows_what_is_told_of_it(
    api: Api, alice: User, receiver: Receiver, delta: System
) -> None:
    subscribe(api, target="webhook", url=receiver.url, types=["task.accepted", "task.placed"])
    work = {"command": ["true"], "envelope": {"gpus": 1, "memory_mib": "4G"}}

    api.post("tasks?wait_s=0", {**work, "continuation": {"on": ["task.placed"]}})
    deliver()

    assert [json.loads(got.body)["type"] for got in receiver.got] == ["task.placed"]


def test_a_continuation_that_names_nothing_known_is_refused(api: Api, delta: System) -> None:
    made = subscribe(api, target="cursor")
    work = {"command": ["true"], "envelope": {"gpus": 1}}

    for continuation, pointer in (
        ({"on": ["task.finished"]}, "/continuation/on"),
        ({"subscriptions": [made["id"][:-1]]}, "/continuation/subscriptions/0"),
    ):
        answer = api.post("tasks?wait_s=0", {**work, "continuation": continuation})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == pointer
    assert not Task.objects.exists()
