"""From a group's rows to its line in the list and its whole page. Asks the database for nothing."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from orchestrator.lifecycle import GROUP_MOVES, GroupState, is_terminal
from portal.web.presenters.from_result import booked, manifest_view
from portal.web.presenters.from_task import attempt_facts, headline, ref_of
from portal.web.presenters.groups import (
    ChildLane,
    ChildResult,
    ChildSpan,
    GroupPage,
    GroupRow,
    RoundView,
    Share,
    SystemStanding,
)
from portal.web.presenters.shared import (
    TASK_STATES,
    TERMINAL_ATTEMPT_STATES,
    TERMINAL_TASK_STATES,
    SystemRef,
    said,
)
from portal.web.presenters.tasks import EventRow
from portal.web.presenters.timeline import AttemptFacts, Frame, actual_span, frame_of, predicted_span

if TYPE_CHECKING:
    from orchestrator.models import Attempt, Group, Task

Refs = Mapping[str, SystemRef]
LANES = 100
"""Children drawn; the list of tasks has them all."""
WAITING = frozenset({"planned", "dispatching", "submitted", "pending", "unknown"})


@dataclass(frozen=True, slots=True)
class GroupRows:
    """All rows of one group, as selectors return them; children in the order they were given."""

    group: "Group"
    tasks: Sequence["Task"]
    attempts: Sequence["Attempt"]
    """In order of their numbers."""


def shares(states: Iterable[str]) -> tuple[Share, ...]:
    """Return how many stand in each state: what ended well first, what has not begun last."""
    counts = Counter(states)
    total = sum(counts.values()) or 1
    order = ("succeeded", "failed", "cancelled", "running", "pending", "submitted")
    names = [*order, *(state for state in TASK_STATES if state not in order)]
    return tuple(
        Share(state, said(state, "task"), counts[state], round(100 * counts[state] / total, 2))
        for state in names
        if counts[state]
    )


def group_row(group: "Group", tasks: Sequence["Task"], refs: Refs) -> GroupRow:
    """Return one line of the list; each task's attempt and its system must have been loaded."""
    slugs = sorted({task.attempt.system.slug for task in tasks if task.attempt})
    return GroupRow(
        handle=group.handle,
        name=group.name,
        state=group.state,
        total=len(tasks),
        shares=shares(task.state for task in tasks),
        systems=tuple(ref_of(slug, refs) for slug in slugs),
        rounds=len({task.group_round for task in tasks}),
        completed_rounds=len(group.completed_rounds),
        created_at=group.created_at,
        finished_at=group.finished_at,
        hint=group_headline(group, tasks),
    )


def group_headline(group: "Group", tasks: Sequence["Task"]) -> str:
    """Return how the group stands, in one sentence."""
    counts = Counter(task.state for task in tasks)
    ended = sum(counts[state] for state in TERMINAL_TASK_STATES)
    total = len(tasks)
    if is_terminal(GROUP_MOVES, GroupState(group.state)):
        return _counted(counts, total)
    if group.cancel_requested_at is not None:
        left = total - ended
        return ngettext(
            "Cancelling: %(n)s child has not ended yet.",
            "Cancelling: %(n)s children have not ended yet.",
            left,
        ) % {"n": left}
    rounds = sorted({task.group_round for task in tasks})
    open_round = next((number for number in rounds if number not in group.completed_rounds), None)
    told = _("%(ended)s of %(total)s ended, %(running)s running") % {
        "ended": ended,
        "total": total,
        "running": counts["running"],
    }
    return told + (_("; round %(n)s is open.") % {"n": open_round} if open_round else ".")


def _counted(counts: Counter[str], total: int) -> str:
    words = {"succeeded": _("succeeded"), "failed": _("failed"), "cancelled": _("cancelled")}
    parts = [f"{counts[state]} {word}" for state, word in words.items() if counts[state]]
    return _("%(what)s of %(total)s.") % {"what": ", ".join(parts), "total": total}


def group_page(rows: GroupRows, refs: Refs, *, story: tuple[EventRow, ...], now: datetime) -> GroupPage:
    """Return the whole page of one group."""
    group, tasks = rows.group, rows.tasks
    drawn = tasks[:LANES]
    tried = _tried(rows, {task.pk for task in drawn}, refs)
    every = [facts for several in tried.values() for facts in several]
    frame = frame_of(every, now=now, expects_of_ended=False)
    is_final = is_terminal(GROUP_MOVES, GroupState(group.state))
    cancelling = group.cancel_requested_at is not None
    results = tuple(_result(task, refs) for task in tasks if getattr(task, "manifest", None))
    return GroupPage(
        handle=group.handle,
        name=group.name,
        objective=group.objective,
        state=group.state,
        headline=group_headline(group, tasks),
        diversity=_diversity(group.spec.get("diversity", "none")),
        require=_require(group.spec.get("require", "all")),
        created_at=group.created_at,
        finished_at=group.finished_at,
        total=len(tasks),
        shares=shares(task.state for task in tasks),
        frame=frame,
        rounds=_round_views(group, drawn, tried, frame, refs, now=now),
        hidden=len(tasks) - len(drawn),
        systems=_systems(rows, refs),
        results=results,
        files=sum(each.files for each in results),
        bytes=sum(each.bytes for each in results),
        story=story,
        is_cancelling=cancelling and not is_final,
        may_cancel=not is_final and not cancelling,
        is_final=is_final,
    )


