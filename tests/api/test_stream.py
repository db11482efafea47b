"""The event stream and the long poll on a real server: resumed, filtered, one's own, and quickly gone."""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from federation.ledger import Happening, record
from orchestrator.selectors import head_cursor
from portal import env as environment
from portal.api import stream
from portal.lent import Lent
from portal.listening import LISTENER, Listener
from portal.waiting import Found, Interest, Wait
from tests.api.conftest import Api

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.services]


def _database_url() -> str:
    given = connection.settings_dict
    host, port = given["HOST"], given["PORT"]
    where = f"host={host}" + (f"&port={port}" if port else "")
    return f"postgresql:///{given['NAME']}?{where}&user={given['USER']}&password={given['PASSWORD']}"


class Server:
    """uvicorn as `run.py` starts it, over the test's own database."""

    def __init__(self, port: int, process: "subprocess.Popen[bytes]") -> None:
        self.port, self.process = port, process
        self.open_links: list[Any] = []

    def open(self, path: str, token: str, **headers: str) -> http.client.HTTPResponse:
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        link.request("GET", f"/api/v1/{path}", headers={"Authorization": f"Bearer {token}", **told})
        answer = link.getresponse()
        self.open_links += [answer, link]
        return answer

    def hang_up(self) -> None:
        """Close every stream that was opened."""
        for each in self.open_links:
            each.close()

    def post(self, path: str, token: str, body: object) -> Any:
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        told = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        link.request("POST", f"/api/v1/{path}", json.dumps(body), headers=told)
        answer = link.getresponse()
        found = json.loads(answer.read())
        link.close()
        return answer.status, found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@contextlib.contextmanager
def serving(*, pool: int = 4) -> Iterator[Server]:
    """Run the web process, and fail where it printed a traceback."""
    port = _free_port()
    variables = environment.outside(
        DATABASE_URL=_database_url(),
        REDIS_URL=settings.REDIS_URL,
        PORT=str(port),
        FACET_DATABASE_POOL=str(pool),
    )
    argv = [sys.executable, "-m", "uvicorn", "portal.asgi:application", "--host", "127.0.0.1"]
    argv += ["--port", str(port), "--timeout-graceful-shutdown", "3", "--no-access-log"]
    process = subprocess.Popen(
        argv, env=variables, cwd=settings.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        _wait_until_up(port, process)
        found = Server(port, process)
        yield found
        found.hang_up()
    finally:
        if process.poll() is None:
            process.kill()
        said = process.communicate()[0].decode()
        assert "Traceback" not in said, said


def _wait_until_up(port: int, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + 180  # a busy machine takes its time to load all of it
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError):
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            link.request("GET", "/healthz")
            if link.getresponse().status == 200:
                link.close()
                return
        time.sleep(0.2)
    pytest.fail(f"the server did not come up: {process.returncode}")


def _happen(
    user: User | None, count: int = 1, *, type_: str = "milestone.reached", system: str = ""
) -> list[str]:
    with transaction.atomic():
        rows = record(
            [
                Happening(
                    type=type_,
                    subject="task_x",
                    summary=f"step {number}",
                    user_id=user.pk if user else None,
                    task="task_x" if user else "",
                    system=system,
                )
                for number in range(count)
            ],
            now=timezone.now(),
        )
    return [row.handle for row in rows]


def _messages(response: http.client.HTTPResponse, count: int) -> list[dict[str, str]]:
    """Read messages off a stream, comments aside."""
    found: list[dict[str, str]] = []
    now: dict[str, str] = {}
    while len(found) < count:
        line = response.readline().decode().rstrip("\n")
        if not line:
            if "data" in now:
                found.append(now)
            now = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            now[name] = value
    return found


def test_the_stream_resumes_where_a_reader_stopped_and_shows_only_what_is_ones_own(
    server: Server, api: Api, alice: User, bob: User, caller: Callable[..., Api]
) -> None:
    handles = _happen(alice, 3)
    _happen(bob, 2)
    _happen(None, system="elsewhere")
    told = server.open("events/stream?after=0", api.token)

    assert told.status == 200
    assert told.headers["Content-Type"] == "text/event-stream"
    assert told.headers["X-Accel-Buffering"] == "no"
    assert told.headers["Cache-Control"] == "no-cache, no-transform"
    first = _messages(told, 3)
    assert [json.loads(message["data"])["id"] for message in first] == handles
    assert [message["id"] for message in first] == ["1", "2", "3"]
    assert {message["event"] for message in first} == {"milestone.reached"}

    later = _happen(alice, 2)
    assert [json.loads(m["data"])["id"] for m in _messages(told, 2)] == later
    server.hang_up()
    missed = _happen(alice, 2)
    again = server.open("events/stream?after=1", api.token, Last_Event_ID="8")
    assert [json.loads(m["data"])["id"] for m in _messages(again, 2)] == missed


def test_an_event_reaches_a_waiting_reader_soon_after_its_commit(
    server: Server, api: Api, alice: User
) -> None:
    told = server.open("events/stream", api.token)
    told.readline()
    waits = []
    for _ in range(20):
        [handle] = _happen(alice)
        at = time.monotonic()
        [message] = _messages(told, 1)
        waits.append(time.monotonic() - at)
        assert json.loads(message["data"])["id"] == handle

    assert sorted(waits)[10] < 0.5


@pytest.mark.parametrize("asked", ["type=budget.*,task.failed", "types=budget.*,task.failed"])
def test_the_stream_is_filtered_by_type(server: Server, api: Api, alice: User, asked: str) -> None:
    told = server.open(f"events/stream?after=0&{asked}", api.token)
    _happen(alice, 2)
    [wanted] = _happen(alice, type_="budget.threshold")

    assert json.loads(_messages(told, 1)[0]["data"])["id"] == wanted


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("events/stream?types=task.succeded", 422),
        ("events/stream?type=task.succeded", 422),
        ("events/stream?after=x", 422),
        ("events/stream?subject=task_nope", 404),
        ("events/stream?cursor=1", 422),
    ],
)
def test_a_stream_that_cannot_begin_is_a_problem(api: Api, path: str, status: int) -> None:
    assert api.get(path).status_code == status


