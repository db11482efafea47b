"""Where results come from, as RO-Crate 1.1 metadata: what ran, where, when, for whom, and what it left.

The document describes the attempt's working directory: saved there as `ro-crate-metadata.json`, the paths in
it are true. No licence is stated, because nobody told us one. Pure.

Source: RO-Crate Metadata Specification 1.1.3, "Root Data Entity", "Data Entities", "Provenance of Entities".
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias
from urllib.parse import quote

from orchestrator.plain_text import redacted
from orchestrator.shown import AttemptShown, DecisionShown, EnvelopeShown, TaskShown

Json: TypeAlias = dict[str, Any]

MEDIA_TYPE = "application/ld+json"
_CONFORMS_TO = "https://w3id.org/ro/crate/1.1"
_CONTEXT = [f"{_CONFORMS_TO}/context", {"sha256": "https://schema.org/sha256"}]
_ROOT = "./"
_DESCRIPTOR = "ro-crate-metadata.json"
_FACET = "#facet"
_STATUS: Mapping[str, str] = {
    "succeeded": "CompletedActionStatus",
    "failed": "FailedActionStatus",
    "cancelled": "FailedActionStatus",
    "superseded": "FailedActionStatus",
    "running": "ActiveActionStatus",
}


@dataclass(frozen=True, slots=True)
class Origin:
    """All that the document tells of."""

    task: TaskShown
    spec: Mapping[str, Any]
    envelope: EnvelopeShown
    decision: DecisionShown | None
    attempts: Sequence[AttemptShown]
    manifest: Mapping[str, Any] | None
    """Body of the manifest; None before the task's end."""
    person: str
    """User name."""
    schedulers: Mapping[str, str]
    """What each system's scheduler called itself, for example "slurm 22.05.8"."""
    facet_version: str


def ro_crate(origin: Origin, *, now: datetime) -> Json:
    """Return the JSON-LD document. `now` dates it where the task has not ended."""
    graph = [
        _descriptor(),
        _root(origin, now=now),
        *_files(origin),
        {"@id": _person(origin), "@type": "Person", "name": origin.person},
        *_actor(origin),
        *_software(origin),
        *_systems(origin),
        _envelope(origin),
        *_decision(origin),
        *(_attempt(origin, attempt) for attempt in origin.attempts),
    ]
    properties = [each.pop("_properties", []) for each in graph]
    return {"@context": _CONTEXT, "@graph": [*graph, *(one for several in properties for one in several)]}


def _ref(identity: str) -> Json:
    return {"@id": identity}


def _descriptor() -> Json:
    return {
        "@id": _DESCRIPTOR,
        "@type": "CreativeWork",
        "about": _ref(_ROOT),
        "conformsTo": _ref(_CONFORMS_TO),
    }


def _root(origin: Origin, *, now: datetime) -> Json:
    task, manifest = origin.task, origin.manifest or {}
    where = manifest.get("location")
    told = f"What task {task.id} ({task.state}) left behind" + (f" at {where}" if where else "")
    return {
        "@id": _ROOT,
        "@type": "Dataset",
        "name": task.name,
        "description": f"{told}. {task.objective}".strip(),
        "identifier": task.id,
        "datePublished": (task.finished_at or now).isoformat(),
        "author": _ref(_person(origin)),
        "hasPart": [_ref(each["@id"]) for each in _files(origin)],
        "mentions": [_ref(f"#{attempt.id}") for attempt in origin.attempts],
    }


def _files(origin: Origin) -> Iterator[Json]:
    for entry in (origin.manifest or {}).get("files") or []:
        file: Json = {
            "@id": quote(entry["path"]),
            "@type": "File",
            "name": entry["path"],
            "contentSize": str(entry["bytes"]),
        }
        if entry.get("sha256"):
            file["sha256"] = entry["sha256"]
        if entry.get("modified_at"):
            file["dateModified"] = entry["modified_at"]
        yield file


def _person(origin: Origin) -> str:
    return f"#user:{quote(origin.person)}"


def _actor_id(origin: Origin) -> str:
    return f"#{quote(origin.task.submitted_by, safe=':')}"


def _actor(origin: Origin) -> Iterator[Json]:
    """Yield who submitted it, where that is not the person: an agent's token."""
    if _actor_id(origin) != _person(origin):
        yield {
            "@id": _actor_id(origin),
            "@type": "SoftwareApplication",
            "name": origin.task.submitted_by,
            "description": f"Acted on behalf of {origin.person}.",
        }


