"""Every failure under /api is a problem, and every fault of an input has its pointer and the nearest name."""

from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.fixtures import Settings

from federation.models import System
from orchestrator.models import Task
from portal.api import rates
from portal.api.parsing import MAX_BODY_BYTES
from portal.api.problems import catalogue
from portal.api.resources import Resource
from portal.skills.registry import SKILLS
from tests.api.conftest import Api, check_problem

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "path", ["/api", "/api/", "/api/v1", "/api/v1/nope", "/api/v2/tasks", "/api/v1/tasks/a/b"]
)
def test_a_route_that_is_not_there_is_a_problem(client: Client, path: str) -> None:
    for answer in (client.get(path), client.post(path)):
        assert (answer.status_code, check_problem(answer)["code"]) == (404, "not_found")


def test_a_method_that_is_not_there_names_those_that_are(api: Api) -> None:
    answer = api.delete("systems")

    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert "GET" in answer["Allow"].split(", ")
    assert "DELETE" not in answer["Allow"]


def test_an_unknown_skill_names_the_nearest(api: Api) -> None:
    answer = api.skill("submit_tusk")

    assert answer.status_code == 404
    assert "Did you mean `submit_task`?" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        ('{"a": }', 400, "malformed_json", "line 1 column 7 (character 6)"),
        ("{", 400, "malformed_json", "line 1 column 2"),
        ('{"a": NaN}', 400, "malformed_json", "NaN is no JSON number"),
        ('{"a": 1, "a": 2}', 400, "malformed_json", "'a' stands twice"),
        (b'{"a": "\xff"}', 400, "malformed_json", "byte 7"),
        ("[" * 100_000, 400, "malformed_json", "deeply"),
        ("[1]", 422, "invalid_input", "must be a JSON object"),
        ('"x"', 422, "invalid_input", "must be a JSON object"),
        ('{"name": "a\\u0000b"}', 422, "invalid_input", "NUL"),
        ('{"name": "\\ud800"}', 422, "invalid_input", "surrogate"),
        ('{"budget": {"max_charge": {"a": 1e999}}}', 422, "invalid_input", "finite"),
        ('{"a": ' + "9" * 5000 + "}", 400, "malformed_json", "digits"),
    ],
)
def test_a_body_that_cannot_be_read_says_where(
    api: Api, body: str | bytes, status: int, code: str, words: str
) -> None:
    answer = api.post("tasks", body)

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert words in answer.json()["detail"]


def test_a_body_too_large_is_413(api: Api) -> None:
    answer = api.post("tasks", '{"script": "' + "x" * MAX_BODY_BYTES + '"}')

    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


def test_a_body_that_is_not_json_by_its_word_is_415(api: Api) -> None:
    answer = api.client.post(
        "/api/v1/tasks", "a=1", content_type="application/x-www-form-urlencoded", headers=api._headers({})
    )

    assert (answer.status_code, check_problem(answer)["code"]) == (415, "unsupported_media_type")


def test_any_accept_header_gets_json(api: Api) -> None:
    assert api.get("tasks", accept="text/html")["Content-Type"] == "application/json"


