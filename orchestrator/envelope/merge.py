"""An envelope and a script together: the script fills what the envelope leaves unsaid."""

from typing import NamedTuple

from pydantic import BaseModel

from orchestrator.envelope.draft import ENVELOPE_FIELDS, Draft
from orchestrator.envelope.normalize import normalize
from orchestrator.envelope.types import Envelope, EnvelopeInput
from providers.errors import InvalidInput


class Conflict(NamedTuple):
    """A field on which envelope and script differ; the envelope's value stands."""

    field: str
    envelope: object
    script: object


def merge_script(given: EnvelopeInput | None, draft: Draft) -> tuple[Envelope, tuple[Conflict, ...]]:
    """Return the normalized envelope and the conflicts between it and the script.

    Args:
        given: What the caller's envelope says; None = no envelope at all.
        draft: What the script says.

    Raises:
        InvalidInput: the two together cannot be true, or the script's own figures cannot.
    """
    if given is None:
        _raise_problems(draft)
        return normalize(draft.given, pointer="/script"), ()
    merged, conflicts = given, []
    normalize(given)
    reasons: dict[str, str] = {}
    for name in ENVELOPE_FIELDS:
        said, scripted = getattr(given, name), getattr(draft.given, name)
        if scripted is None or said == scripted:
            continue
        filled = merged.model_copy(update={name: scripted})
        if said is None and _is_possible(filled):
            merged = filled
            reasons[name] = f"from the script, {draft.given.rationale.get(name, 'which names it')}"
        else:
            conflicts.append(Conflict(name, _plain(said), _plain(scripted)))
            reasons[name] = "the envelope stands; the script says otherwise"
    rationale = {**reasons, **given.rationale}
    return normalize(merged.model_copy(update={"rationale": rationale})), tuple(conflicts)


def _raise_problems(draft: Draft) -> None:
    if draft.problems and draft.envelope is None:
        message = f"The script's own figures cannot be: {draft.problems[0][2]}"
        raise InvalidInput(message, problems=draft.problems)


def _is_possible(given: EnvelopeInput) -> bool:
    """Return whether what is said can be true together (a script's field may contradict another one)."""
    try:
        normalize(given)
    except InvalidInput:
        return False
    return True


def _plain(value: object) -> object:
    """Return a value as JSON shows it."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value
