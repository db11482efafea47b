"""A task submitted again: what the form now says otherwise, and what it cannot say and keeps. Pure."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from django.forms import BaseForm
from django.utils.translation import gettext as _

from orchestrator.envelope.spellings import duration_s, memory_mib
from orchestrator.task_input import TaskInput
from portal.web.forms import NOT_IN_ADDRESS, RANGES
from portal.web.presenters.from_envelope import flat, plain
from portal.web.presenters.from_submission import form_values
from portal.web.presenters.submission import Change, DiffLine, Earlier
from providers.dialects.scripts.quantities import Misspelled

SAID_OF_TASK = frozenset(
    {
        *("name", "command", "script", "workdir", "checkpoint", "hedge", "retry.max_attempts"),
        *("environment.modules", "environment.conda", "environment.variables", "environment.setup"),
        # of one submission, or kept apart from the spec
        *("envelope", "envelope_id", "client_ref", "group", "like"),
    }
)
SAID_OF_ENVELOPE = frozenset(
    {
        *("gpus", "cpus", "nodes", "memory_mib", "walltime_s", "architecture", "objective", "software"),
        *("accelerator.types", "accelerator.min_memory_mib", "container.runtime", "container.image"),
        *("policy.allow_systems", "policy.exclude_systems", "runtime.estimate_s", "runtime.at"),
        *("source", "confidence", "rationale", "original"),
    }
)
"""What the form asks for, by dotted name; all else of an earlier task goes over as it was."""
LINES = frozenset({"script", "setup", "variables"})
SPELT: Mapping[str, Callable[[str], int]] = {
    **dict.fromkeys(("memory_min", "memory_max", "accelerator_memory"), memory_mib),
    **dict.fromkeys(
        ("walltime_min", "walltime_max", "runtime", "checkpoint_before", "hedge_wait"), duration_s
    ),
}
MOST_LINES = 400


@dataclass(frozen=True, slots=True)
class Origin:
    """The task or template that a form was filled from."""

    handle: str
    name: str
    spec: Mapping[str, Any]
    envelope: Mapping[str, Any]
    is_template: bool = False


def kept(origin: Origin) -> dict[str, Any]:
    """Return what the form has no field for, as a task input takes it."""
    task = _without(origin.spec, SAID_OF_TASK)
    if not origin.spec.get("script"):
        task.pop("dialect", None)
    envelope = _without(origin.envelope, SAID_OF_ENVELOPE)
    return task | ({"envelope": envelope} if envelope else {})


def again(origin: Origin, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task input of a form with what its origin said beyond the form."""
    merged = _merged(kept(origin), said)
    envelope = merged.get("envelope") or {}
    both = origin.envelope.get("architecture") or []
    if isinstance(both, list | tuple) and len(both) > 1 and envelope.get("architecture") == [both[0]]:
        envelope["architecture"] = list(both)  # the form shows only the first
    if envelope.get("objective") and "policy" in envelope:
        envelope["policy"].pop("objective", None)
    return merged


def earlier(origin: Origin, form: BaseForm) -> Earlier:
    """Return what the form says otherwise than its origin."""
    old = {name: str(value) for name, value in form_values(origin.spec, origin.envelope).items()}
    new = {name: str(form[name].value() or "") for name in form.fields if name not in NOT_IN_ADDRESS}
    work = str(form["work"].value() or "command")
    new["script" if work == "command" else "command"] = ""
    return Earlier(
        handle=origin.handle,
        name=origin.name,
        is_template=origin.is_template,
        changes=tuple(_changes(form, old, new)),
        script=_lines(old.get("script", ""), new.get("script", "")),
        kept=tuple(_told(kept(origin))),
    )


def _changes(form: BaseForm, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    for name in form.fields:
        base, _sign, end = name.rpartition("_")
        if name in NOT_IN_ADDRESS or name == "script" or (end == "max" and base in RANGES):
            continue
        names = (name, f"{base}_max") if end == "min" and base in RANGES else (name,)
        if all(_same(each, old.get(each, ""), new.get(each, "")) for each in names):
            continue
        label = str(form.fields[name].label)
        was, now = (" … ".join(filter(None, (of.get(each, "") for each in names))) for of in (old, new))
        yield Change(name, label, was.strip(), now.strip(), of_lines=name in LINES)


def _same(name: str, old: str, new: str) -> bool:
    """Return whether two spellings mean the same: 64G and 65536 MiB, 1:00:00 and 1h."""
    if name in LINES or name in {"command", "checkpoint_resume"}:
        return _unix(old).strip() == _unix(new).strip()
    spell = SPELT.get(name)
    if spell and old and new:
        try:
            return spell(old.strip()) == spell(new.strip())
        except Misspelled:
            pass
    return re.split(r"[,\s]+", old.strip()) == re.split(r"[,\s]+", new.strip())


def _lines(old: str, new: str) -> tuple[DiffLine, ...]:
    """Return the lines in which two scripts differ, two lines around each; empty = in none."""
    if not (old and new):
        return ()
    found = unified_diff(_unix(old).splitlines(), _unix(new).splitlines(), lineterm="", n=2)
    kinds = {"+": "added", "-": "removed", "@": "place"}
    lines = (DiffLine(kinds.get(line[:1], "same"), line) for line in list(found)[2:])
    return tuple(lines)[:MOST_LINES]


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")


def _told(carried: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return what is kept and differs from what a silent task has, by dotted name."""
    silent = flat(TaskInput(command="true").model_dump(mode="json"))
    for name, value in flat(carried).items():
        if value in (None, "", [], {}, ()) or silent.get(name) == value:
            continue
        yield name, plain(value) if not isinstance(value, bool) else _("yes") if value else _("no")


def _without(given: Mapping[str, Any], said: frozenset[str], prefix: str = "") -> dict[str, Any]:
    left: dict[str, Any] = {}
    for key, value in given.items():
        name = f"{prefix}{key}"
        if name in said or value is None:
            continue
        if isinstance(value, Mapping) and any(each.startswith(f"{name}.") for each in said):
            if inner := _without(value, said, f"{name}."):
                left[key] = inner
            continue
        left[key] = value
    return left


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        mine = merged.get(key)
        both = isinstance(mine, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(mine, value) if both and isinstance(mine, Mapping) else value
    return merged
