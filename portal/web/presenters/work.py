"""The caller's newest work on one time axis, for the first page. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from portal.web.presenters.from_group import child_lane
from portal.web.presenters.from_task import attempt_facts
from portal.web.presenters.groups import ChildLane
from portal.web.presenters.shared import TERMINAL_TASK_STATES, SystemRef
from portal.web.presenters.timeline import AttemptFacts, Frame, frame_of

if TYPE_CHECKING:
    from orchestrator.models import Attempt, Task

MOST = 8
RECENT = timedelta(hours=6)
"""Work that ended longer ago would only make the axis long."""


@dataclass(frozen=True, slots=True)
class WorkView:
    """Lanes of tasks, newest first; `frame` None = nothing was tried yet."""

    frame: Frame | None
    lanes: tuple[ChildLane, ...]
    refs: tuple[SystemRef, ...]
    """The systems that appear, for the key."""


def is_recent(task: "Task", *, now: datetime) -> bool:
    """Return whether a task belongs on the first page: under way, or ended a short while ago."""
    ended = task.finished_at
    return task.state not in TERMINAL_TASK_STATES or (ended is not None and now - ended < RECENT)


def work_view(
    tasks: Sequence["Task"], attempts: Iterable["Attempt"], refs: Mapping[str, SystemRef], *, now: datetime
) -> WorkView | None:
    """Lay the tasks out; None when there is none to show.

    Args:
        tasks: newest first, recent ones only.
        attempts: of these tasks.
        refs: how pages name the systems.
        now: aware.
    """
    if not tasks:
        return None
    tried: dict[int, list[AttemptFacts]] = defaultdict(list)
    for attempt in sorted(attempts, key=lambda each: each.number):
        tried[attempt.task_id].append(attempt_facts(attempt, refs))
    every = [facts for several in tried.values() for facts in several]
    frame = frame_of(every, now=now, expects_of_ended=False)
    lanes = tuple(child_lane(task, tried.get(task.pk, ()), frame, refs, now=now) for task in tasks)
    shown = {facts.ref.slug: facts.ref for facts in every}
    return WorkView(frame, lanes, tuple(shown[slug] for slug in sorted(shown)))