def test_an_unexpected_failure_tells_only_its_incident(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(Resource, "page", breaks)

    answer = api.get("tasks")

    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (500, "internal_error")
    assert "hunter2" not in answer.content.decode()
    assert problem["facts"]["incident"] in problem["detail"]
    assert problem["facts"]["incident"] in caplog.text


def test_a_refused_host_is_a_problem_too(client: Client) -> None:
    answer = client.get("/api/v1/tasks", headers={"host": "evil.example"})

    assert (answer.status_code, check_problem(answer)["code"]) == (400, "bad_request")
    assert client.get("/healthz", headers={"host": "evil.example"})["Content-Type"].startswith("text/html")


def test_a_path_outside_the_api_stays_a_page(client: Client) -> None:
    assert client.get("/no-such-page").headers["Content-Type"].startswith("text/html")


def test_each_code_is_an_anchor_of_the_docs(client: Client) -> None:
    page = client.get("/api/v1/docs/errors").content.decode()

    assert {"invalid_input", "credit_exhausted", "idempotency_in_flight"} <= catalogue().keys()
    for code in catalogue():
        assert f'<dt id="{code}">' in page


@pytest.mark.parametrize(
    ("query", "name", "words"),
    [
        ("tasks?stat=running", "?stat", "Did you mean `state`?"),
        ("tasks?state=runing", "?state", "Did you mean `running`?"),
        ("tasks?limit=0", "?limit", "from 1 to 200"),
        ("tasks?limit=201", "?limit", "from 1 to 200"),
        ("tasks?limit=ten", "?limit", "from 1 to 200"),
        ("tasks?limit=٣", "?limit", "from 1 to 200"),
        ("tasks?cursor=???", "?cursor", "`next` of an earlier page"),
        ("tasks?state=running&state=failed", "?state", "more than once"),
        ("tasks?name=a%00b", "?name", "NUL"),
        ("events?type=task.succeded", "?type/0", "Did you mean `task.succeeded`?"),
        ("events?cursor=-1", "?cursor", "whole number"),
        ("events?cursor=1&after=1", "?after", "not both"),
        ("systems/delta?x=1", "?x", "Unknown query parameter"),
        ("systems?state=up", "?state", "Known: degraded"),
        ("skills?x=1", "?x", "Unknown query parameter"),
    ],
)
def test_a_query_parameter_that_means_nothing_is_named(api: Api, query: str, name: str, words: str) -> None:
    answer = api.get(query)

    assert answer.status_code == 422
    fault = answer.json()["errors"][0]
    assert fault["pointer"] == name
    assert words in fault["message"]


@pytest.mark.parametrize("text", ["-1", "51", "x", "nan", "inf", ""])
def test_the_wait_is_bounded(api: Api, text: str) -> None:
    answer = api.post(f"tasks?wait_s={text}", {"command": "true"})

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "?wait_s"
    assert not Task.objects.exists()


SCRIPT = "#!/bin/bash\n#SBATCH --gpus=1\n"
ENVELOPE_FAULTS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"gpu": 1}, "/envelope/gpu", "unknown_field", "gpus"),
    ({"gpus": {"min": 3, "max": 1}}, "/envelope/gpus", "min_over_max", "min 3 is greater than max 1"),
    ({"gpus": -1}, "/envelope/gpus", "negative", "0 or more"),
    ({"gpus": 10**30}, "/envelope/gpus", "too_large", "slip"),
    ({"cpus": 1.5}, "/envelope/cpus", "", ""),
    ({"memory_mib": "64X"}, "/envelope/memory_mib", "wrong_unit", "64G"),
    ({"walltime_s": "soon"}, "/envelope/walltime_s", "", ""),
    ({"accelerator": {"types": ["a1000"]}}, "/envelope/accelerator/types/0", "unknown_accelerator", "a100"),
    ({"architecture": ["x86"]}, "/envelope/architecture/0", "", ""),
    (
        {"policy": {"allow_systems": ["detla"]}},
        "/envelope/policy/allow_systems/0",
        "unknown_system",
        "`delta`",
    ),
]


@pytest.mark.parametrize(("envelope", "pointer", "code", "words"), ENVELOPE_FAULTS)
def test_a_faulty_envelope_names_the_field_and_the_fix(
    api: Api, envelope: dict[str, Any], pointer: str, code: str, words: str
) -> None:
    System.objects.create(slug="delta", name="Delta")

    submitted = api.post("tasks", {"command": "true", "envelope": envelope})
    previewed = api.skill("preview_placement", envelope)

    for answer, root in ((submitted, ""), (previewed, "/envelope")):
        assert answer.status_code == 422
        fault = answer.json()["errors"][0]
        assert fault["pointer"] == pointer.removeprefix(root)
        assert fault["code"] == code or not code
        assert words in fault["message"]
    assert not Task.objects.exists()


