"""The envelope's nested parts, from JSON: accelerator, container, software, data, runtime, policy."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from urllib.parse import urlsplit

from orchestrator.envelope.accelerators import KNOWN_ACCELERATORS, read_accelerator_word
from orchestrator.envelope.faults import nearest, shown, step
from orchestrator.envelope.fields import NAME, Reader
from orchestrator.envelope.types import (
    OBJECTIVES,
    Accelerator,
    Container,
    Data,
    DataRef,
    Policy,
    Runtime,
    RuntimeAt,
    Scaling,
    ScalingPoint,
    Software,
)

ARCHITECTURES = ("x86_64", "aarch64", "ppc64le", "riscv64", "s390x")
ARCHITECTURE_ALIASES = {
    "amd64": "x86_64", "x64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64", "armv8": "aarch64",
}  # fmt: skip
RUNTIMES = (
    "apptainer", "singularity", "docker", "podman", "podman-hpc", "shifter", "sarus", "enroot", "pyxis",
    "charliecloud",
)  # fmt: skip
VENDORS = ("nvidia", "amd", "intel", "google")
_SPECIFIER = re.compile(r"(>=|<=|==|!=|~=|=|>|<)?\s*([0-9A-Za-z][\w.+!*-]{0,63})", re.ASCII)


def read_accelerator(reader: Reader, value: object, pointer: str) -> Accelerator | None:
    """Return the accelerator wish; a memory size inside a type's name becomes `min_memory_mib`."""
    members = reader.members(value, pointer, ("types", "vendor", "min_memory_mib"))
    if members is None:
        return None
    types, implied = _accelerator_types(reader, members.get("types", []), step(pointer, "types"))
    vendor = None
    if "vendor" in members:
        vendor = reader.known_word(members["vendor"], step(pointer, "vendor"), VENDORS, "unknown_vendor")
    memory = implied
    if "min_memory_mib" in members:
        memory = reader.memory(members["min_memory_mib"], step(pointer, "min_memory_mib"))
    if not members or (members.get("types") == [] and len(members) == 1):
        message = f"{pointer} says nothing: name types, vendor or min_memory_mib, or leave it out"
        reader.faults.add(pointer, "empty", message)
        return None
    return Accelerator(types=types, vendor=vendor, min_memory_mib=memory)


def _accelerator_types(reader: Reader, value: object, pointer: str) -> tuple[tuple[str, ...], int | None]:
    known = KNOWN_ACCELERATORS | {word.lower() for word in reader.accelerators}
    sizes: list[int | None] = []

    def one(item: object, at: str) -> str | None:
        text = reader.text(item, at, limit=80)
        if text is None:
            return None
        if text.lower() in known:
            sizes.append(None)
            return text.lower()
        word = read_accelerator_word(text)
        if word is None:
            message = f"{at}: accelerator {shown(text)!r} is not known; {nearest(text.lower(), known)}"
            reader.faults.add(at, "unknown_accelerator", message)
            return None
        sizes.append(word.memory_mib)
        return word.type

    types = reader.words(value, pointer, one, "accelerator types") or ()
    named = [size for size in sizes if size is not None]
    return types, min(named) if named and len(named) == len(sizes) else None


def read_container(reader: Reader, value: object, pointer: str) -> Container | None:
    """Return the container wish."""
    members = reader.members(value, pointer, ("runtime", "image"))
    if members is None:
        return None

    def one(item: object, at: str) -> str | None:
        return reader.known_word(item, at, RUNTIMES, "unknown_container_runtime")

    runtime = reader.words(members.get("runtime", []), step(pointer, "runtime"), one, "container runtimes")
    image = reader.text(members["image"], step(pointer, "image")) if "image" in members else None
    if not runtime and "image" not in members and members.get("runtime", []) == []:
        message = f"{pointer} says nothing: name a runtime or an image, or leave it out"
        reader.faults.add(pointer, "empty", message)
        return None
    return Container(runtime=runtime or (), image=image)


def read_software(reader: Reader, value: object, pointer: str) -> tuple[Software, ...] | None:
    """Return a list of packages with version specifiers; a bare version means exactly that one."""
    items = reader.items(value, pointer, "{name, version}")
    if items is None:
        return None
    found: dict[str, Software] = {}
    for at, item in items:
        members = reader.members({"name": item} if isinstance(item, str) else item, at, ("name", "version"))
        if members is None:
            continue
        if "name" not in members:
            reader.faults.add(step(at, "name"), "missing", f"{at} needs a name")
            continue
        name = reader.word(members["name"], step(at, "name"), pattern=NAME)
        version = _version(reader, members.get("version"), step(at, "version"))
        if name is not None and name.lower() in found:
            reader.faults.add(
                at, "duplicate", f"{at}: {name!r} is listed twice; join the versions by a comma"
            )
        elif name is not None:
            found[name.lower()] = Software(name=name, version=version)
    return tuple(found.values())


