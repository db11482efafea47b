"""`move_data` over REST: a handle at once, faults by pointer, once per key, cancelled by the common skill."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from federation.models import System
from orchestrator import moving
from orchestrator.models import Transfer
from portal.skills.registry import Scope
from portal.tokens import issue_token
from tests.api.conftest import Api

pytestmark = pytest.mark.django_db


@pytest.fixture
def home(tmp_path: Path, settings: Any) -> Path:
    settings.DATA_DIR = tmp_path / "facet"
    settings.LOCAL_ROOTS = (str(tmp_path / "home" / "{user}"),)
    folder = tmp_path / "home" / "alice"
    folder.mkdir(parents=True)
    (folder / "x").write_text("hello\n")
    return folder


def test_a_move_answers_with_handle_references_and_policy_and_is_made_once_per_key(
    api: Api, home: Path
) -> None:
    body = {"source": f"file://{home}/x", "destination": {"uri": f"file://{home}/copies/"}}

    first = api.skill("move_data", body, Idempotency_Key="once")
    again = api.post("transfers", body, Idempotency_Key="once")

    assert first.status_code == again.status_code == 202
    answer = first.json()
    assert again.json() == answer
    assert first["Location"] == f"/api/v1/transfers/{answer['id']}" == answer["references"]["self"]
    assert answer["references"]["destination"] == f"file://{home}/copies/x"
    assert answer["policy"][0] == {
        "rule": "allowed_roots",
        "outcome": "allowed",
        "detail": f"within {home}",
    }
    assert api.get("transfers?state=requested&purpose=move").json()["results"] == [answer["transfer"]]
    assert Transfer.objects.count() == 1


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({"source": "file:///{home}/x"}, 422, "/destination"),
        ({"source": "s3://bucket/x", "destination": "file:///{home}/y"}, 422, "/source/uri"),
        ({"source": "file:///{home}/x", "destination": "file:///{home}/y", "sync": 1}, 422, "/sync"),
        ({"source": "file:///etc/passwd", "destination": "file:///{home}/y"}, 403, None),
        ({"source": "file:///{home}/x", "destination": "file:///{home}/y", "task": "task_no"}, 404, "/task"),
    ],
)
def test_a_bad_move_names_its_fault_and_makes_nothing(
    api: Api, home: Path, body: dict[str, Any], status: int, pointer: str | None
) -> None:
    given = {
        name: value.replace("/{home}", str(home)) if isinstance(value, str) else value
        for name, value in body.items()
    }

    refused = api.skill("move_data", given)

    assert refused.status_code == status
    if status == 422:
        assert refused.json()["errors"][0]["pointer"] == pointer
    assert not Transfer.objects.exists()


def test_a_transfer_is_cancelled_by_the_common_skill_and_only_by_its_owner(
    api: Api, home: Path, bob: User, caller: Callable[..., Api]
) -> None:
    handle = api.skill("move_data", {"source": f"file://{home}/x", "destination": f"file://{home}/y"}).json()[
        "id"
    ]

    assert caller(bob).get(f"transfers/{handle}").status_code == 404
    assert caller(bob).skill("cancel", {"transfer": handle}).status_code == 404
    cancelled = api.skill("cancel", {"transfer": handle})

    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    moving.watch_transfers(Transfer.objects.get().user_id, now=timezone.now())
    assert not (home / "y").exists()


def test_moving_needs_the_scope_to_submit(alice: User, caller: Callable[..., Api], home: Path) -> None:
    refused = caller(alice, "read").skill(
        "move_data", {"source": f"file://{home}/x", "destination": f"file://{home}/y"}
    )

    assert (refused.status_code, Transfer.objects.count()) == (403, 0)


def test_a_token_bound_to_systems_moves_no_data(alice: User, home: Path) -> None:
    System.objects.create(slug="delta", name="Delta")
    _, secret = issue_token(
        alice, name="narrow", scopes=[Scope.SUBMIT], now=timezone.now(), systems=["delta"]
    )
    narrow = Api(secret, Client(raise_request_exception=False))

    refused = narrow.skill("move_data", {"source": f"file://{home}/x", "destination": f"file://{home}/y"})

    assert refused.status_code == 403
    assert "bound to systems" in refused.json()["detail"]
