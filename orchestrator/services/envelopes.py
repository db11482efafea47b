"""From what a caller said to the envelope a task is placed by, with the draft it rests on."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from federation.handles import new_handle
from federation.ledger import Happening, record
from federation.models import System
from orchestrator.envelope.draft import Draft, draft_from_script, draft_from_text
from orchestrator.envelope.merge import Conflict, merge_script
from orchestrator.envelope.types import Envelope as EnvelopeValue
from orchestrator.envelope.types import EnvelopeInput
from orchestrator.envelope.validate import read_envelope_input
from orchestrator.models import Envelope
from orchestrator.staging import checked, merged
from orchestrator.task_input import TaskInput
from providers.errors import InvalidInput, NotAuthorized, NotFound


@dataclass(frozen=True, slots=True)
class Understood:
    """The normalized envelope, and what the script said beside it."""

    envelope: EnvelopeValue
    draft: Draft | None = None
    conflicts: tuple[Conflict, ...] = ()

    def report(self) -> dict[str, Any]:
        """Return what the caller should know of the reading, as JSON."""
        draft = self.draft
        return {
            "conflicts": [
                {"field": c.field, "envelope": c.envelope, "script": c.script} for c in self.conflicts
            ],
            "not_understood": [note.model_dump() for note in draft.not_understood] if draft else [],
            "warnings": [note.model_dump() for note in (*draft.warnings, *draft.conflicts)] if draft else [],
            "defaults": dict(self.envelope.rationale),
        }


def within(
    envelope: EnvelopeValue, systems: Collection[str] | None, *, pointer: str = "/envelope"
) -> EnvelopeValue:
    """Return an envelope whose policy allows no system but these; None = any. It stays so in every retry.

    Raises:
        NotAuthorized: the policy itself allows none of them.
    """
    if systems is None:
        return envelope
    asked = envelope.policy.allow_systems
    both = tuple(sorted(systems if asked is None else set(asked) & set(systems)))
    if not both:
        theirs = ", ".join(sorted(systems))
        raise NotAuthorized(
            f"The policy allows {', '.join(asked or ())}; the token may use {theirs} only.",
            remediation=f"Change {pointer}/policy/allow_systems, or use a token of other systems.",
            pointer=f"{pointer}/policy/allow_systems",
        )
    policy = envelope.policy.model_copy(update={"allow_systems": both})
    return envelope.model_copy(update={"policy": policy})


def understand(
    task: TaskInput, *, user_id: int, pointer: str = "", systems: Collection[str] | None = None
) -> Understood:
    """Return the envelope of a task input, bound to `systems` where those are all its caller may use.

    Raises:
        InvalidInput: with every fault by pointer.
        NotFound: `envelope_id` names no envelope of this user.
        NotAuthorized: it allows none of the systems its caller may use.
    """
    if task.envelope_id is not None:
        row = Envelope.objects.filter(handle=task.envelope_id, user_id=user_id).first()
        if row is None:
            raise NotFound(f"No envelope {task.envelope_id}.", pointer=f"{pointer}/envelope_id")
        given = read_envelope_input(row.body, pointer=f"{pointer}/envelope_id")
    else:
        given = read_envelope_input(task.envelope or {}, pointer=f"{pointer}/envelope")
    draft = _draft(task, pointer)
    envelope, conflicts = merge_script(given, draft or _silent())
    checked(envelope.data, pointer=f"{pointer}/envelope/data")
    _signal_comes_later(task, envelope, pointer=pointer)
    data = merged(envelope.data, task.inputs, task.outputs)
    bound = within(envelope, systems, pointer=f"{pointer}/envelope").model_copy(update={"data": data})
    return Understood(bound, draft, conflicts if draft else ())


def _signal_comes_later(task: TaskInput, envelope: EnvelopeValue, *, pointer: str) -> None:
    """Refuse a checkpoint signal that would come as soon as the work starts, and end it."""
    checkpoint, walltime_s = task.checkpoint, envelope.walltime_s.min
    if checkpoint is None or checkpoint.before_s < walltime_s:
        return
    message = (
        f"The signal would come {checkpoint.before_s} s before the end of a wall time of {walltime_s} s: "
        "at once. Lower before_s, or ask for more wall time."
    )
    where = f"{pointer}/checkpoint/before_s"
    raise InvalidInput(message, problems=((where, "over_walltime", message),))


def _silent() -> Draft:
    return Draft(given=EnvelopeInput(), envelope=None, source="user", confidence=1.0, rationale={})


def _draft(task: TaskInput, pointer: str) -> Draft | None:
    """Return what the script's directives say; None for a command, or a script without any."""
    if task.script is None:
        return None
    try:
        return draft_from_script(task.script, dialect=task.dialect)
    except InvalidInput as error:
        if any(code == "no_directives" for _, code, _ in error.problems):
            return None
        raise InvalidInput(
            error.message,
            problems=tuple((pointer + where, code, text) for where, code, text in error.problems),
            remediation=error.remediation,
        ) from None


def keep_envelope(
    value: EnvelopeValue, *, user_id: int, now: datetime, drafting: Mapping[str, Any] | None = None
) -> Envelope:
    """Store an envelope, original and normalized, and what a model's help with it cost."""
    return Envelope.objects.create(
        handle=new_handle("env", now),
        user_id=user_id,
        source=value.source,
        body=value.model_dump(mode="json", exclude={"original"}),
        original=value.original,
        confidence=value.confidence,
        rationale=value.rationale,
        drafting=dict(drafting) if drafting is not None else None,
        created_at=now,
    )


def draft_by_rules(*, text: str | None, script: str | None, dialect: str | None) -> Draft:
    """Return a draft from a script or from words; nothing is kept.

    Raises:
        InvalidInput: there is nothing to draft from, or a script without directives.
    """
    if script is not None:
        return draft_from_script(script, dialect=dialect)
    systems = System.objects.values_list("slug", flat=True)
    return draft_from_text(text, known_systems=list(systems))


@transaction.atomic
def keep_draft(
    user: AbstractBaseUser,
    draft: Draft,
    *,
    actor: str,
    now: datetime,
    drafting: Mapping[str, Any] | None = None,
) -> str | None:
    """Keep a draft and return its handle; None where it is not valid, which is not kept."""
    if draft.envelope is None:
        return None
    row = keep_envelope(draft.envelope, user_id=user.pk, now=now, drafting=drafting)
    event = Happening(
        type="envelope.drafted",
        subject=row.handle,
        user_id=user.pk,
        actor=actor,
        state="drafted",
        summary=f"An envelope was drafted by {draft.source}, confidence {draft.confidence:.2f}",
        data={"envelope": row.handle, "source": draft.source, "confidence": draft.confidence},
    )
    record([event], now=now)
    return row.handle
