"""Templates over HTTP: kept and deleted by skills, read as resources, each seen only by who may."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from federation.models import System
from tests.api.conftest import Api

pytestmark = pytest.mark.django_db

BODY = {"name": "light", "command": ["true"], "envelope": {"gpus": 1, "walltime_s": 600}}


@pytest.fixture
def bob(db: None) -> User:
    return User.objects.create_user("bob")


def test_a_template_is_kept_read_submitted_and_deleted(api: Api, delta: System) -> None:
    made = api.skill("save_template", {"name": "light", "body": {**BODY, "client_ref": "once"}})

    assert made.status_code == 200, made.json()
    handle = made.json()["id"]
    shown = api.get(f"templates/{handle}")
    assert (shown.status_code, shown.json()["body"]) == (200, BODY)
    assert (shown.json()["sharing"], shown.json()["owner"], shown.json()["project"]) == (
        "private", "alice", None,
    )  # fmt: skip
    (row,) = api.get("templates").json()["results"]
    assert (row["id"], row["name"]) == (handle, "light")
    submitted = api.skill("submit_task", shown.json()["body"])
    assert (submitted.status_code, submitted.json()["task"]["name"]) == (202, "light")
    deleted = api.skill("delete_template", {"template": handle})
    assert (deleted.status_code, deleted.json()) == (200, {"id": handle, "name": "light"})
    assert api.get("templates").json()["results"] == []
    assert api.get(f"templates/{handle}").status_code == 404


def test_the_same_name_replaces_what_was_kept(api: Api, delta: System) -> None:
    first = api.skill("save_template", {"name": "light", "body": BODY}).json()
    second = api.skill("save_template", {"name": "light", "body": {**BODY, "name": "other"}}).json()

    assert second["id"] == first["id"]
    (row,) = api.get("templates").json()["results"]
    assert row["body"]["name"] == "other"


def test_another_sees_only_what_is_shared_with_everyone_and_deletes_nothing(
    api: Api, delta: System, bob: User, caller: Callable[..., Api]
) -> None:
    private = api.skill("save_template", {"name": "mine", "body": BODY}).json()["id"]
    shared = api.skill("save_template", {"name": "ours", "body": BODY, "sharing": "everyone"}).json()["id"]
    other = caller(bob)

    assert [row["id"] for row in other.get("templates").json()["results"]] == [shared]
    assert other.get(f"templates/{private}").status_code == 404
    assert other.skill("delete_template", {"template": private}).status_code == 404
    assert other.skill("delete_template", {"template": shared}).status_code in (403, 404)
    assert {row["id"] for row in api.get("templates").json()["results"]} == {private, shared}


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"name": "", "body": BODY}, "/name"),
        ({"name": "x", "body": {**BODY, "command": []}}, "/body/command"),
        ({"name": "x", "body": BODY, "sharing": "project", "project": "nope"}, "/project"),
        ({"name": "x", "body": BODY, "sharing": "world"}, "/sharing"),
        ({"name": "x"}, "/body"),
    ],
)
def test_a_faulty_template_names_the_field(api: Api, given: dict[str, object], pointer: str) -> None:
    answer = api.skill("save_template", given)

    assert answer.status_code == 422
    assert pointer in [each["pointer"] for each in answer.json()["errors"]]
    assert api.get("templates").json()["results"] == []


def test_reading_needs_read_and_keeping_needs_submit_or_manage(
    alice: User, caller: Callable[..., Api]
) -> None:
    reader, submitter = caller(alice, "read"), caller(alice, "submit")

    assert reader.get("templates").status_code == 200
    assert reader.skill("save_template", {"name": "x", "body": BODY}).status_code == 403
    assert submitter.get("templates").status_code == 403
    assert submitter.skill("save_template", {"name": "x", "body": BODY}).status_code == 200
