"""One effect for each Idempotency-Key, whatever is repeated, contradicted, in flight or dead."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from federation.models import System
from orchestrator.models import Envelope, Group, Task
from orchestrator.services import groups, tasks
from portal import idempotency
from portal.models import ApiToken, IdempotencyRecord
from tests.api.conftest import Api

pytestmark = pytest.mark.django_db(transaction=True)

WORK: dict[str, Any] = {"command": ["true"], "envelope": {"gpus": 1}}


def _submit(api: Api, key: str, work: dict[str, Any] = WORK, path: str = "tasks?wait_s=0") -> Any:
    return api.post(path, work, idempotency_key=key)


def test_a_repetition_gets_the_first_answer(api: Api, delta: System) -> None:
    first = _submit(api, "k")
    again = _submit(api, "k")

    assert first.status_code == again.status_code == 202
    assert again.json() == first.json()
    assert again["Location"] == first["Location"] == f"/api/v1/tasks/{first.json()['id']}"
    assert again["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first
    assert Task.objects.count() == 1


def test_the_noun_and_the_skill_are_one_route_and_key_order_is_no_difference(api: Api, delta: System) -> None:
    first = _submit(api, "k")
    again = _submit(api, "k", dict(reversed(WORK.items())), "skills/submit_task?wait_s=0")

    assert again.json()["id"] == first.json()["id"]
    assert Task.objects.count() == 1


def test_another_body_under_the_same_key_is_422(api: Api, delta: System) -> None:
    _submit(api, "k")

    answer = _submit(api, "k", {**WORK, "name": "other"})

    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_conflict")
    assert Task.objects.count() == 1


def test_another_route_under_the_same_key_is_422(api: Api, delta: System) -> None:
    task = _submit(api, "k").json()["id"]

    assert _submit(api, "k", {}, f"tasks/{task}/cancel").status_code == 422


def test_keys_belong_to_their_user(api: Api, delta: System, bob: User, caller: Callable[..., Api]) -> None:
    mine = _submit(api, "k").json()["id"]

    theirs = _submit(caller(bob), "k")

    assert theirs.json()["id"] != mine
    assert "Idempotency-Replayed" not in theirs


def test_a_request_in_flight_is_409_with_a_time(api: Api, alice: User, delta: System) -> None:
    idempotency.begin(alice, "k", route="skills/submit_task", body=WORK, now=timezone.now())

    answer = _submit(api, "k")

    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_in_flight")
    assert answer["Retry-After"] == "2"
    assert answer.json()["retry_safe"] is True
    assert not Task.objects.exists()


def _dies_after_a_minute() -> None:
    old = timezone.now() - timedelta(seconds=61)
    IdempotencyRecord.objects.update(started_at=old)


def test_a_request_that_died_before_its_task_is_done_anew(api: Api, alice: User, delta: System) -> None:
    idempotency.begin(alice, "k", route="skills/submit_task", body=WORK, now=timezone.now())
    _dies_after_a_minute()

    answer = _submit(api, "k")

    assert answer.status_code == 202
    assert Task.objects.count() == 1
    assert _submit(api, "k")["Idempotency-Replayed"] == "true"


def test_a_request_that_died_after_its_task_is_answered_from_it(api: Api, alice: User, delta: System) -> None:
    begun = idempotency.begin(alice, "k", route="skills/submit_task", body=WORK, now=timezone.now())
    assert isinstance(begun, idempotency.Begun)
    made = tasks.submit_task(alice, WORK, actor="token:test", now=timezone.now(), created=begun.note).task
    assert _submit(api, "k").status_code == 409
    _dies_after_a_minute()

    answer = _submit(api, "k")

    assert (answer.status_code, answer.json()["id"]) == (202, made.handle)
    assert answer.json()["decision"]["result"] == "placed"
    assert Task.objects.count() == 1


def test_a_group_is_submitted_once_too_and_resumed_from_itself(api: Api, alice: User, delta: System) -> None:
    work = {"children": [{"command": "true"}, {"command": "true"}]}
    begun = idempotency.begin(alice, "g", route="skills/submit_group", body=work, now=timezone.now())
    assert isinstance(begun, idempotency.Begun)
    made = groups.submit_group(alice, work, actor="token:test", now=timezone.now(), created=begun.note).group
    _dies_after_a_minute()

    first = _submit(api, "g", work, "skills/submit_group")
    again = _submit(api, "g", work, "skills/submit_group")

    assert (first.status_code, first.json()["id"]) == (201, made.handle)
    assert again.json() == first.json()
    assert Group.objects.count() == 1


def test_a_request_presumed_dead_that_lives_makes_no_second_task(alice: User, delta: System) -> None:
    slow = idempotency.begin(alice, "k", route="skills/submit_task", body=WORK, now=timezone.now())
    assert isinstance(slow, idempotency.Begun)
    _dies_after_a_minute()
    quick = idempotency.begin(alice, "k", route="skills/submit_task", body=WORK, now=timezone.now())
    assert isinstance(quick, idempotency.Begun)
    tasks.submit_task(alice, WORK, actor="a", now=timezone.now(), created=quick.note)

    with pytest.raises(idempotency.InFlight):
        tasks.submit_task(alice, WORK, actor="a", now=timezone.now(), created=slow.note)

    assert Task.objects.count() == 1


def test_a_refused_request_lets_its_key_go(api: Api, delta: System) -> None:
    assert _submit(api, "k", {"command": "a", "script": "b"}).status_code == 422
    assert not IdempotencyRecord.objects.exists()

    assert _submit(api, "k").status_code == 202


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 201, "ü"])
def test_a_strange_key_is_422(api: Api, key: str) -> None:
    answer = _submit(api, key)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["code"] == "bad_idempotency_key"


def test_many_at_once_make_one_task(api: Api, delta: System) -> None:
    answers: list[int] = []

    def submit() -> None:
        try:
            answers.append(_submit(api, "k").status_code)
        finally:
            connection.close()

    threads = [threading.Thread(target=submit) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert Task.objects.count() == 1
    assert set(answers) <= {202, 409}
    assert 202 in answers


def test_a_replayed_token_shows_its_secret_again_and_it_is_kept_encrypted(api: Api) -> None:
    body = {"name": "x", "scopes": ["read"]}
    first = api.post("tokens", body, idempotency_key="k")
    again = api.post("tokens", body, idempotency_key="k")

    assert again.json() == first.json()
    assert ApiToken.objects.filter(name="x").count() == 1
    assert first.json()["token"] not in str(IdempotencyRecord.objects.get().body)


def test_a_draft_is_kept_once(api: Api) -> None:
    body = {"text": "2 a100 for 1 hour"}
    first = api.skill("draft_envelope", body, idempotency_key="k")
    again = api.skill("draft_envelope", body, idempotency_key="k")

    assert first.json()["id"] == again.json()["id"]
    assert Envelope.objects.count() == 1


def test_a_cancel_and_a_replan_take_keys(api: Api, delta: System) -> None:
    task = _submit(api, "k").json()["id"]
    first = _submit(api, "c", {}, f"tasks/{task}/cancel")
    again = _submit(api, "c", {}, f"tasks/{task}/cancel")

    assert first.json() == again.json()
    assert again["Idempotency-Replayed"] == "true"


def test_answers_are_kept_a_day_and_forgotten_after_two(api: Api, delta: System) -> None:
    _submit(api, "k")
    now = timezone.now()

    assert idempotency.prune(now=now + timedelta(hours=25)) == 0
    assert idempotency.prune(now=now + timedelta(hours=49)) == 1