TASK_FAULTS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"command": "a", "script": SCRIPT}, "", "not_exactly_one", "not both"),
    ({}, "", "not_exactly_one", "give `command` or `script`"),
    ({"script": ""}, "/script", "not_valid", "is empty"),
    ({"script": "  \n"}, "/script", "not_valid", "is empty"),
    ({"command": []}, "/command", "not_valid", "must not be empty"),
    ({"command": 5}, "/command", "wrong_type", "must be an array, or must be a string"),
    ({"command": ["a", 5]}, "/command/1", "wrong_type", "must be a string"),
    ({"command": "a", "comand": "b"}, "/comand", "unknown_field", "Did you mean `command`?"),
    ({"command": "a", "wait_s": 1}, "/wait_s", "unknown_field", "Unknown field"),
    ({"command": "a", "retry": {"on": ["timout"]}}, "/retry/on/0", "unknown_word", "Did you mean `timeout`?"),
    ({"command": "a", "retry": {"max_attempt": 2}}, "/retry/max_attempt", "unknown_field", "max_attempts"),
    ({"command": "a", "environment": {"modules": 5}}, "/environment/modules", "wrong_type", "array"),
    (
        {"command": "a", "environment": {"variables": {"A B": "1"}}},
        "/environment/variables",
        "not_valid",
        "A B",
    ),
    ({"command": "a", "workdir": "here"}, "/workdir", "not_valid", "absolute"),
    ({"command": "a", "name": "two\nlines"}, "/name", "not_valid", "one line"),
    ({"command": "a", "dialect": "slrum"}, "/dialect", "unknown_word", "Did you mean `slurm`?"),
    ({"command": "a", "envelope": {}, "envelope_id": "env_x"}, "", "not_exactly_one", "not both"),
    ({"command": "a", "envelope": [1]}, "/envelope", "wrong_type", "must be an object"),
]


@pytest.mark.parametrize(("given", "pointer", "code", "words"), TASK_FAULTS)
def test_a_faulty_task_names_the_field_and_the_fix(
    api: Api, given: dict[str, Any], pointer: str, code: str, words: str
) -> None:
    answer = api.post("tasks?wait_s=0", given)

    assert answer.status_code == 422
    fault = answer.json()["errors"][0]
    assert (fault["pointer"], fault["code"]) == (pointer, code)
    assert words in fault["message"]
    assert fault["message"] in answer.json()["detail"]
    assert not Task.objects.exists()


@pytest.mark.parametrize("given", [{"group": "grp_x"}, {"envelope_id": "env_x"}])
def test_a_handle_that_is_not_ones_own_is_404(api: Api, given: dict[str, Any]) -> None:
    answer = api.post("tasks?wait_s=0", {"command": "a", **given})

    assert answer.status_code == 404
    assert answer.json()["errors"][0]["pointer"] == f"/{next(iter(given))}"
    assert not Task.objects.exists()


def test_too_many_requests_are_429_with_a_time(api: Api, settings: Settings) -> None:
    settings.RATE_PER_MINUTE, settings.RATE_BURST = 60, 3

    answers = [api.get("tasks") for _ in range(5)]

    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert answers[3]["Retry-After"] == "1"
    assert answers[3].json()["retry_safe"] is True
    assert answers[3].json()["code"] == "rate_limited"


def test_one_users_haste_is_not_anothers(api: Api, bob: User, caller: Any, settings: Settings) -> None:
    settings.RATE_PER_MINUTE, settings.RATE_BURST = 60, 1

    assert api.get("tasks").status_code == 200
    assert api.get("tasks").status_code == 429
    assert caller(bob).get("tasks").status_code == 200


def test_without_redis_everybody_may_and_it_is_logged(
    api: Api, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.REDIS_URL, settings.RATE_BURST = "unix:///no/such/socket", 1
    rates._client.cache_clear()

    answers = [api.get("tasks").status_code for _ in range(3)]

    rates._client().close()
    settings.REDIS_URL = django_settings.REDIS_URL
    rates._client.cache_clear()
    assert answers == [200, 200, 200]
    assert caplog.text.count("Redis is away") == 1


def test_only_skills_that_exist_are_registered() -> None:
    assert set(SKILLS) == {
        *("inspect_federation", "draft_envelope", "preview_placement", "submit_task", "get_result"),
        *("read_log", "replan", "cancel", "wait_for_events", "submit_group", "move_data"),
        *("relax_envelope", "save_template", "delete_template"),
        *("set_budget", "close_budget", "decide_approval"),
    }