def _version(reader: Reader, value: object, pointer: str) -> str | None:
    if value is None:
        return None
    text = reader.text(value, pointer, limit=200)
    if text is None:
        return None
    clauses: list[str] = []
    for part in text.split(","):
        match = _SPECIFIER.fullmatch(part.strip())
        if not match:
            message = f"{pointer}: {shown(text)!r} is no version; write it like '>=1.2,<2' or '1.2.3'"
            reader.faults.add(pointer, "bad_version", message)
            return None
        operator = "==" if match[1] in {None, "="} else match[1]
        clauses.append(f"{operator}{match[2]}")
    return ",".join(clauses)


def read_data(reader: Reader, value: object, pointer: str) -> Data | None:
    """Return the data references."""
    members = reader.members(value, pointer, ("inputs", "outputs"))
    if members is None:
        return None
    sides = {
        name: _references(reader, members.get(name, []), step(pointer, name))
        for name in ("inputs", "outputs")
    }
    return Data(inputs=sides["inputs"], outputs=sides["outputs"])


def _references(reader: Reader, value: object, pointer: str) -> tuple[DataRef, ...]:
    found: dict[str, DataRef] = {}
    for at, item in reader.items(value, pointer, "data references") or []:
        members = reader.members(item, at, ("uri", "bytes", "sha256"))
        if members is None:
            continue
        if "uri" not in members:
            reader.faults.add(step(at, "uri"), "missing", f"{at} needs a uri")
            continue
        uri = _uri(reader, members["uri"], step(at, "uri"))
        size = reader.counting("bytes")(members["bytes"], step(at, "bytes")) if "bytes" in members else None
        digest = _sha256(reader, members["sha256"], step(at, "sha256")) if "sha256" in members else None
        if uri is not None and uri in found:
            reader.faults.add(at, "duplicate", f"{at}: {shown(uri)!r} is listed twice; drop one")
        elif uri is not None:
            found[uri] = DataRef(uri=uri, bytes=size, sha256=digest)
    return tuple(found.values())


def _uri(reader: Reader, value: object, pointer: str) -> str | None:
    text = reader.text(value, pointer, limit=4096)
    if text is None:
        return None
    try:
        parts = urlsplit(text)
    except ValueError:
        reader.faults.add(pointer, "bad_uri", f"{pointer}: {shown(text)!r} is no URI")
        return None
    form = "write 'globus://COLLECTION/path' or 'file:///path'"
    if parts.scheme not in {"globus", "file"}:
        reader.faults.add(
            pointer, "bad_uri_scheme", f"{pointer}: scheme {shown(parts.scheme)!r} is not known; {form}"
        )
    elif parts.query or parts.fragment or "@" in parts.netloc:
        reader.faults.add(pointer, "bad_uri", f"{pointer}: no user, query or fragment is allowed; {form}")
    elif not parts.path.startswith("/") or (parts.scheme == "globus") != bool(parts.netloc):
        reader.faults.add(pointer, "bad_uri", f"{pointer}: {shown(text)!r} is incomplete; {form}")
    elif ".." in parts.path.split("/"):
        reader.faults.add(pointer, "bad_uri", f"{pointer}: a path may not hold '..'")
    else:
        return text
    return None


def _sha256(reader: Reader, value: object, pointer: str) -> str | None:
    if isinstance(value, str) and re.fullmatch(r"[0-9a-fA-F]{64}", value):
        return value.lower()
    reader.faults.add(pointer, "bad_checksum", f"{pointer} must be 64 hexadecimal digits")
    return None


def read_runtime(reader: Reader, value: object, pointer: str) -> Runtime | None:
    """Return the runtime estimate."""
    members = reader.members(value, pointer, ("estimate_s", "at", "scaling"))
    if members is None:
        return None
    estimate = None
    if "estimate_s" in members:
        estimate = reader.duration(members["estimate_s"], step(pointer, "estimate_s"))
    at = _runtime_at(reader, members["at"], step(pointer, "at")) if "at" in members else None
    scaling = _scaling(reader, members["scaling"], step(pointer, "scaling")) if "scaling" in members else None
    if scaling is not None and scaling.serial_fraction is not None and "estimate_s" not in members:
        message = f"{pointer}: scaling.serial_fraction needs estimate_s, the runtime it scales"
        reader.faults.add(step(pointer, "estimate_s"), "missing", message)
    return Runtime(estimate_s=estimate, at=at, scaling=scaling)


def _runtime_at(reader: Reader, value: object, pointer: str) -> RuntimeAt | None:
    names = ("gpus", "cpus", "nodes")
    members = reader.members(value, pointer, names)
    if members is None:
        return None
    return RuntimeAt.model_validate(
        {k: reader.counting(k)(members[k], step(pointer, k)) for k in names if k in members}
    )


def _scaling(reader: Reader, value: object, pointer: str) -> Scaling | None:
    members = reader.members(value, pointer, ("serial_fraction", "points"))
    if members is None:
        return None
    given = [name for name in members if members[name] != []]
    if len(given) != 1:
        message = f"{pointer} needs exactly one of serial_fraction and points"
        reader.faults.add(pointer, "exactly_one", message)
        return None
    if given == ["serial_fraction"]:
        at = step(pointer, "serial_fraction")
        return Scaling(serial_fraction=reader.fraction(members["serial_fraction"], at))
    return Scaling(points=_points(reader, members["points"], step(pointer, "points")))


