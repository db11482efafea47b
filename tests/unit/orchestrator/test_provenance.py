"""The RO-Crate document has what the specification requires, and every reference in it leads somewhere."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from orchestrator.provenance import Origin, ro_crate
from orchestrator.shown import AttemptShown, EnvelopeShown, TaskShown

NOW = datetime(2026, 11, 29, 18, 0, tzinfo=UTC)


def _attempt(number: int, state: str, **known: Any) -> AttemptShown:
    blank = dict.fromkeys(AttemptShown.model_fields, None)
    given = {
        **blank, "id": f"att_{number}", "task": "task_1", "number": number, "state": state, "system": "delta",
        "partition": "gpuA100x4", "shape": {"gpus": 1, "cpus": 4, "memory_mib": None, "walltime_s": 600},
        "decision": "dec_1", "predicted": {}, "planned_at": NOW, "restarts": 0, "nodes": ["cn1"],
        "charge_reserved": 0, "outcomes": [], **known,
    }  # fmt: skip
    return AttemptShown.model_validate(given)


def _origin(**changes: Any) -> Origin:
    accepted = _attempt(2, "succeeded", job_id="812", started_at=NOW, ended_at=NOW, exit_code=0)
    blank = dict.fromkeys(TaskShown.model_fields, None)
    task: dict[str, Any] = {
        **blank, "id": "task_1", "name": "train", "objective": "", "state": "succeeded", "attempt": accepted,
        "attempts": 2, "envelope": "env_1", "submitted_by": "token:lap top", "cancel_requested": False,
        "created_at": NOW, "updated_at": NOW, "finished_at": NOW, "next_actions": [], "cost": [],
    }  # fmt: skip
    envelope = EnvelopeShown(
        id="env_1", source="user", confidence=None, envelope={"gpus": {"min": 1, "max": 1}}, original=None,
        rationale={}, created_at=NOW,
    )  # fmt: skip
    files = [
        {"path": "out dir/ä.txt", "bytes": 12, "sha256": "ab" * 32, "modified_at": None},
        {"path": "big.bin", "bytes": 10**9, "sha256": None, "modified_at": NOW.isoformat()},
    ]
    given: dict[str, Any] = {
        "task": TaskShown.model_validate(task),
        "spec": {"command": ["python", "t.py", "--token=abc123"], "script": None},
        "envelope": envelope,
        "decision": None,
        "attempts": [_attempt(1, "failed", cause="node_failure"), accepted],
        "manifest": {"location": "delta:/u/alice/1", "files": files},
        "person": "alice",
        "schedulers": {"delta": "slurm 22.05.8"},
        "facet_version": "0.1.0",
    }
    return Origin(**{**given, **changes})


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if value.keys() == {"@id"}:
            yield value["@id"]
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _entities(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["@id"]: each for each in document["@graph"]}


def test_the_required_entities_are_there() -> None:
    document = ro_crate(_origin(), now=NOW)
    found = _entities(document)

    assert document.keys() == {"@context", "@graph"}
    assert document["@context"][0] == "https://w3id.org/ro/crate/1.1/context"
    assert found["ro-crate-metadata.json"] == {
        "@id": "ro-crate-metadata.json",
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
    }
    root = found["./"]
    assert (root["@type"], root["name"], root["datePublished"]) == ("Dataset", "train", NOW.isoformat())
    assert root["description"] == "What task task_1 (succeeded) left behind at delta:/u/alice/1."


def test_the_graph_is_flat_every_id_once_and_every_reference_leads_somewhere() -> None:
    document = ro_crate(_origin(), now=NOW)
    identities = [each["@id"] for each in document["@graph"]]

    assert len(identities) == len(set(identities))
    assert all("@type" in each for each in document["@graph"])
    assert set(_references(document["@graph"])) - set(identities) == {"https://w3id.org/ro/crate/1.1"}


def test_files_have_sizes_and_checksums_and_paths_that_are_uris() -> None:
    found = _entities(ro_crate(_origin(), now=NOW))

    assert found["out%20dir/%C3%A4.txt"] == {
        "@id": "out%20dir/%C3%A4.txt",
        "@type": "File",
        "name": "out dir/ä.txt",
        "contentSize": "12",
        "sha256": "ab" * 32,
    }
    assert "sha256" not in found["big.bin"]
    assert found["./"]["hasPart"] == [{"@id": "out%20dir/%C3%A4.txt"}, {"@id": "big.bin"}]


def test_each_attempt_is_an_action_and_the_accepted_one_made_the_files() -> None:
    found = _entities(ro_crate(_origin(), now=NOW))

    assert found["#att_1"]["actionStatus"] == "http://schema.org/FailedActionStatus"
    assert found["#att_1"]["error"] == "node_failure"
    assert "result" not in found["#att_1"]
    assert found["#att_2"]["actionStatus"] == "http://schema.org/CompletedActionStatus"
    assert found["#att_2"]["result"] == [{"@id": "out%20dir/%C3%A4.txt"}, {"@id": "big.bin"}]
    assert found["#att_2-job_id"]["value"] == "812"
    assert found["#scheduler:delta"] == {
        "@id": "#scheduler:delta",
        "@type": "SoftwareApplication",
        "name": "slurm",
        "softwareVersion": "22.05.8",
    }
    assert found["#token:lap%20top"]["description"] == "Acted on behalf of alice."
    assert found["#work"]["text"] == '["python", "t.py", "--token=[redacted]'


def test_a_task_that_has_not_ended_tells_what_is_known() -> None:
    origin = _origin(manifest=None, attempts=[], schedulers={})
    found = _entities(ro_crate(origin, now=NOW))

    assert found["./"]["hasPart"] == []
    assert found["./"]["mentions"] == []