def _diversity(word: str) -> str:
    return {
        "none": _("each where it ends first"),
        "soft": _("on different systems, while that pays"),
        "hard": _("on different systems, always"),
    }.get(word, word)


def _require(word: object) -> str:
    if word == "all":
        return _("every child of a round")
    if word == "any":
        return _("one child of a round")
    return _("%(n)s children of a round") % {"n": word}


def _tried(rows: GroupRows, wanted: set[int], refs: Refs) -> dict[int, list[AttemptFacts]]:
    found: dict[int, list[AttemptFacts]] = {}
    for attempt in rows.attempts:
        if attempt.task_id in wanted:
            found.setdefault(attempt.task_id, []).append(attempt_facts(attempt, refs))
    return found


def _round_views(
    group: "Group",
    tasks: Sequence["Task"],
    tried: Mapping[int, Sequence[AttemptFacts]],
    frame: Frame | None,
    refs: Refs,
    *,
    now: datetime,
) -> tuple[RoundView, ...]:
    views = []
    is_open = True
    for number in sorted({task.group_round for task in tasks}):
        children = [task for task in tasks if task.group_round == number]
        done = number in group.completed_rounds
        standing = "done" if done else "open" if is_open else "waiting"
        is_open = done
        lanes = tuple(child_lane(task, tried.get(task.pk, ()), frame, refs, now=now) for task in children)
        ended = sum(task.state in TERMINAL_TASK_STATES for task in children)
        views.append(RoundView(number, standing, ended, len(children), lanes))
    return tuple(views)


def child_lane(
    task: "Task", tried: Sequence[AttemptFacts], frame: Frame | None, refs: Refs, *, now: datetime
) -> ChildLane:
    """Return one task on a time axis that several share: every attempt, and what is expected of the last."""
    spans, expected = [], None
    for facts in tried:
        span = actual_span(facts, frame, names_system=True) if frame else None
        if span is not None:
            spans.append(ChildSpan(facts.ref, span))
    if frame and tried and tried[-1].state not in TERMINAL_ATTEMPT_STATES:
        span = predicted_span(tried[-1], frame)
        expected = ChildSpan(tried[-1].ref, span) if span else None
    last = tried[-1] if tried else None
    return ChildLane(
        handle=task.handle,
        name=task.name,
        state=task.state,
        where=f"{last.ref.name} · {last.partition}" if last else "",
        hint=_waits_for(task) if not tried else headline(task, task.attempt, refs, now=now),
        expected=expected,
        spans=tuple(spans),
    )


def _waits_for(task: "Task") -> str:
    if task.state != "accepted":
        return task.reason
    if task.group_after:
        return _("after %(names)s") % {"names": ", ".join(task.group_after)}
    return _("begins with round %(n)s") % {"n": task.group_round}


def _systems(rows: GroupRows, refs: Refs) -> tuple[SystemStanding, ...]:
    standings = []
    for slug in sorted({attempt.system.slug for attempt in rows.attempts}):
        here = [attempt for attempt in rows.attempts if attempt.system.slug == slug]
        accepted = [a for a in here if a.state != "superseded"]
        asked = [a for a in here if a.cancel_requested_at is not None]
        standings.append(
            SystemStanding(
                ref=ref_of(slug, refs),
                children=len({a.task_id for a in accepted}),
                waiting=sum(a.state in WAITING for a in accepted),
                running=sum(a.state == "running" for a in accepted),
                ended=sum(a.state in TERMINAL_ATTEMPT_STATES for a in accepted),
                asked=len(asked),
                confirmed=sum(a.state in TERMINAL_ATTEMPT_STATES for a in asked),
                charged=booked(here),
            )
        )
    return tuple(standings)


def _result(task: "Task", refs: Refs) -> ChildResult:
    view = manifest_view(task.manifest)
    assert view is not None  # noqa: S101  # the caller saw it
    return ChildResult(
        handle=task.handle,
        name=task.name,
        state=task.state,
        ref=ref_of(task.attempt.system.slug, refs) if task.attempt else None,
        exit_code=view.exit_code,
        files=len(view.files),
        bytes=sum(file.bytes or 0 for file in view.files),
        directory=view.directory,
        charge=view.charge,
    )
