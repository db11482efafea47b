"""What was understood of a submission: the draft, faults by field, the form's own values. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.forms import BaseForm
from django.utils.translation import gettext as _

from orchestrator.envelope.draft import Draft as EnvelopeDraft
from portal.models import TaskTemplate
from portal.skills.envelopes import DraftedEnvelope
from portal.web.forms import RANGES, WIRE, command_line, field_of
from portal.web.presenters.from_envelope import flat, readable
from portal.web.presenters.submission import Draft, DraftLine, Problem, TemplateRow

FIELD_WORDS: Mapping[str, str] = {
    "gpus": "GPUs",
    "cpus": "CPUs",
    "nodes": "Nodes",
    "memory_mib": "Memory",
    "walltime_s": "Wall time",
    "accelerator.types": "GPU types",
    "accelerator.min_memory_mib": "Memory per GPU",
    "architecture": "Processor",
    "container.image": "Container",
}


def draft_view(
    draft: EnvelopeDraft | None, conflicts: Iterable[tuple[str, object, object]] = ()
) -> Draft | None:
    """Return what a script said, for reading; None where there was no script or it said nothing."""
    if draft is None:
        return None
    said = flat(draft.given.model_dump(mode="json", exclude_none=True))
    lines = tuple(
        DraftLine(
            FIELD_WORDS.get(name, name),
            readable(name, value),
            draft.rationale.get(name) or draft.rationale.get(name.partition(".")[0], ""),
        )
        for name, value in said.items()
        if value not in ([], {}, None)
    )
    return Draft(
        dialect=draft.dialect or "",
        confidence=draft.confidence,
        lines=lines,
        unread=tuple((note.text, note.why) for note in draft.not_understood),
        conflicts=tuple(f"{note.text}: {note.why}" for note in (*draft.conflicts, *draft.warnings))
        + tuple(
            f"{FIELD_WORDS.get(field, field)}: the form says {_short(field, form)}, "
            f"the script {_short(field, script)}; the form counts."
            for field, form, script in conflicts
        ),
    )


def drafted_view(drafted: DraftedEnvelope) -> Draft:
    """Return what plain words said, for reading: the fields with their reasons, and what is still open."""
    lines = tuple(
        DraftLine(
            FIELD_WORDS.get(name, name),
            readable(name, value),
            drafted.rationale.get(name) or drafted.rationale.get(name.partition(".")[0], ""),
        )
        for name, value in flat(drafted.said).items()
        if value not in ([], {}, None)
    )
    notes = tuple(f"{note.text}: {note.why}" for note in (*drafted.conflicts, *drafted.warnings))
    return Draft(
        dialect=drafted.source,
        confidence=drafted.confidence,
        lines=lines,
        unread=tuple((note.text, note.why) for note in drafted.not_understood),
        conflicts=notes + tuple(drafted.questions),
        from_words=True,
    )


def template_rows(
    found: Iterable[TaskTemplate], user_id: int | None, *, most: int = 200
) -> tuple[TemplateRow, ...]:
    """Return templates as rows; `user_id` is who looks."""
    return tuple(_template_row(row, user_id) for row in list(found)[:most])


def _template_row(row: TaskTemplate, user_id: int | None) -> TemplateRow:
    shared = {
        TaskTemplate.PRIVATE: "",
        TaskTemplate.PROJECT: _("project %(project)s") % {"project": row.project},
        TaskTemplate.EVERYONE: _("everyone"),
    }[row.sharing]
    work = row.body.get("script") or command_line(row.body.get("command") or "")
    return TemplateRow(
        handle=row.handle,
        name=row.name,
        owner=row.user.get_username(),
        is_own=row.user_id == user_id,
        shared=shared,
        what=_first_line(work),
        updated_at=row.updated_at,
    )


def _first_line(work: str) -> str:
    lines = [line.strip() for line in work.splitlines() if line.strip() and not line.startswith("#")]
    return lines[0][:120] if lines else ""


def _short(field: str, value: object) -> str:
    plain = value.model_dump(mode="json") if hasattr(value, "model_dump") else value
    return readable(field, plain) or "nothing"


def problems_by_field(
    form: BaseForm, problems: Iterable[tuple[str, str, str]], message: str
) -> tuple[Problem, ...]:
    """Return faults with the labels of their fields; the message alone where no fault is listed."""
    found = []
    for pointer, _code, sentence in problems:
        name = field_of(pointer)
        label = str(form.fields[name].label) if name else ""
        found.append(Problem(name or "", label, sentence if name else f"{pointer or '/'}: {sentence}"))
    return tuple(found) or (Problem("", "", message),)


def form_problems(form: BaseForm) -> tuple[Problem, ...]:
    """Return the form's own faults in the order of its fields."""
    return tuple(
        Problem(name, str(form.fields[name].label), str(error))
        for name, errors in form.errors.items()
        if name in form.fields
        for error in errors
    )


