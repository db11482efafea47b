"""Drafts: an envelope proposed from a batch script or from words, with reasons, doubts and leftovers.

A draft is never authority. Its figures pass the same validation as anybody's; the partition and the
account a script names are hints beside it. Nothing is submitted here.

Confidence of a script draft: 0.95, less 0.2 per refusal, 0.15 per conflict, 0.05 per word not understood
(each kind at most 0.4), 0.1 without wall time, 0.1 per figure that had to be reckoned without its base,
0.3 when the script submits others; never under 0.05. Of a rules draft: 0.9 times the share of words that
were understood.
"""

import re
from collections.abc import Collection

from pydantic import JsonValue

from orchestrator.envelope.accelerators import device_memory_mib, read_accelerator_word
from orchestrator.envelope.grammar import read_request
from orchestrator.envelope.normalize import normalize
from orchestrator.envelope.types import Envelope, EnvelopeInput, Source
from orchestrator.envelope.validate import read_envelope_input
from providers.dialects.scripts.sniff import read_generated, read_script
from providers.dialects.scripts.types import ArrayAsk, Note, ScriptRequest, Span
from providers.errors import InvalidInput
from providers.types import Frozen

Problem = tuple[str, str, str]

MAX_ORIGINAL_CHARS = 65_536
"""Longer scripts are kept by the task, not in the envelope."""

_NETWORK_FEATURES = {
    "ib": "infiniband", "infiniband": "infiniband", "hdr": "infiniband", "ndr": "infiniband",
    "edr": "infiniband", "opa": "omnipath", "omnipath": "omnipath", "slingshot": "slingshot",
    "roce": "roce",
}  # fmt: skip
_ARCHITECTURE_FEATURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


class Hints(Frozen):
    """What a script says that the envelope has no field for: words as they stood, wishes of one site."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    constraint: str | None = None
    tasks: Span | None = None
    cpus_per_task: int | None = None
    gpus_per_node: int | None = None
    exclusive: bool = False
    memory_is_all: bool = False
    local_scratch_mib: int | None = None
    filesystems: tuple[str, ...] = ()
    array: ArrayAsk | None = None
    dependency: str | None = None
    job_name: str | None = None
    workdir: str | None = None
    output_path: str | None = None
    error_path: str | None = None
    modules: tuple[str, ...] = ()
    conda_env: str | None = None
    extra: tuple[str, ...] = ()
    """Options in the dialect's own words, to pass through to the same dialect."""


class Draft(Frozen):
    """A proposed envelope. `envelope` is None when it cannot be valid; `problems` say why."""

    given: EnvelopeInput
    """What was said; None = silent. This is what merges."""
    envelope: Envelope | None
    source: Source
    confidence: float
    rationale: dict[str, str]
    dialect: str | None = None
    hints: Hints = Hints()
    not_understood: tuple[Note, ...] = ()
    ignored: tuple[Note, ...] = ()
    conflicts: tuple[Note, ...] = ()
    refusals: tuple[Note, ...] = ()
    """For these the script's own scheduler would refuse it."""
    warnings: tuple[Note, ...] = ()
    questions: tuple[str, ...] = ()
    """What only the user can say."""
    problems: tuple[Problem, ...] = ()
    generated: tuple["Draft", ...] = ()
    """Drafts of scripts that this script writes."""


def draft_from_script(text: object, *, dialect: str | None = None) -> Draft:
    """Return a draft from a batch script's directives and body.

    Args:
        text: The script.
        dialect: slurm, pbs, lsf, flux, sge, cobalt or oar; None = as found.

    Raises:
        InvalidInput: no text, empty, binary, or without any directives.
    """
    request = read_script(text, dialect=dialect)
    draft = _draft_of(request)
    kept: dict[str, JsonValue] = {"dialect": request.dialect}
    if isinstance(text, str) and len(text) <= MAX_ORIGINAL_CHARS:
        kept["script"] = text.encode("utf-8", "replace").decode("utf-8")
    generated = tuple(_draft_of(inner) for inner in read_generated(request))
    questions = draft.questions
    if generated and request.body.is_launcher:
        questions = (*questions, "The script writes and submits other scripts: which one should run?")
    given = draft.given.model_copy(update={"original": kept})
    envelope = draft.envelope.model_copy(update={"original": kept}) if draft.envelope else None
    update = {"given": given, "envelope": envelope, "generated": generated, "questions": questions}
    return draft.model_copy(update=update)


