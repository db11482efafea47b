"""A submission survives a queue that is away, and the event log can be checked by hand."""

import threading
import time
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from federation.models import System
from orchestrator.doorbell import hang, ring
from orchestrator.models import Task
from portal import chores
from portal.bells import Ringer
from tests.api.conftest import Api

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_bell_that_breaks_never_fails_the_submission(
    api: Api, delta: System, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_row: int) -> None:
        raise ConnectionError("no queue")

    hang("dispatch", broken)

    answer = api.post("tasks?wait_s=0", {"command": "true"})

    assert answer.status_code == 202
    assert Task.objects.get().state == "placing"
    assert "could not be rung" in caplog.text


def test_a_ring_never_keeps_the_caller_waiting_and_a_failure_lets_go_of_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ringer, rung, go = Ringer(), [], threading.Event()

    def stuck() -> None:
        go.wait(5)
        raise ConnectionError("no queue")

    started = time.monotonic()
    ringer.soon(stuck)
    for number in range(3):
        ringer.soon(lambda number=number: rung.append(number))  # type: ignore[misc]  # bound now
    assert time.monotonic() - started < 0.5
    go.set()
    until = time.monotonic() + 5
    while "bells could not be rung" not in caplog.text and time.monotonic() < until:
        time.sleep(0.01)

    ringer.soon(lambda: rung.append(9))
    while not rung and time.monotonic() < until:
        time.sleep(0.01)
    assert rung == [9]
    assert "no queue" in caplog.text


def test_a_process_with_chores_hangs_its_bells(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[object, ...]] = []
    monkeypatch.setattr(chores.dispatch, "apply_async", lambda args, **options: sent.append((args, options)))
    hang("dispatch", chores._bell(chores.dispatch))

    ring("dispatch", 7)
    until = time.monotonic() + 5
    while not sent and time.monotonic() < until:
        time.sleep(0.01)

    assert sent == [((7,), {"queue": "default", "retry": False})]


def test_the_event_log_is_checked_by_a_command(api: Api, delta: System) -> None:
    api.post("tasks?wait_s=0", {"command": "true"})
    said = StringIO()
    call_command("verify_events", stdout=said)
    assert said.getvalue() == "4 events, unbroken.\n"

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE federation_event DISABLE TRIGGER USER")
        cursor.execute("UPDATE federation_event SET summary = 'forged' WHERE type = 'task.accepted'")
        cursor.execute("ALTER TABLE federation_event ENABLE TRIGGER USER")
    said = StringIO()
    with pytest.raises(CommandError, match="broken at 1 places"):
        call_command("verify_events", stdout=said)
    assert "the event was changed" in said.getvalue()