def test_the_stream_needs_a_token_and_a_get(api: Api, client: Any) -> None:
    assert client.get("/api/v1/events/stream").status_code == 401
    refused = api.post("events/stream")
    assert (refused.status_code, refused["Allow"]) == (405, "GET")


def _reader(user: User, secret: str) -> stream.Reader:
    return stream.Reader(Interest(user), secret, LISTENER.head)


async def _listen(reader: stream.Reader, parts: int) -> list[bytes]:
    told = stream._told(reader)
    try:
        return [await asyncio.wait_for(anext(told), 10) for _ in range(parts)]
    finally:
        await told.aclose()


def test_a_silent_stream_shows_a_sign_of_life(api: Api, alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stream.HEARTBEAT_S <= 15
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.2)
    LISTENER.start()

    parts = asyncio.run(_listen(_reader(alice, api.token), 3))

    assert parts[0].startswith(b"retry: 2000\n")
    assert parts[1:] == [b": still here\n\n", b": still here\n\n"]


def test_a_revoked_token_ends_its_stream(api: Api, alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(stream, "TRUSTED_FOR_S", 0.3)
    LISTENER.start()
    reader = _reader(alice, api.token)
    assert len(asyncio.run(_listen(reader, 8))) == 8

    mine = api.get("tokens").json()["results"][0]["id"]
    api.delete(f"tokens/{mine}")

    with pytest.raises(StopAsyncIteration):
        asyncio.run(_listen(reader, 8))


@pytest.mark.parametrize("ending", ["sign-out", "deactivation", "new password"])
def test_the_end_of_a_session_ends_its_stream(
    alice: User, client: Client, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(stream, "TRUSTED_FOR_S", 0.3)
    LISTENER.start()
    client.force_login(alice)
    reader = stream.Reader(Interest(alice), None, LISTENER.head, session=client.session.session_key)
    assert len(asyncio.run(_listen(reader, 8))) == 8

    if ending == "sign-out":
        client.logout()
    elif ending == "deactivation":
        User.objects.filter(pk=alice.pk).update(is_active=False)
    else:
        alice.set_password("another one")
        alice.save()

    with pytest.raises(StopAsyncIteration):
        asyncio.run(_listen(reader, 8))


def test_a_cursor_from_beyond_the_log_goes_on_at_its_end(api: Api, alice: User) -> None:
    _happen(alice, 2)

    heard = api.skill("wait_for_events", {"after": 10**12, "timeout_s": 0}).json()

    assert (heard["events"], heard["next"]) == ([], 2)


def test_the_listener_survives_its_connection(alice: User) -> None:
    listener = Listener()
    assert listener.start()
    _happen(alice)
    assert listener.wait(0, timeout_s=5)
    with connection.cursor() as cursor:
        cursor.execute(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )

    [handle] = _happen(alice)

    assert listener.wait(1, timeout_s=10)
    ring = listener.since(1)
    listener.stop(within_s=5)
    assert [heard.shown.id for heard in ring or ()] == [handle]


def test_a_cursor_from_before_the_oldest_event_is_410_with_the_oldest(api: Api, alice: User) -> None:
    _happen(alice, 4)
    with transaction.atomic(), connection.cursor() as cursor:
        for table in ("federation_eventposition", "federation_event"):
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        cursor.execute("DELETE FROM federation_eventposition WHERE seq <= 2")
        for table in ("federation_eventposition", "federation_event"):
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")

    for answer in (
        api.get("events/stream?after=1"),
        api.get("events?after=1"),
        api.skill("wait_for_events", {"after": 1, "timeout_s": 0}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (410, "gone")
        assert answer.json()["facts"] == {"oldest": 2}
        assert "after=2" in answer.json()["remediation"]
    assert [e["cursor"] for e in api.get("events?after=2").json()["results"]] == [3, 4]


def test_the_server_stops_at_once_though_streams_and_polls_are_open(server: Server, api: Api) -> None:
    streams = [server.open("events/stream", api.token) for _ in range(5)]
    for each in streams:
        assert each.readline() == b"retry: 2000\n"
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    link.request(
        "POST",
        "/api/v1/skills/wait_for_events",
        json.dumps({"timeout_s": 50}),
        headers={"Authorization": f"Bearer {api.token}", "Content-Type": "application/json"},
    )
    time.sleep(1)
    started = time.monotonic()
    os.kill(server.process.pid, signal.SIGTERM)

    assert json.loads(link.getresponse().read())["timed_out"] is True
    server.process.wait(10)

    assert time.monotonic() - started < 3
    link.close()


def test_streams_hold_no_database_connection_each(server: Server, api: Api, alice: User) -> None:
    streams = [server.open("events/stream", api.token) for _ in range(30)]
    for each in streams:
        each.readline()
    [handle] = _happen(alice)
    for each in streams:
        assert json.loads(_messages(each, 1)[0]["data"])["id"] == handle
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from pg_stat_activity where datname = current_database()")
        held = cursor.fetchone()[0]

    assert held <= 8


def test_the_long_poll_wakes_on_a_server(server: Server, api: Api, alice: User) -> None:
    answers: list[Any] = []
    waiter = threading.Thread(
        target=lambda: answers.append(
            (
                server.post("skills/wait_for_events", api.token, {"after": 0, "timeout_s": 30}),
                time.monotonic(),
            )
        )
    )
    waiter.start()
    time.sleep(1.5)
    [handle] = _happen(alice)
    at = time.monotonic()
    waiter.join(10)

    [((status, heard), heard_at)] = answers
    assert status == 200
    assert [event["id"] for event in heard["events"]] == [handle]
    assert heard["next"] == 1
    assert heard_at - at < 1


def test_a_thousand_polls_wait_without_a_thread_or_a_query_each(alice: User) -> None:
    lent, asked = Lent(1, "few"), []
    LISTENER.start()
    head, until_s = head_cursor(), time.monotonic() + 10
    while LISTENER.head != head and time.monotonic() < until_s:
        time.sleep(0.1)  # the log of the test before was longer: it is noticed within two seconds

    def happen() -> list[str]:
        try:
            return _happen(alice)
        finally:
            connection.close()

    async def borrow(work: Callable[[], Found]) -> Found:
        asked.append(work)
        return await lent.borrow(work)

    async def waited(each: Wait) -> Found:
        return await each.in_loop(borrow, await each.at_once(borrow))

    async def all_of_them() -> tuple[list[str], list[Found]]:
        until = time.monotonic() + 60
        waits = [Wait(Interest(alice), head, head, 10, until) for _ in range(1000)]
        polls = [asyncio.ensure_future(waited(each)) for each in waits]
        await asyncio.sleep(0.2)
        assert threading.active_count() < 30
        handles = await asyncio.to_thread(happen)
        return handles, await asyncio.wait_for(asyncio.gather(*polls), 30)

    handles, found = asyncio.run(all_of_them())

    assert [[event.id for event in each.events] for each in found] == [handles] * 1000
    assert asked == []