def _points(reader: Reader, value: object, pointer: str) -> tuple[ScalingPoint, ...]:
    found: dict[tuple[str, int], ScalingPoint] = {}
    for at, item in reader.items(value, pointer, "{gpus or cpus, runtime_s}") or []:
        members = reader.members(item, at, ("gpus", "cpus", "runtime_s"))
        sizes = [name for name in ("gpus", "cpus") if members and name in members]
        if members is None or len(sizes) != 1 or "runtime_s" not in members:
            message = f"{at} needs runtime_s and exactly one of gpus and cpus"
            reader.faults.add(at, "exactly_one", message)
            continue
        size = reader.counting(sizes[0])(members[sizes[0]], step(at, sizes[0]))
        runtime = reader.duration(members["runtime_s"], step(at, "runtime_s"))
        if size is None or runtime is None:
            continue
        if size == 0 or (sizes[0], size) in found:
            reader.faults.add(
                at, "duplicate" if size else "zero", f"{at}: {sizes[0]} must be new and above 0"
            )
            continue
        found[sizes[0], size] = ScalingPoint.model_validate({sizes[0]: size, "runtime_s": runtime})
    if len({name for name, _ in found}) > 1:
        reader.faults.add(pointer, "mixed_points", f"{pointer} must all count gpus, or all count cpus")
    return tuple(found[key] for key in sorted(found))


def read_policy(reader: Reader, value: object, pointer: str) -> Policy | None:
    """Return where the task may run."""
    names = (
        "allow_systems", "exclude_systems", "exclude_partitions", "prefer", "objective", "deadline",
        "max_charge",
    )  # fmt: skip
    members = reader.members(value, pointer, names)
    if members is None:
        return None
    systems = _systems(reader, members, pointer)
    partitions = reader.words(
        members.get("exclude_partitions", []),
        step(pointer, "exclude_partitions"),
        lambda v, at: reader.word(v, at, pattern=NAME),
        "partition names",
    )
    objective = None
    if "objective" in members:
        objective = read_objective(reader, members["objective"], step(pointer, "objective"))
    deadline = (
        _instant(reader, members["deadline"], step(pointer, "deadline")) if "deadline" in members else None
    )
    return Policy(
        allow_systems=systems.get("allow_systems") or None,
        exclude_systems=systems.get("exclude_systems") or (),
        exclude_partitions=partitions or (),
        prefer=systems.get("prefer") or (),
        objective=objective,
        deadline=deadline,
        max_charge=_charges(reader, members.get("max_charge", {}), step(pointer, "max_charge")),
    )


def _systems(
    reader: Reader, members: Mapping[str, object], pointer: str
) -> dict[str, tuple[str, ...] | None]:
    """Return the listed system names by field; an empty allow list is a fault, not "every system"."""
    if members.get("allow_systems") == []:
        at = step(pointer, "allow_systems")
        message = f"{at} is empty: no system could be chosen; leave it out to allow every one"
        reader.faults.add(at, "empty", message)
    return {
        name: reader.words(
            members[name], step(pointer, name), lambda v, at: _system(reader, v, at), "systems"
        )
        for name in ("allow_systems", "exclude_systems", "prefer")
        if name in members
    }


def read_objective(reader: Reader, value: object, pointer: str) -> str | None:
    """Return a known objective or a selection strategy's name that the caller knows."""
    return reader.known_word(value, pointer, {*OBJECTIVES, *reader.objectives}, "unknown_objective")


def _system(reader: Reader, value: object, pointer: str) -> str | None:
    if reader.systems is not None:
        return reader.known_word(value, pointer, reader.systems, "unknown_system")
    return reader.capability(value, pointer)


def _charges(reader: Reader, value: object, pointer: str) -> dict[str, Decimal]:
    if not isinstance(value, Mapping):
        reader.wrong_type(value, pointer, "an object of system: amount")
        return {}
    found: dict[str, Decimal] = {}
    for key, member in value.items():
        at = step(pointer, key)
        name, amount = _system(reader, key, at), reader.amount(member, at)
        if name is not None and amount is not None:
            found[name] = amount
    return found


def _instant(reader: Reader, value: object, pointer: str) -> datetime | None:
    if not isinstance(value, str):
        reader.wrong_type(value, pointer, "a time like '2031-05-01T12:00:00Z'")
        return None
    try:
        instant = datetime.fromisoformat(value.strip())
        aware = instant.astimezone(UTC) if instant.tzinfo else None
    except (ValueError, OverflowError):
        message = f"{pointer}: {shown(value)!r} is no ISO 8601 time like '2031-05-01T12:00:00Z'"
        reader.faults.add(pointer, "bad_time", message)
        return None
    if aware is None:
        message = f"{pointer} has no zone: end it with Z or an offset like +02:00"
        reader.faults.add(pointer, "no_zone", message)
    return aware