def form_values(spec: Mapping[str, Any], envelope: Mapping[str, Any]) -> dict[str, Any]:
    """Return the form's initial values for a task's spec and its envelope as said (not as filled)."""
    environment = spec.get("environment") or {}
    policy, accelerator = envelope.get("policy") or {}, envelope.get("accelerator") or {}
    container, runtime = envelope.get("container") or {}, envelope.get("runtime") or {}
    values = {
        "name": spec.get("name") or "",
        "work": "script" if spec.get("script") else "command",
        "command": command_line(spec.get("command") or ""),
        "script": spec.get("script") or "",
        "workdir": spec.get("workdir") or "",
        "max_attempts": (spec.get("retry") or {}).get("max_attempts", ""),
        "modules": " ".join(environment.get("modules") or ()),
        "conda": environment.get("conda") or "",
        "variables": "\n".join(f"{k}={v}" for k, v in (environment.get("variables") or {}).items()),
        "setup": "\n".join(environment.get("setup") or ()),
        "accelerator_types": ", ".join(accelerator.get("types") or ()),
        "accelerator_memory": _memory(accelerator.get("min_memory_mib")),
        "architecture": next(iter(envelope.get("architecture") or ()), ""),
        "objective": envelope.get("objective") or "",
        "container_runtime": ", ".join(container.get("runtime") or ()),
        "container_image": container.get("image") or "",
        "software": ", ".join(_software(item) for item in envelope.get("software") or ()),
        "allow_systems": ", ".join(policy.get("allow_systems") or ()),
        "exclude_systems": ", ".join(policy.get("exclude_systems") or ()),
        "runtime": _clock(runtime.get("estimate_s")),
        **_lasting(spec.get("checkpoint") or {}, spec.get("hedge") or {}),
    }
    for name in RANGES:
        low, high = _ends(envelope.get(WIRE.get(name, name)))
        spell = _SPELL.get(name, str)
        values[f"{name}_min"] = "" if low is None else spell(low)
        values[f"{name}_max"] = "" if high is None or high == low else spell(high)
    return {name: value for name, value in values.items() if value != ""}


def _lasting(checkpoint: Mapping[str, Any], hedge: Mapping[str, Any]) -> dict[str, Any]:
    """Return checkpoint and hedge as the form takes them; what a task leaves to the defaults stays so."""
    asked = bool(hedge.get("enabled"))
    return {
        "checkpoint_signal": checkpoint.get("signal", "USR1") if checkpoint else "",
        "checkpoint_before": _clock(checkpoint.get("before_s")),
        "checkpoint_resume": command_line(checkpoint.get("resume") or ""),
        "hedge": "on" if asked else "",
        "hedge_wait": _clock(hedge.get("min_wait_s")) if asked else "",
    }


def _ends(value: Any) -> tuple[Any, Any]:
    if isinstance(value, Mapping):
        return value.get("min"), value.get("max")
    return value, value


def _memory(mib: Any) -> str:
    """Return MiB as the form takes it ("64G"); words of the user's own stay as they are."""
    if not isinstance(mib, int):
        return str(mib or "")
    return f"{mib // 1024}G" if mib and mib % 1024 == 0 else f"{mib}MiB"


def _clock(seconds: Any) -> str:
    """Return seconds as the form takes them ("1:30:00"); words of the user's own stay as they are."""
    if not isinstance(seconds, int):
        return str(seconds or "")
    hours, rest = divmod(seconds, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"


_SPELL = {"memory": _memory, "walltime": _clock}


def _software(item: Mapping[str, Any]) -> str:
    return f"{item['name']}{item.get('version') or ''}"
