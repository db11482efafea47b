"""The skill that looks at the federation: what is free where, for whom, and how old the figures are."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import Field

from federation import selectors
from federation.shown import Gpus, History, RecordShown, SystemShown, by_use, show_record
from portal.skills.bounds import fitting, size
from portal.skills.registry import Answer, Call, Scope, Skill, register
from providers.errors import InvalidInput
from providers.reading import nearest
from providers.types import Frozen

_HISTORY_HOURS = 6
_HISTORY_POINTS = 12
_HISTORY_SHARE = 0.35
"""How much of a short answer its history may take."""


class InspectInput(Frozen):
    """Which systems, and whether the last six hours are wanted."""

    systems: tuple[str, ...] | None = Field(None, description="Slugs; absent: all.")
    include_history: bool = False


class Summary(Frozen):
    """The federation in one look; figures of your usable systems, nodes counted once."""

    systems: int
    by_health: dict[str, int]
    gpus_by_type: dict[str, Gpus]
    cpus_free: int
    usable_records: int
    records: int


class FederationView(Frozen):
    """The Global Resource View at one instant, normalized."""

    generated_at: datetime
    summary: Summary
    systems: list[SystemShown]
    records: list[RecordShown] = Field(description="Most useful first.")
    history: list[History]
    omitted: dict[str, int] = Field(description="What was left out for length, by part.")
    next: dict[str, Any] | None = Field(description="The call that shows what was left out.")


def _inspect(given: InspectInput, call: Call) -> Answer:
    user, now = call.caller.user, call.now
    systems = [each for each in selectors.systems_shown(user, now=now) if call.caller.reaches(each.id)]
    if given.systems is not None:
        _all_known(given.systems, systems)
        systems = [system for system in systems if system.id in given.systems]
    slugs = {system.id for system in systems}
    records = by_use([show_record(r) for r in selectors.records_for(user, now=now) if r.system in slugs])
    past = (
        selectors.history(sorted(slugs), hours=_HISTORY_HOURS, points=_HISTORY_POINTS, now=now)
        if given.include_history
        else []
    )
    view = FederationView(
        generated_at=now,
        summary=_summary(systems, records),
        systems=systems,
        records=records,
        history=past,
        omitted={},
        next=None,
    )
    return Answer(view if call.options.full else _bounded(view, call.options.room))


def _all_known(wanted: Sequence[str], systems: Sequence[SystemShown]) -> None:
    known = [system.id for system in systems]
    problems = tuple(
        (f"/systems/{number}", "unknown_system", f"No system `{word}`." + nearest(word, known))
        for number, word in enumerate(wanted)
        if word not in known
    )
    if problems:
        raise InvalidInput(problems[0][2], problems=problems)


def _summary(systems: Sequence[SystemShown], records: Sequence[RecordShown]) -> Summary:
    usable = {record.system for record in records if record.usable}
    gpus: dict[str, Gpus] = {}
    health: dict[str, int] = {}
    for system in systems:
        health[system.state] = health.get(system.state, 0) + 1
        if system.id not in usable:
            continue
        for word, found in system.figures.gpus_by_type.items():
            before = gpus.get(word, Gpus(total=0, free=0))
            gpus[word] = Gpus(total=before.total + found.total, free=before.free + found.free)
    return Summary(
        systems=len(systems),
        by_health=health,
        gpus_by_type=gpus,
        cpus_free=sum(system.figures.cpus_free for system in systems if system.id in usable),
        usable_records=sum(record.usable for record in records),
        records=len(records),
    )


def _bounded(view: FederationView, most: int) -> FederationView:
    """Return a view of at most so many bytes: every system, then the records that help most."""
    if size(view) <= most:
        return view
    bare = view.model_copy(update={"records": [], "history": []})
    room = most - size(bare) - 400
    past = fitting(view.history, int(room * _HISTORY_SHARE)) if view.history else []
    room -= sum(size(each) + 1 for each in past)
    records = fitting(view.records, room)
    omitted = {
        "records": len(view.records) - len(records),
        "history": len(view.history) - len(past),
    }
    return bare.model_copy(
        update={
            "records": records,
            "history": past,
            "omitted": {part: count for part, count in omitted.items() if count},
            "next": _hint(view),
        }
    )


def _hint(view: FederationView) -> dict[str, Any]:
    if len(view.systems) > 1:
        arguments: dict[str, Any] = {"systems": [view.systems[0].id]}
        why = "one system at a time fits; or ask with ?full=1 for everything"
    else:
        arguments = {"systems": [system.id for system in view.systems]}
        why = "ask with ?full=1 for everything"
    return {"skill": "inspect_federation", "arguments": arguments, "why": why}


register(
    Skill(
        "inspect_federation",
        "The Global Resource View: what is free where, how long the queues are, what you may use and spend.",
        InspectInput,
        FederationView,
        (Scope.READ,),
        _inspect,
    )
)
