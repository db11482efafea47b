"""The JSON Schema (2020-12) of the envelope's input form, both spellings, for OpenAPI and MCP."""

from orchestrator.envelope.fields import CEILINGS
from orchestrator.envelope.parts import ARCHITECTURE_ALIASES, ARCHITECTURES, RUNTIMES, VENDORS


def envelope_input_schema() -> dict[str, object]:
    """Return the schema of the input form, with a description of every field."""
    properties = {**_amounts(), **_platform(), **_work(), **_origin()}
    return {
        "type": "object",
        "title": "ResourceEnvelope",
        "description": "What a task needs. All figures are totals for the job; null or absent = not said.",
        "additionalProperties": False,
        "properties": {name: _or_null(schema) for name, schema in properties.items()},
    }


def _memory() -> dict[str, object]:
    return {"anyOf": [_integer("memory_mib"), _string("'64G', '512MiB', '1.5TB'; powers of 1024")]}


def _duration() -> dict[str, object]:
    text = "'1-12:00:00', '2:30:00', '90' (minutes, as Slurm), 'PT2H' (ISO 8601), '2h30m'"
    return {"anyOf": [_integer("walltime_s"), _string(text)]}


def _amounts() -> dict[str, object]:
    return {
        "gpus": _range(_integer("gpus"), "GPUs in total. Default 0; 1 when an accelerator is named."),
        "cpus": _range(_integer("cpus"), "CPUs in total. Default: one per GPU or node, at least one."),
        "nodes": _range(_integer("nodes"), "Nodes. Default: any number that holds the rest."),
        "memory_mib": _range(_memory(), "Memory in total, MiB or with a unit. Default: the site's."),
        "walltime_s": _range(_duration(), "Wall-time limit, seconds or with a unit. Default 3600."),
    }


def _platform() -> dict[str, object]:
    return {
        "architecture": _list(
            {"enum": [*ARCHITECTURES, *ARCHITECTURE_ALIASES]},
            "Any of these processor architectures; empty = any.",
        ),
        "accelerator": _object(
            "Which GPUs will do.",
            types=_list(_string("a100, h100, gh200, mi250x ..."), "Any of these types."),
            vendor={"enum": list(VENDORS)},
            min_memory_mib={**_memory(), "description": "Memory of one device, at least."},
        ),
        "container": _object(
            "The container to run in.",
            runtime=_list({"enum": list(RUNTIMES)}, "Any of these runtimes."),
            image=_string("Image path or reference."),
        ),
        "software": _packages("Packages the site must have."),
        "network": _list(_string("for example infiniband"), "Capability words, all needed."),
        "filesystem": _list(_string("for example lustre"), "Capability words, all needed."),
        "parallel": _packages("Parallel runtimes the site must have, such as MPI."),
    }


def _work() -> dict[str, object]:
    return {
        "data": _object("What must be staged.", inputs=_references(), outputs=_references()),
        "runtime": _runtime(_duration()),
        "policy": _policy(),
        "objective": _string("earliest_completion (default), lowest_charge, soonest_start, or a strategy."),
    }


def _origin() -> dict[str, object]:
    return {
        "source": {"enum": ["user", "script", "llm", "rules"], "description": "Who made this envelope."},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1, "description": "Of a draft."},
        "rationale": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Reason per field.",
        },
        "original": {
            "type": "object",
            "description": "The input as it came, kept beside the normalized form.",
        },
    }


def _or_null(schema: object) -> object:
    if isinstance(schema, dict):
        described = {"description": schema["description"]} if "description" in schema else {}
        bare = {key: value for key, value in schema.items() if key != "description"}
        return {**described, "anyOf": [bare, {"type": "null"}]}
    return schema


def _integer(name: str) -> dict[str, object]:
    return {"type": "integer", "minimum": 0, "maximum": CEILINGS[name]}


def _string(description: str) -> dict[str, object]:
    return {"type": "string", "minLength": 1, "description": description}


def _object(description: str, **properties: object) -> dict[str, object]:
    return {
        "type": "object",
        "description": description,
        "additionalProperties": False,
        "properties": {name: _or_null(schema) for name, schema in properties.items()},
    }


def _list(items: object, description: str) -> dict[str, object]:
    return {"type": "array", "items": items, "description": description}


def _range(one: dict[str, object], description: str) -> dict[str, object]:
    span = {
        "type": "object",
        "additionalProperties": False,
        "required": ["min", "max"],
        "properties": {"min": one, "max": one},
        "description": "From minimum viable to maximum useful.",
    }
    return {"anyOf": [one, span], "description": f"{description} A bare value n means {{min: n, max: n}}."}


def _packages(description: str) -> dict[str, object]:
    version = _string("A specifier like '>=1.2,<2'; a bare version means exactly that one.")
    package = {**_object("One package.", name=_string("Its name."), version=version), "required": ["name"]}
    return _list({"anyOf": [_string("A name alone."), package]}, description)


def _references() -> dict[str, object]:
    reference = _object(
        "One file or folder.",
        uri=_string("'globus://COLLECTION/path' or 'file:///path'"),
        bytes=_integer("bytes"),
        sha256={"type": "string", "pattern": "^[0-9a-fA-F]{64}$"},
    )
    return _list({**reference, "required": ["uri"]}, "Data references.")


def _runtime(duration: dict[str, object]) -> dict[str, object]:
    sizes = {name: _integer(name) for name in ("gpus", "cpus", "nodes")}
    point = _object(
        "A known runtime at one size.", gpus=sizes["gpus"], cpus=sizes["cpus"], runtime_s=duration
    )
    return _object(
        "How long the run takes; not a limit.",
        estimate_s=duration,
        at=_object("The size at which it was estimated.", **sizes),
        scaling=_object(
            "Exactly one of the two.",
            serial_fraction={
                "type": "number",
                "minimum": 0,
                "maximum": 1,
                "description": "Amdahl's serial share.",
            },
            points=_list({**point, "required": ["runtime_s"]}, "Measured runtimes."),
        ),
    )


def _policy() -> dict[str, object]:
    systems = _string("A system's name.")
    return _object(
        "Where the task may run and at which price.",
        allow_systems=_list(systems, "Only these; leave out for every system."),
        exclude_systems=_list(systems, "Never these."),
        exclude_partitions=_list(_string("PARTITION or SYSTEM/PARTITION"), "Never these."),
        prefer=_list(systems, "Best first; decides ties."),
        objective=_string("As the envelope's objective."),
        deadline={
            "type": "string",
            "format": "date-time",
            "description": "With a zone: '2031-05-01T12:00:00Z'.",
        },
        max_charge={
            "type": "object",
            "additionalProperties": {"type": ["number", "string"]},
            "description": "Per system, in that site's own unit.",
        },
    )
