"""Groups from the command line: submitted, waited for and told as one."""

import json

import pytest

from tests.cli.agents import Agent, rule, rules
from tests.cli.conftest import Facet

pytestmark = pytest.mark.services


def plan(facet: Facet, *commands: list[str]) -> str:
    path = facet.home / "group.json"
    children = [{"name": f"child {n}", "command": command} for n, command in enumerate(commands)]
    envelope = {"cpus": 1, "walltime_s": 600}
    path.write_text(json.dumps({"name": "sweep", "envelope": envelope, "children": children}))
    return str(path)


def test_a_group_is_waited_for_as_one_and_wakes_once(facet: Facet) -> None:
    claude = Agent(facet, "claude")
    rules(facet, rule(max_wakes_per_hour=100))
    facet("bridge", "once")

    submitted = facet("group", plan(facet, ["true"], ["true"]), "--json")
    group = submitted.json["id"]
    waited = facet("wait", group, "--json", "--session", "another")
    facet("bridge", "once")

    assert submitted.code == 0
    assert group.startswith("grp_")
    assert waited.code == 0
    assert waited.json["results"][0]["state"] == "succeeded"
    told = [event for call in claude.calls for event in json.loads(call["stdin"])["events"]]
    assert [event["type"] for event in told if event["type"].startswith("task.")] == []
    assert [event["subject"] for event in told if event["type"] == "group.succeeded"] == [group]


def test_a_group_with_a_failed_child_ends_with_one(facet: Facet) -> None:
    ran = facet("group", plan(facet, ["true"], ["false"]), "--wait", "--json")

    assert ran.code == 1
    assert ran.json["results"][0]["counts"] == {"failed": 1, "succeeded": 1}
    group = ran.json["results"][0]["id"]
    assert facet("status", group).out.startswith(f"{group} partially_succeeded")


def test_a_plan_with_a_fault_is_refused_with_its_place(facet: Facet) -> None:
    path = facet.home / "group.json"
    path.write_text(json.dumps({"children": [{"comand": ["true"]}]}))

    ran = facet("group", str(path), "--json")

    assert ran.code == 5
    assert ran.json["error"]["errors"][0]["pointer"].startswith("/children/0")
