"""The skill that waits for events: a bounded long poll over the one append-only log."""

import time
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from pydantic import Field, field_validator

from federation.event_types import EVENT_TYPES
from orchestrator import selectors
from orchestrator.reach import may_follow
from orchestrator.shown import EventShown
from portal.skills.bounds import fitting
from portal.skills.registry import Answer, Call, Options, Scope, Skill, register
from portal.waiting import Found, Interest, Wait
from providers.errors import Gone, InvalidInput, NotFound
from providers.reading import nearest
from providers.types import Frozen

LONGEST_WAIT_S = 50


class WaitInput(Frozen):
    """After which event, of which kinds, about what, and how long to wait."""

    after: int | None = Field(
        None,
        ge=0,
        lt=2**63,
        description="Cursor; 0 = from the first event. Absent: only what comes from now on.",
    )
    types: tuple[str, ...] = Field((), description="Event types; `task.*` means all of tasks. Empty: all.")
    subject: str | None = Field(None, description="A task, group, attempt, transfer or system.")
    timeout_s: float = Field(25, ge=0, le=LONGEST_WAIT_S)
    limit: int = Field(50, ge=1, le=200)

    @field_validator("after", mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


class HeardEvents(Frozen):
    """What happened, in commit order, and where to go on."""

    events: list[EventShown]
    next: int = Field(description="Cursor for the next call's `after`.")
    timed_out: bool = Field(description="Nothing matched within the time.")


def check_types(types: tuple[str, ...], *, pointer: str = "/types") -> None:
    """Refuse event types that do not exist.

    Raises:
        InvalidInput: naming the nearest.
    """
    known = {*EVENT_TYPES, *(f"{word.partition('.')[0]}.*" for word in EVENT_TYPES)}
    problems = tuple(
        (f"{pointer}/{number}", "unknown_event_type", f"No event type `{word}`." + nearest(word, known))
        for number, word in enumerate(types)
        if word not in known
    )
    if problems:
        raise InvalidInput(problems[0][2], problems=problems)


def check_cursor(after: int) -> None:
    """Refuse a cursor whose following events are kept no longer.

    Raises:
        Gone: naming the oldest cursor.
    """
    oldest = selectors.oldest_cursor()
    if oldest is not None and after < oldest - 1:
        raise Gone(
            f"Events before cursor {oldest} are kept no longer.",
            remediation=f"Read the present state of your tasks, then go on with after={oldest - 1}.",
            oldest=oldest - 1,
        )


def check_subject(user: AbstractBaseUser, subject: str | None) -> None:
    """Refuse a subject that is not this user's.

    Raises:
        NotFound: no such object for this user.
    """
    if subject is not None and not may_follow(user, subject):
        raise NotFound(f"No {subject!r} whose events you could follow.", pointer="/subject")


def begin(given: WaitInput, call: Call) -> Wait:
    """Check what is to be waited for, and from where.

    Raises:
        InvalidInput, NotFound, Gone: the types, the subject or the cursor are not good.
    """
    until = time.monotonic() + given.timeout_s
    user = call.caller.user
    check_types(given.types)
    check_subject(user, given.subject)
    head = selectors.head_cursor()
    after = head if given.after is None else min(given.after, head)
    if after < head:
        check_cursor(after)
    interest = Interest(user, given.types, given.subject, call.caller.systems)
    interest.renew()
    return Wait(interest, after, head, given.limit, until)


def _wait(given: WaitInput, call: Call) -> Answer:
    wait = begin(given, call)
    return answer_of(wait, wait.in_thread(), options=call.options)


def answer_of(wait: Wait, found: Found, *, options: Options) -> Answer:
    """Return what a poll found, as much as fits."""
    kept = found.events if options.full else fitting(found.events, options.room - 200)
    if len(kept) < len(found.events) or len(kept) == wait.limit:
        following = kept[-1].cursor
    else:
        following = max([wait.after, found.head, *(event.cursor for event in kept[-1:])])
    return Answer(HeardEvents(events=kept, next=following, timed_out=not kept))


register(
    Skill(
        "wait_for_events",
        "Wait, at most 50 s, for the next events after a cursor; answers at once when there are some.",
        WaitInput,
        HeardEvents,
        (Scope.READ,),
        _wait,
    )
)
