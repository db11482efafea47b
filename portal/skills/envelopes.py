"""The skill that drafts an envelope from a script or from words. Nothing is submitted."""

from typing import Any

from pydantic import Field

from federation.handles import new_handle
from orchestrator.envelope.draft import MAX_ORIGINAL_CHARS, Draft, Hints
from orchestrator.envelope.types import EnvelopeInput
from orchestrator.services.budgets import book_drafting
from orchestrator.services.envelopes import draft_by_rules, keep_draft
from portal.drafting.draft import better
from portal.drafting.model import is_configured
from portal.skills.registry import Answer, Call, Scope, Skill, register
from providers.dialects.scripts.types import Note
from providers.errors import InvalidInput
from providers.types import Frozen

_MAX_CHARS = 1024 * 1024
_BY_RULES = "No model reads code_context in this installation; the draft rests on the text alone."


class DraftInput(Frozen):
    """Exactly one of `text` and `script`."""

    text: str | None = Field(None, max_length=_MAX_CHARS, description="What is needed, in plain words.")
    script: str | None = Field(None, max_length=_MAX_CHARS, description="A whole batch script.")
    dialect: str | None = Field(
        None, description="slurm, pbs, lsf, flux, sge, cobalt or oar; absent: as the script says."
    )
    code_context: str | None = Field(
        None, max_length=100_000, description="Code around the work, for a model to read."
    )


class Fault(Frozen):
    """One fault of the drafted envelope."""

    pointer: str
    code: str
    message: str


class Validation(Frozen):
    """Whether the draft is an envelope that placement takes."""

    valid: bool
    errors: list[Fault]


class DraftedEnvelope(Frozen):
    """A proposal, with where each figure comes from and what was not understood."""

    id: str | None = Field(description="Handle to submit with as `envelope_id`; null when it is not valid.")
    state: str = Field(description="drafted, or invalid.")
    source: str = Field(description="script, llm or rules.")
    confidence: float = Field(ge=0, le=1)
    rationale: dict[str, str] = Field(description="Reason per field.")
    envelope: dict[str, Any] | None = Field(description="Normalized; null when it cannot be valid.")
    said: dict[str, Any] = Field(description="Only what the text itself says.")
    dialect: str | None
    hints: Hints
    not_understood: list[Note]
    ignored: list[Note]
    conflicts: list[Note]
    refusals: list[Note] = Field(description="For these the script's own scheduler would refuse it.")
    warnings: list[Note]
    questions: list[str] = Field(description="What only the user can say.")
    validation: Validation
    drafting: dict[str, Any] | None = Field(
        None, description="What a model's help cost: calls, tokens, ms, outcome; null: none was asked."
    )


_TOLD = ("not_understood", "ignored", "conflicts", "refusals", "warnings")
_BOUND = 20


def _draft(given: DraftInput, call: Call) -> Answer:
    if (given.text is None) == (given.script is None):
        message = "Give exactly one of `text` and `script`."
        raise InvalidInput(message, problems=(("", "not_exactly_one", message),))
    rules, refusal = _by_rules(given)
    draft, use = better(
        call.caller.user,
        rules,
        text=given.text or given.script or "",
        code_context=given.code_context,
        now=call.now,
        token=call.caller.token,
    )
    if refusal is not None and draft.source != "llm":
        raise refusal
    drafting = use.as_json() if use else None
    handle = keep_draft(call.caller.user, draft, actor=call.caller.actor, now=call.now, drafting=drafting)
    if use is not None:
        # A draft that was not kept has cost as much.
        subject = handle or new_handle("env", call.now)
        book_drafting(call.caller.user, call.caller.token, subject, use.tokens, now=call.now)
    if given.code_context is not None and not is_configured():
        note = Note(line=0, text="code_context", why=_BY_RULES)
        draft = draft.model_copy(update={"warnings": (*draft.warnings, note)})
    location = f"/api/v1/envelopes/{handle}" if handle else None
    bound = None if call.options.full else _BOUND
    return Answer(_shown(handle, draft, drafting, bound=bound), location=location)


def _by_rules(given: DraftInput) -> tuple[Draft, InvalidInput | None]:
    """Return what the rules make of it; a script without directives is silence where a model may speak."""
    try:
        return draft_by_rules(text=given.text, script=given.script, dialect=given.dialect), None
    except InvalidInput as error:
        if not (is_configured() and any(code == "no_directives" for _, code, _ in error.problems)):
            raise
        silent = EnvelopeInput(original={"script": (given.script or "")[:MAX_ORIGINAL_CHARS]})
        return Draft(given=silent, envelope=None, source="rules", confidence=0.0, rationale={}), error


def _shown(
    handle: str | None, draft: Draft, drafting: dict[str, Any] | None, *, bound: int | None
) -> DraftedEnvelope:
    envelope = draft.envelope
    faults = [Fault(pointer=where, code=code, message=text) for where, code, text in draft.problems]
    notes: dict[str, Any] = {name: list(getattr(draft, name))[:bound] for name in _TOLD}
    return DraftedEnvelope(
        id=handle,
        state="drafted" if handle else "invalid",
        source=draft.source,
        confidence=draft.confidence,
        rationale=draft.rationale,
        envelope=envelope.model_dump(mode="json", exclude={"original"}) if envelope else None,
        said=draft.given.model_dump(mode="json", exclude_none=True, exclude={"original", "rationale"}),
        dialect=draft.dialect,
        hints=draft.hints,
        questions=list(draft.questions)[:bound],
        drafting=drafting,
        validation=Validation(valid=envelope is not None and not faults, errors=faults[:bound]),
        **notes,
    )


register(
    Skill(
        "draft_envelope",
        "Draft a ResourceEnvelope from a batch script or plain words, with reasons; nothing is submitted.",
        DraftInput,
        DraftedEnvelope,
        (Scope.DRAFT,),
        _draft,
        side_effects=True,
        creates=True,
    )
)