def _software(origin: Origin) -> Iterator[Json]:
    yield {
        "@id": _FACET,
        "@type": "SoftwareApplication",
        "name": "Facet",
        "softwareVersion": origin.facet_version,
    }
    work = origin.spec.get("command") or origin.spec.get("script") or ""
    words = work if isinstance(work, str) else json.dumps(list(work), ensure_ascii=False)
    yield {
        "@id": "#work",
        "@type": "SoftwareSourceCode",
        "name": origin.task.name,
        "text": redacted(words),
        "programmingLanguage": "batch script" if origin.spec.get("script") else "command",
    }


def _systems(origin: Origin) -> Iterator[Json]:
    for system in dict.fromkeys(attempt.system for attempt in origin.attempts):
        yield {"@id": f"#system:{system}", "@type": "IndividualProduct", "name": system}
        named = origin.schedulers.get(system)
        if named:
            name, _, version = named.partition(" ")
            scheduler = {"@id": f"#scheduler:{system}", "@type": "SoftwareApplication", "name": name}
            yield scheduler | ({"softwareVersion": version} if version else {})


def _envelope(origin: Origin) -> Json:
    envelope = origin.envelope
    return {
        "@id": f"#{envelope.id}",
        "@type": "CreativeWork",
        "name": "Resource envelope",
        "dateCreated": envelope.created_at.isoformat(),
        "encodingFormat": "application/json",
        "text": json.dumps(envelope.envelope, ensure_ascii=False, sort_keys=True),
    }


def _decision(origin: Origin) -> Iterator[Json]:
    """Yield the placement as something Facet made for the actor out of the envelope."""
    decision = origin.decision
    if decision is None:
        return
    yield {
        "@id": f"#{decision.id}",
        "@type": "CreativeWork",
        "name": f"Placement decision: {decision.result}",
        "dateCreated": decision.generated_at.isoformat(),
        "url": f"/api/v1/decisions/{decision.id}",
        **_with_properties(
            f"#{decision.id}",
            {
                "input_hash": decision.input_hash,
                "model_version": decision.model_version,
                "objective": decision.objective,
                "snapshots": ",".join(decision.snapshot_ids),
            },
        ),
    }
    yield {
        "@id": "#placing",
        "@type": "OrganizeAction",
        "name": "Placement",
        "agent": _ref(_actor_id(origin)),
        "instrument": _ref(_FACET),
        "object": _ref(f"#{origin.envelope.id}"),
        "result": _ref(f"#{decision.id}"),
        "endTime": decision.generated_at.isoformat(),
    }


def _attempt(origin: Origin, attempt: AttemptShown) -> Json:
    accepted = origin.task.attempt
    instruments = ["#work", f"#system:{attempt.system}"]
    if origin.schedulers.get(attempt.system):
        instruments.append(f"#scheduler:{attempt.system}")
    action: Json = {
        "@id": f"#{attempt.id}",
        "@type": "CreateAction",
        "name": f"Attempt {attempt.number} on {attempt.system}/{attempt.partition}",
        "agent": _ref(_person(origin)),
        "instrument": [_ref(each) for each in instruments],
        "object": _ref(f"#{origin.envelope.id}"),
        "actionStatus": f"http://schema.org/{_STATUS.get(attempt.state, 'PotentialActionStatus')}",
    }
    if accepted is not None and accepted.id == attempt.id:
        action["result"] = [_ref(file["@id"]) for file in _files(origin)]
    for name, at in (("startTime", attempt.started_at), ("endTime", attempt.ended_at)):
        if at is not None:
            action[name] = at.isoformat()
    if attempt.state == "failed" and attempt.cause:
        action["error"] = attempt.cause
    facts = {
        "job_id": attempt.job_id,
        "account": attempt.account,
        "qos": attempt.qos,
        "submitted_at": attempt.submitted_at.isoformat() if attempt.submitted_at else None,
        "exit_code": attempt.exit_code,
        "exit_signal": attempt.exit_signal,
        "nodes": ",".join(map(str, attempt.nodes)) or None,
        **{name: attempt.shape.get(name) for name in ("gpus", "cpus", "memory_mib", "walltime_s")},
    }
    return action | _with_properties(f"#{attempt.id}", facts)


def _with_properties(owner: str, facts: Mapping[str, Any]) -> Json:
    """Return references to properties, and beside them the properties themselves, lifted out afterwards."""
    known = {name: value for name, value in facts.items() if value is not None}
    made = [
        {"@id": f"{owner}-{name}", "@type": "PropertyValue", "name": name, "value": value}
        for name, value in known.items()
    ]
    return {"additionalProperty": [_ref(str(each["@id"])) for each in made], "_properties": made}
