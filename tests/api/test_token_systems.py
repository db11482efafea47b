"""A token limited to some systems: it places work there alone, and sees nothing that lies elsewhere."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from federation.models import Event, System
from orchestrator.models import Delivery, Envelope, Subscription, Target, Task
from portal.skills.registry import Scope
from portal.tokens import issue_token
from tests.api.conftest import ALL, Api
from tests.state.conftest import Sites

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.services]

WORK = {"command": ["true"], "envelope": {"gpus": 1, "memory_mib": "4G"}}
LISTS = ("systems", "snapshots", "tasks", "attempts", "decisions", "events")


@pytest.fixture
def vista(sites: Sites, alice: User) -> System:
    """Another cluster that alice may use."""
    return sites.add("vista", alice, account="TG-ABC123")


@pytest.fixture
def narrow(api: Api, alice: User, delta: System) -> Api:
    """Alice's agent, which may use delta alone."""
    scopes = [Scope(word) for word in ALL]
    _, secret = issue_token(alice, name="agent", scopes=scopes, now=timezone.now(), systems=["delta"])
    return Api(secret, api.client)


def _elsewhere(api: Api) -> str:
    """Submit something to vista with the whole token."""
    at_vista = {**WORK["envelope"], "policy": {"allow_systems": ["vista"]}}  # type: ignore[dict-item]
    made = api.post("tasks?wait_s=0", {**WORK, "envelope": at_vista})
    assert made.status_code == 202, made.content
    task = Task.objects.get(handle=made.json()["id"])
    Task.objects.filter(pk=task.pk).update(attempt=task.attempts.get())
    return task.handle


def test_it_sees_nothing_that_lies_elsewhere(api: Api, narrow: Api, vista: System) -> None:
    task = _elsewhere(api)
    attempt = api.get("attempts").json()["results"][0]["id"]

    for name in LISTS:
        assert "vista" in api.get(name).content.decode(), name
        assert "vista" not in narrow.get(name).content.decode(), name
    for path in (f"tasks/{task}", f"tasks/{task}/timeline", f"tasks/{task}/ro-crate", f"attempts/{attempt}"):
        assert api.get(path).status_code == 200, path
        assert narrow.get(path).status_code == 404, path
    assert narrow.get("systems/vista").status_code == 404
    assert [each["id"] for each in narrow.skill("inspect_federation").json()["systems"]] == ["delta"]
    heard = narrow.skill("wait_for_events", {"after": 0, "timeout_s": 0}).json()["events"]
    assert {event["system"] for event in heard} <= {None, "delta"}


def test_it_hears_of_no_delivery_and_sees_no_envelope_of_elsewhere(
    api: Api, narrow: Api, alice: User, vista: System
) -> None:
    away = Task.objects.get(handle=_elsewhere(api))
    here = Task.objects.get(handle=narrow.post("tasks?wait_s=0", WORK).json()["id"])
    Task.objects.filter(pk=here.pk).update(attempt=here.attempts.get())
    unused = api.skill("draft_envelope", {"script": "#SBATCH --gpus=1\ntrue"}).json()["id"]
    hook = Subscription.objects.create(
        handle="sub_x",
        user=alice,
        target=Target.WEBHOOK,
        cursor_seq=0,
        acked_seq=0,
        created_at=timezone.now(),
        updated_at=timezone.now(),
    )
    for seq, event in enumerate(Event.objects.filter(task__in=[away.handle, here.handle])):
        Delivery.objects.create(
            handle=f"dlv_{seq}",
            subscription=hook,
            seq=seq,
            event=event.handle,
            event_type=event.type,
            body=event.task,
            created_at=timezone.now(),
        )

    told = {each["event"] for each in narrow.get("deliveries").json()["results"]}
    seen = {each["id"] for each in narrow.get("envelopes").json()["results"]}

    assert told == set(
        Event.objects.filter(task__in=[away.handle, here.handle], system__in=["", "delta"]).values_list(
            "handle", flat=True
        )
    )
    assert len(api.get("deliveries").json()["results"]) > len(told) > 0
    assert seen == {here.envelope.handle, unused}
    assert narrow.get(f"envelopes/{away.envelope.handle}").status_code == 404
    assert away.envelope.handle in {each["id"] for each in api.get("envelopes").json()["results"]}


def test_no_skill_touches_what_lies_elsewhere(api: Api, narrow: Api, vista: System) -> None:
    task = _elsewhere(api)

    for skill, given in (
        ("get_result", {"task": task}),
        ("read_log", {"task": task}),
        ("cancel", {"task": task}),
        ("replan", {"task": task}),
        ("submit_task", {"like": task}),
        ("wait_for_events", {"subject": task, "timeout_s": 0}),
        ("wait_for_events", {"subject": "vista", "timeout_s": 0}),
    ):
        assert narrow.skill(skill, given).status_code == 404, skill
    assert Task.objects.get().cancel_requested_at is None
    assert narrow.get(f"events/stream?subject={task}").status_code == 404


