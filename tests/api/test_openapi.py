"""The description of the API is valid, complete, kept in the repository, and true of what is answered."""

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import get_resolver

from federation.models import System
from portal.api.openapi.document import document
from portal.api.resources import RESOURCES
from portal.management.commands import facet_openapi
from portal.skills.every import SKILLS
from tests.api.conftest import Api

DOCUMENT = document()


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _at(pointer: str) -> Any:
    here: Any = DOCUMENT
    for step in pointer.removeprefix("#/").split("/"):
        here = here[step.replace("~1", "/").replace("~0", "~")]
    return here


def _operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_every_reference_leads_somewhere() -> None:
    found = set(_references(DOCUMENT))

    assert len(found) > 30
    for reference in found:
        assert _at(reference)


def test_every_schema_is_json_schema() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_operations_are_named_once_and_say_how_they_fail() -> None:
    names = [operation["operationId"] for _, _, operation in _operations()]

    assert len(names) == len(set(names))
    for path, _, operation in _operations():
        assert {"401", "403", "422", "429", "500"} <= operation["responses"].keys(), path
        assert operation["summary"]


def test_what_creates_takes_an_idempotency_key() -> None:
    key = {"$ref": "#/components/parameters/IdempotencyKey"}
    for path, method, operation in _operations():
        creates = method == "post" and not path.endswith(("/revoke", "/milestones"))
        name = path.removeprefix("/api/v1/skills/")
        if name in SKILLS:
            creates = SKILLS[name].creates
        assert (key in operation.get("parameters", [])) is creates, path


def test_every_route_is_described_and_every_description_is_a_route() -> None:
    described = {path.replace("{handle}", "X").replace("{name}", "X") for path in DOCUMENT["paths"]}
    for path in described:
        get_resolver().resolve(path)
    served = {f"/api/v1/{name}" for name in RESOURCES} | {f"/api/v1/skills/{name}" for name in SKILLS}
    assert served <= described


def test_the_copy_in_the_repository_is_the_present_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_command("facet_openapi", check=True)

    changed = tmp_path / "openapi.json"
    changed.write_text(
        facet_openapi.kept_at().read_text().replace('"openapi": "3.1.0"', '"openapi": "3.0.0"')
    )
    monkeypatch.setattr(facet_openapi, "kept_at", lambda: changed)
    said = StringIO()
    with pytest.raises(CommandError, match="not the present API"):
        call_command("facet_openapi", check=True, stdout=said)
    assert '"openapi": "3.0.0"' in said.getvalue()
    call_command("facet_openapi", stdout=StringIO())
    call_command("facet_openapi", check=True)


def test_the_schema_is_served_as_it_is_kept(client: Client) -> None:
    assert client.get("/api/v1/schema").json() == json.loads(facet_openapi.kept_at().read_text())


def test_the_docs_need_no_other_host_and_no_inline_script(client: Client) -> None:
    page = client.get("/api/v1/docs")
    text = page.content.decode()

    assert "http://" not in text
    assert "https://" not in text
    assert text.count("<script") == text.count("<script src=") == 2
    assert "script-src" not in page["Content-Security-Policy"]  # falls back to 'self'
    for source in ("drf_spectacular_sidecar/swagger-ui-dist/swagger-ui-bundle.js", "js/api_docs.js"):
        assert client.get(f"/static/{source}").status_code == 200


def _check(schema: dict[str, Any], value: object) -> None:
    whole = {**schema, "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(whole).validate(value)


def _schema_of(path: str, method: str, status: int) -> dict[str, Any]:
    response = DOCUMENT["paths"][path][method]["responses"][str(status)]
    if "$ref" in response:
        response = _at(response["$ref"])
    [content] = response["content"].values()
    schema: dict[str, Any] = content["schema"]
    return schema


@pytest.mark.django_db(transaction=True)
def test_what_is_answered_is_what_is_described(api: Api, delta: System) -> None:
    work = {"command": ["true"], "envelope": {"gpus": 1, "memory_mib": "4G"}}
    given_schema = DOCUMENT["paths"]["/api/v1/tasks"]["post"]["requestBody"]["content"]["application/json"]
    _check(given_schema["schema"], work)

    submitted = api.post("tasks?wait_s=0", work)
    _check(_schema_of("/api/v1/tasks", "post", 202), submitted.json())
    handle = submitted.json()["id"]
    for name in RESOURCES:
        listed = api.get(name).json()
        _check(_schema_of(f"/api/v1/{name}", "get", 200), listed)
        for row in listed["results"][:2]:
            one = api.get(f"{name}/{row['id']}").json()
            _check(_schema_of(f"/api/v1/{name}/{{handle}}", "get", 200), one)
    for name, given in (
        ("inspect_federation", {"include_history": True}),
        ("draft_envelope", {"text": "2 a100 for an hour"}),
        ("preview_placement", {"gpus": 1}),
        ("get_result", {"task": handle}),
        ("read_log", {"task": handle}),
        ("wait_for_events", {"after": 0, "timeout_s": 0}),
        ("cancel", {"task": handle}),
    ):
        answer = api.skill(name, given)
        assert answer.status_code == 200, answer.content
        _check(_schema_of(f"/api/v1/skills/{name}", "post", 200), answer.json())
        jsonschema.Draft202012Validator(SKILLS[name].schema_out()).validate(answer.json())
        jsonschema.Draft202012Validator(SKILLS[name].schema_in()).validate(given)
    timeline = api.get(f"tasks/{handle}/timeline").json()
    _check(_schema_of("/api/v1/tasks/{handle}/timeline", "get", 200), timeline)
    _check(_schema_of("/api/v1/skills", "get", 200), api.get("skills").json())
    made = api.post("tokens", {"name": "x", "scopes": ["read"]})
    _check(_schema_of("/api/v1/tokens", "post", 201), made.json())


@pytest.mark.django_db
def test_failures_are_what_is_described(api: Api) -> None:
    for answer in (
        api.get("tasks/nope"),
        api.get("tasks?x=1"),
        api.post("tasks", "{"),
        api.skill("cancel", {"task": "task_x"}),
        api.delete("systems"),
    ):
        _check({"$ref": "#/components/schemas/Problem"}, answer.json())
