import json
import pytest

pytestmark = pytest.mark.django_db(transaction=True)


def test_smoke(api, delta):
    for path in [
        "skills",
        "systems",
        "snapshots",
        "envelopes",
        "tasks",
        "groups",
        "attempts",
        "decisions",
        "transfers",
        "events",
        "allocations",
        "charges",
        "tokens",
        "systems/delta/",
        "schema",
        "docs",
        "docs/errors",
        "nope",
        "tasks/task_x",
        "tasks?foo=1",
        "tasks?limit=0",
        "tasks?state=runing",
        "events?type=task.accept",
    ]:
        r = api.client.get(f"/api/v1/{path}", headers=api._headers({}))
        print(path, r.status_code, len(r.content), r.content[:300])
    r = api.skill("inspect_federation", {"include_history": True})
    print(r.status_code, len(r.content), r.content.decode()[:6000])
    r = api.skill("draft_envelope", {"text": "4 a100 gpus for 2 hours"})
    print(r.status_code, r.content.decode())
    r = api.skill("preview_placement", {"gpus": 1})
    print(r.status_code, len(r.content), r.content.decode()[:3000])
    r = api.post("tasks?wait_s=0", {"command": ["true"], "envelope": {"gpus": 1}})
    print(r.status_code, len(r.content), r.content.decode())
    t = r.json()["id"]
    for path in [
        f"tasks/{t}",
        f"tasks/{t}/timeline",
        f"events?task={t}",
        f"decisions?task={t}",
        f"attempts?task={t}",
        "charges",
        "allocations",
    ]:
        r = api.get(path)
        print(path, r.status_code, len(r.content), r.content[:1500])
    r = api.skill("wait_for_events", {"after": 0, "timeout_s": 1})
    print(r.status_code, r.content.decode()[:1500])
    r = api.skill("get_result", {"task": t})
    print(r.status_code, r.content.decode()[:500])
    r = api.post(f"tasks/{t}/cancel")
    print(r.status_code, r.content.decode()[:500])
    for body in [
        {"command": 5},
        {"command": "x", "script": "y"},
        {},
        {"script": ""},
        {"command": "x", "envelop": {}},
        {"command": "x", "envelope": {"gpus": {"min": 3, "max": 1}}},
        {"command": "x", "envelope": {"memory_mib": "64X"}},
        {"command": "x", "envelope": {"gpus": -1}},
        {"command": "x", "envelope": {"gpus": 10**30}},
        {"command": "x", "envelope": {"accelerator": {"types": ["a1000"]}}},
        {"command": "x", "envelope": {"policy": {"allow_systems": ["detla"]}}},
        {"command": "x", "wait_s": 1},
        {"command": "x", "group": "grp_nope"},
        {"command": "x", "retry": {"on": ["timout"]}},
        {"command": "x", "environment": {"modules": 5}},
    ]:
        r = api.post("tasks?wait_s=0", body)
        print(body, r.status_code, r.content.decode()[:900])
    r = api.post("tasks?wait_s=0", '{"a": }')
    print(r.content)
    r = api.client.get("/llms.txt")
    print(r.content.decode())
