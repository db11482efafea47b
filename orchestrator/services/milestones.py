"""Milestones: what a job itself reports while it runs, or leaves in files for when it has ended.

The text is the job's: cleaned, cut, marked untrusted, and counted, so that no job can flood the event log.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction

from federation.ledger import Happening, record
from federation.models import Event
from orchestrator.job_tokens import JobTokenRefused, attempt_of, check_lasts
from orchestrator.models import Attempt
from orchestrator.plain_text import cleaned, redacted
from orchestrator.services.moves import task_event
from providers.errors import InvalidInput, RateLimited

TYPE = "milestone.reached"
MOST = 200
"""Milestones of one attempt, files included."""
PER_MINUTE = 20
_CHARS = 200


@transaction.atomic
def reach_milestone(token: str, text: str, *, now: datetime) -> Event:
    """Record a milestone that a running job reports.

    Raises:
        JobTokenRefused: the token is not good (any more).
        RateLimited: the attempt has reported too many, or too fast.
        InvalidInput: the text is empty.
    """
    handle = attempt_of(token, now=now)
    # The row is locked: two reports at once must not both be the last one allowed.
    rows = Attempt.objects.select_for_update(of=("self",), no_key=True)
    attempt = rows.select_related("task__group", "system").filter(handle=handle).first()
    if attempt is None:
        raise JobTokenRefused("The job token is not known.")
    check_lasts(attempt, now=now)
    words = _words(text)
    if not words:
        message = "A milestone needs a text."
        raise InvalidInput(message, problems=(("", "empty", message),))
    before = _reported(attempt)
    if len(before) >= MOST:
        raise RateLimited(f"An attempt may report {MOST} milestones.", retry_after_s=3600)
    if sum(at > now - timedelta(minutes=1) for at in before) >= PER_MINUTE:
        raise RateLimited(f"More than {PER_MINUTE} milestones in a minute.", retry_after_s=60)
    return record([_happening(attempt, words, number=len(before) + 1, source="job")], now=now)[0]


def note_dropped(attempt: Attempt, texts: Sequence[str], *, now: datetime) -> int:
    """Record the milestones an ended attempt left in files, as many as it may have; return how many.

    Runs inside the caller's transaction, before the attempt is moved to its end.
    """
    found = [words for text in texts if (words := _words(text))]
    if not found:
        return 0
    before = len(_reported(attempt))
    kept = found[: max(0, MOST - before)]
    numbered = enumerate(kept, start=before + 1)
    record([_happening(attempt, words, number=number, source="file") for number, words in numbered], now=now)
    return len(kept)


def _reported(attempt: Attempt) -> list[datetime]:
    """Return when this attempt reported; its task's events are few and have an index."""
    rows = Event.objects.filter(task=attempt.task.handle, attempt=attempt.handle, type=TYPE)
    return list(rows.values_list("at", flat=True))


def _words(text: str) -> str:
    return redacted(cleaned(text))[:_CHARS].strip()


def _happening(attempt: Attempt, words: str, *, number: int, source: str) -> Happening:
    return task_event(
        attempt.task,
        TYPE,
        f"{attempt.task.name} reports (untrusted): \u201c{words}\u201d",
        attempt=attempt,
        actor=f"job:{attempt.handle}",
        data={"text": words, "untrusted": True, "number": number, "source": source},
    )
