"""History is read only, and no page shows a secret."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.admin.sites import site
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from federation.admin.readonly import ReadOnlyAdmin
from federation.handles import new_handle
from federation.models import System
from federation.services import allocate
from orchestrator.models import Envelope
from portal.models import ApiToken, IdempotencyRecord
from portal.skills.registry import Scope
from portal.tokens import digest, issue_token
from tests.state.admin.asking import (
    staff,
    text_of,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def history(delta: System, alice: User, now: datetime) -> str:
    """One row of the most; returns the secret of a token."""
    _, secret = issue_token(alice, name="laptop", scopes=[Scope.READ], now=now)
    allocate(alice, delta, "x-gpu", unit="SU", granted=None, now=now)
    Envelope.objects.create(
        handle=new_handle("env", now), user=alice, source="user", body={"gpus": {"min": 1}}, created_at=now
    )
    IdempotencyRecord.objects.create(
        user=alice, key="k1", route="tokens", body_digest="d" * 64, status=201, created_at=now,
        started_at=now, body={"token": "facet_replayed_secret"}, headers={},
    )  # fmt: skip
    return secret


READ_ONLY = [model for model, model_admin in site._registry.items() if isinstance(model_admin, ReadOnlyAdmin)]


def test_history_can_be_looked_at_and_not_added_changed_or_deleted(admin: Client, history: str) -> None:
    for model in READ_ONLY:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        assert admin.get(reverse(f"{name}_changelist")).status_code == 200, name
        assert admin.post(reverse(f"{name}_add"), {}).status_code == 403, name
        for row in model._default_manager.all()[:1]:
            place = reverse(f"{name}_change", args=(row.pk,))
            assert admin.get(place).status_code == 200, name
            assert admin.post(place, {"handle": "x", "state": "succeeded"}).status_code == 403, name
            deleted = admin.post(reverse(f"{name}_delete", args=(row.pk,)), {"post": "yes"})
            assert deleted.status_code == 403, name
            assert model._default_manager.filter(pk=row.pk).exists()


def test_history_is_all_of_it() -> None:
    assert {model.__name__ for model in READ_ONLY} == {
        "ApiToken", "Approval", "Attempt", "BudgetLine", "Charge", "Decision", "Delivery", "Envelope",
        "Event", "GlobusIdentity", "GlobusToken", "Group", "IdempotencyRecord", "Manifest", "Snapshot",
        "Subscription", "Task", "Transfer",
    }  # fmt: skip


def test_json_is_drawn_to_be_read(admin: Client, history: str) -> None:
    row = Envelope.objects.get()

    page = text_of(admin.get(reverse("admin:orchestrator_envelope_change", args=(row.pk,))))

    assert '<pre class="facet-json" tabindex="0">{\n  "gpus": {\n    "min": 1\n  }\n}</pre>' in page


def test_a_script_in_json_stays_text(admin: Client, alice: User, now: datetime) -> None:
    row = Envelope.objects.create(
        handle=new_handle("env", now), user=alice, source="user", body={"x": "<script>alert(1)</script>"},
        created_at=now,
    )  # fmt: skip

    page = admin.get(reverse("admin:orchestrator_envelope_change", args=(row.pk,))).content.decode()

    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_no_page_shows_a_secret_a_hash_or_a_replayed_answer(admin: Client, history: str) -> None:
    token, record = ApiToken.objects.get(), IdempotencyRecord.objects.get()
    pages = [
        reverse("admin:portal_apitoken_changelist"),
        reverse("admin:portal_apitoken_change", args=(token.pk,)),
        reverse("admin:portal_idempotencyrecord_changelist"),
        reverse("admin:portal_idempotencyrecord_change", args=(record.pk,)),
        reverse("admin:auth_user_changelist"),
    ]

    for place in pages:
        page = text_of(admin.get(place))
        for secret in (history, digest(history), "facet_replayed_secret", "d" * 64):
            assert secret not in page


def test_a_token_is_revoked_by_an_action_and_by_nothing_else(admin: Client, history: str) -> None:
    token = ApiToken.objects.get()
    place = reverse("admin:portal_apitoken_changelist")
    given = {"action": "revoke", "_selected_action": [token.pk]}

    staff("view_apitoken").post(place, given)
    assert ApiToken.objects.filter(revoked_at__isnull=True).exists()

    admin.post(place, given)
    revoked_at = ApiToken.objects.get().revoked_at
    assert revoked_at is not None
    assert datetime.now(UTC) - revoked_at < timedelta(minutes=1)


def test_people_are_added_with_the_themes_forms(admin: Client) -> None:
    given = {
        "username": "carol",
        "usable_password": "true",
        "password1": "a-long-password-9",
        "password2": "a-long-password-9",
    }

    assert admin.get(reverse("admin:auth_user_add")).status_code == 200
    assert admin.post(reverse("admin:auth_user_add"), given).status_code == 302
    assert User.objects.get(username="carol").check_password("a-long-password-9")


@pytest.mark.parametrize("app", ["federation", "orchestrator", "portal", "auth"])
def test_every_list_and_the_front_page_open(admin: Client, history: str, app: str) -> None:
    assert admin.get(reverse("admin:index")).status_code == 200
    for model in [m for m in site._registry if m._meta.app_label == app]:
        answer = admin.get(reverse(f"admin:{app}_{model._meta.model_name}_changelist"), {"q": "x"})
        assert answer.status_code == 200