def test_its_work_is_placed_there_alone_and_stays_there(api: Api, narrow: Api, vista: System) -> None:
    preview = narrow.skill("preview_placement", WORK["envelope"]).json()
    task = narrow.post("tasks?wait_s=0", WORK).json()
    replanned = narrow.skill("replan", {"task": task["id"], "envelope": {"gpus": 2}}).json()

    codes = {
        each["system"]: {rejection["code"] for rejection in each["rejections"]}
        for each in preview["candidates"]
        if not each["feasible"]
    }
    assert "excluded_by_policy" in codes["vista"]
    assert preview["selected"]["system"] == task["system"] == "delta"
    assert {tuple(row.body["policy"]["allow_systems"]) for row in Envelope.objects.all()} == {("delta",)}
    assert api.get(f"envelopes/{replanned['envelope']}").json()["envelope"]["policy"]["allow_systems"] == [
        "delta"
    ]


def test_a_group_is_bound_as_well(narrow: Api) -> None:
    children = [{"name": str(number), "command": ["true"]} for number in range(2)]

    made = narrow.skill("submit_group", {"envelope": WORK["envelope"], "children": children})

    assert made.status_code == 201, made.content
    assert [row.body["policy"]["allow_systems"] for row in Envelope.objects.all()] == [["delta"]] * 2


def test_a_policy_that_allows_only_others_is_refused_with_its_place(narrow: Api) -> None:
    System.objects.create(slug="vista", name="Vista")
    elsewhere = {**WORK, "envelope": {"gpus": 1, "policy": {"allow_systems": ["vista"]}}}

    refused = narrow.post("tasks?wait_s=0", elsewhere)

    assert (refused.status_code, refused.json()["code"]) == (403, "not_authorized")
    assert "delta only" in refused.json()["detail"]
    assert "/envelope/policy/allow_systems" in refused.json()["remediation"]
    assert Task.objects.count() == 0


def test_a_token_it_makes_is_no_wider_and_it_subscribes_nobody(api: Api, narrow: Api) -> None:
    System.objects.create(slug="vista", name="Vista")
    same = narrow.post("tokens", {"name": "same", "scopes": ["read"]})
    wider = narrow.post("tokens", {"name": "wider", "scopes": ["read"], "systems": ["delta", "vista"]})
    unknown = api.post("tokens", {"name": "unknown", "scopes": ["read"], "systems": ["detla"]})
    hook = narrow.post("subscriptions", {"target": "cursor"})

    assert same.json()["systems"] == ["delta"]
    assert (wider.status_code, wider.json()["facts"]) == (403, {"systems": ["vista"]})
    assert unknown.status_code == 422
    assert unknown.json()["errors"][0]["pointer"] == "/systems/0"
    assert "delta" in unknown.json()["errors"][0]["message"]
    assert hook.status_code == 403


def test_it_neither_sees_nor_ends_budgets_and_approvals_of_elsewhere(
    api: Api, narrow: Api, vista: System, alice: User, caller: Callable[..., Api]
) -> None:
    asks = {"project": "climate", "max_attempts": 9, "approve_above": {"node_hours": 0}}
    whole = api.post("budgets", {**asks, "max_charge": {"vista": 5, "delta": 5}}).json()["id"]
    there = {"gpus": 1, "memory_mib": "4G", "policy": {"allow_systems": ["vista"]}}
    made = api.post("tasks?wait_s=0", {**WORK, "envelope": there, "project": "climate"}).json()
    (approval,) = api.get("approvals").json()["results"]
    later = _elsewhere(api)
    tasks = caller(alice, "manage").post("budgets", {"task": later, "max_attempts": 3}).json()["id"]

    assert (made["state"], approval["system"]) == ("pending_approval", "vista")
    (seen,) = narrow.get("budgets").json()["results"]
    assert [(each["measure"], each["system"]) for each in seen["meters"]] == [
        ("attempts", None), ("charge", "delta"), ("node_hours", None)
    ]  # fmt: skip
    assert narrow.get(f"budgets/{tasks}").status_code == 404
    assert narrow.post(f"budgets/{tasks}/close").status_code == 404
    assert narrow.post(f"budgets/{whole}/close").status_code == 403
    assert narrow.post("budgets", {"project": "climate", "max_attempts": 99}).status_code == 403
    assert narrow.post("budgets", {"project": "x", "max_charge": {"vista": 1}}).status_code == 403
    assert narrow.post("budgets", {"project": "x", "max_charge": {"delta": 1}}).status_code == 200
    assert narrow.post(f"approvals/{approval['id']}/approve").status_code == 404


def test_every_event_names_who_acted_and_for_whom(
    api: Api, narrow: Api, alice: User, caller: Callable[..., Api]
) -> None:
    narrow.post("tasks?wait_s=0", WORK)
    narrow.skill("draft_envelope", {"text": "one gpu for an hour"})

    rows = list(Event.objects.filter(user=alice))

    assert {row.on_behalf_of for row in rows} == {"user:alice"}
    assert {row.actor for row in rows} == {"token:agent"}
    assert {row.on_behalf_of for row in Event.objects.filter(user=None)} <= {""}