def draft_from_text(text: object, *, known_systems: Collection[str] = ()) -> Draft:
    """Return a draft from plain words by rules; what the grammar leaves open is `not_understood`.

    Raises:
        InvalidInput: no text, or an empty one.
    """
    if not isinstance(text, str) or not text.strip():
        message = "The request is empty: say what the task needs, for example '4 A100s for 2 hours'."
        raise InvalidInput(message, problems=(("/text", "empty_text", message),))
    reading = read_request(text, systems=known_systems)
    rationale = {name: f"from the words {phrase}"[:1000] for name, phrase in reading.phrases.items()}
    words = reading.understood_words + len(reading.residue)
    confidence = round(0.9 * reading.understood_words / words, 2) if words else 0.0
    left = tuple(Note(line=0, text=word[:200], why="not part of the grammar") for word in reading.residue)
    original: dict[str, JsonValue] = {
        "text": text[:MAX_ORIGINAL_CHARS].encode("utf-8", "replace").decode("utf-8")
    }
    return _settle(dict(reading.envelope), "rules", confidence, rationale, original=original).model_copy(
        update={"not_understood": left}
    )


def draft_from_proposal(proposal: object, *, grammar: Draft, confidence: float = 0.5) -> Draft:
    """Return the grammar's draft with a model's proposal where the grammar was silent.

    The proposal is JSON in the envelope's input form and passes the same validation; where both speak
    and differ, the grammar stands and the difference is a conflict.

    Raises:
        InvalidInput: the proposal cannot be read as an envelope.
    """
    offered = read_envelope_input(proposal, pointer="/proposal")
    update: dict[str, object] = {"source": "llm"}
    rationale = dict(grammar.rationale)
    conflicts = list(grammar.conflicts)
    for name in ENVELOPE_FIELDS:
        new, old = getattr(offered, name), getattr(grammar.given, name)
        if new is not None and old is None:
            update[name] = new
            rationale[name] = offered.rationale.get(name, "proposed by the model")
        elif new is not None and new != old:
            why = "the model proposed another value; the words themselves stand"
            conflicts.append(Note(line=0, text=name, why=why))
    shared = min(confidence, grammar.confidence) if grammar.confidence else confidence
    update |= {"rationale": rationale, "confidence": shared}
    draft = _normalized(grammar.given.model_copy(update=update))
    beside = {name: getattr(grammar, name) for name in _BESIDE}
    return draft.model_copy(update={**beside, "conflicts": tuple(conflicts)})


_BESIDE = (
    "dialect", "hints", "not_understood", "ignored", "refusals", "warnings", "questions", "generated"
)  # fmt: skip
"""What the grammar found besides the figures; a proposal does not touch it."""

ENVELOPE_FIELDS = (
    "gpus", "cpus", "nodes", "memory_mib", "walltime_s", "architecture", "accelerator", "container",
    "software", "network", "filesystem", "parallel", "data", "runtime", "policy", "objective",
)  # fmt: skip
"""The fields that say what is needed; the others say how that came about."""


def _settle(
    envelope: dict[str, object],
    source: Source,
    confidence: float,
    rationale: dict[str, str],
    *,
    original: dict[str, JsonValue] | None = None,
) -> Draft:
    """Return the draft of an input-form object; faults become problems, not errors."""
    try:
        given = read_envelope_input(envelope)
    except InvalidInput as fault:
        given = EnvelopeInput(source=source, confidence=confidence, rationale=rationale, original=original)
        bare = Draft(given=given, envelope=None, source=source, confidence=confidence, rationale=rationale)
        return bare.model_copy(update={"problems": fault.problems})
    told = {"source": source, "confidence": confidence, "rationale": rationale, "original": original}
    return _normalized(given.model_copy(update=told))


def _normalized(given: EnvelopeInput) -> Draft:
    problems: tuple[Problem, ...] = ()
    envelope: Envelope | None = None
    try:
        envelope = normalize(given)
    except InvalidInput as fault:
        problems = fault.problems
    return Draft(
        given=given,
        envelope=envelope,
        source=given.source,
        confidence=given.confidence or 0.0,
        rationale=envelope.rationale if envelope else given.rationale,
        problems=problems,
    )


def _draft_of(request: ScriptRequest) -> Draft:
    envelope: dict[str, object] = {}
    rationale: dict[str, str] = {}
    for name in ("gpus", "cpus", "nodes", "memory_mib", "walltime_s"):
        span: Span | None = getattr(request, name)
        if span is not None:
            envelope[name] = {"min": span.min, "max": span.max}
            rationale[name] = _reason(request, name)
    if request.memory_is_all:
        rationale["memory_mib"] = _reason(request, "memory_is_all")
    if request.walltime_is_unlimited:
        rationale["walltime_s"] = (
            f"{_reason(request, 'walltime_is_unlimited')}: no limit asked for; a default stands in"
        )
    strange = _read_hardware(request, envelope, rationale)
    _read_container(request, envelope, rationale)
    confidence = _confidence(request, len(strange))
    draft = _settle(envelope, "script", confidence, rationale)
    return draft.model_copy(
        update={
            "dialect": request.dialect,
            "hints": _hints(request),
            "not_understood": request.not_understood + strange,
            "ignored": request.ignored,
            "conflicts": request.conflicts,
            "refusals": request.refusals,
            "warnings": request.warnings,
            "questions": tuple(f"What is {name}? Directives are not expanded." for name in request.variables),
        }
    )


def _reason(request: ScriptRequest, name: str) -> str:
    lines = request.lines.get(name, ())
    where = f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}" if lines else "the script"
    how = request.reasons.get(name)
    return f"{where}: {how}" if how else where


def _read_hardware(
    request: ScriptRequest, envelope: dict[str, object], rationale: dict[str, str]
) -> tuple[Note, ...]:
    """Fill accelerator, network and architecture; return the GPU types that are not known."""
    strange: list[Note] = []
    types: dict[str, int | None] = {}
    for word in request.gpu_types:
        found = read_accelerator_word(word)
        if found is None:
            line = (request.lines.get("gpu_types") or (0,))[0]
            sliced = re.search(r"[0-9]g\.[0-9]+gb", word.lower())
            what = "a slice of a GPU: a whole GPU of any" if sliced else "GPU type is not known: any"
            strange.append(Note(line=line, text=word, why=f"{what} type is taken"))
        else:
            types[found.type] = found.memory_mib or device_memory_mib(found.type)
    if types:
        rationale["accelerator"] = _reason(request, "gpu_types")
    features = (*request.constraint.all_of, *request.constraint.any_of) if request.constraint else ()
    for feature in features:
        _read_feature(request, feature, envelope, rationale, types)
    if types and not strange:
        wish: dict[str, object] = {"types": list(types)}
        sizes = [size for size in types.values() if size is not None]
        if len(sizes) == len(types):
            wish["min_memory_mib"] = min(sizes)
        envelope["accelerator"] = wish
    return tuple(strange)


def _read_feature(
    request: ScriptRequest,
    feature: str,
    envelope: dict[str, object],
    rationale: dict[str, str],
    types: dict[str, int | None],
) -> None:
    where = f"{_reason(request, 'constraint')}: a hint from feature {feature!r}"
    word = read_accelerator_word(feature)
    must = request.constraint is not None and feature in request.constraint.all_of
    if word is not None and request.gpus is not None and request.gpus.max > 0 and not request.gpu_types:
        types[word.type] = word.memory_mib
        rationale["accelerator"] = where
    elif must and feature.lower() in _NETWORK_FEATURES:
        envelope["network"] = [_NETWORK_FEATURES[feature.lower()]]
        rationale["network"] = where
    elif must and feature.lower() in _ARCHITECTURE_FEATURES:
        envelope["architecture"] = [_ARCHITECTURE_FEATURES[feature.lower()]]
        rationale["architecture"] = where


def _read_container(request: ScriptRequest, envelope: dict[str, object], rationale: dict[str, str]) -> None:
    body = request.body
    if body.container_runtime is None:
        return
    runtimes = (
        ["singularity", "apptainer"] if body.container_runtime == "singularity" else [body.container_runtime]
    )
    wish: dict[str, object] = {"runtime": runtimes}
    if body.container_image:
        wish["image"] = body.container_image
    envelope["container"] = wish
    line = body.lines.get("container_runtime", (0,))[0]
    rationale["container"] = f"line {line}: the body runs {body.container_runtime}"


def _hints(request: ScriptRequest) -> Hints:
    names = set(Hints.model_fields) & set(ScriptRequest.model_fields) - {"constraint"}
    shared = {name: getattr(request, name) for name in names}
    return Hints(
        **shared,
        constraint=request.constraint.text if request.constraint else None,
        modules=request.body.modules,
        conda_env=request.body.conda_env,
    )


def _confidence(request: ScriptRequest, strange: int) -> float:
    refused = min(0.4, 0.2 * len(request.refusals))
    conflicting = min(0.4, 0.15 * len(request.conflicts))
    unknown = min(0.4, 0.05 * (len(request.not_understood) + strange))
    baseless = 0.1 * sum("reckoned for one" in reason for reason in request.reasons.values())
    silent = 0.1 if request.walltime_s is None else 0.0
    launcher = 0.3 if request.body.is_launcher else 0.0
    return max(0.05, round(0.95 - refused - conflicting - unknown - baseless - silent - launcher, 2))
