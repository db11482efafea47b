"""A question in slow motion, for clusters whose times are scaled down.

What the product calls *now* is 30 s, the interval at which Slurm's backfill looks at a queue unless told
otherwise, and its start latencies are of schedulers that look so often. Where the backfill looks every 5 s,
every time that ours is shown is made six times as long; so all is as it would be there. Counts, shares of
limits, priorities and the order of things stay as they are.
"""

from dataclasses import replace
from datetime import datetime

from benchmarks.policies import Question
from federation.types import GroupLimit, PartitionQueue, PendingShare, ResourceRecord, RunningShare
from orchestrator.envelope.types import Envelope, Range


def stretched(question: Question, pace: int) -> Question:
    """Return the question with every time as many times as long, seen from its instant."""
    if pace == 1:
        return question
    now = question.now
    return replace(
        question,
        envelope=_envelope(question.envelope, pace),
        records={place: _record(each, now, pace) for place, each in question.records.items()},
    )


def _envelope(envelope: Envelope, pace: int) -> Envelope:
    walltime = Range(min=envelope.walltime_s.min * pace, max=envelope.walltime_s.max * pace)
    runtime = envelope.runtime
    if runtime is not None and runtime.estimate_s is not None:
        runtime = runtime.model_copy(update={"estimate_s": runtime.estimate_s * pace})
    return envelope.model_copy(update={"walltime_s": walltime, "runtime": runtime})


def _record(record: ResourceRecord, now: datetime, pace: int) -> ResourceRecord:
    queue = record.queue
    return replace(
        record,
        observed_at=_at(record.observed_at, now, pace),
        max_age_s=record.max_age_s * pace,
        max_walltime_s=_times(record.max_walltime_s, pace),
        limits=replace(record.limits, max_walltime_s=_times(record.limits.max_walltime_s, pace)),
        queue=PartitionQueue(
            running=tuple(_running(each, now, pace) for each in queue.running),
            pending=tuple(_pending(each, now, pace) for each in queue.pending),
            is_visible=queue.is_visible,
            beside=tuple(_running(each, now, pace) for each in queue.beside),
        ),
        groups=tuple(_group(each, now, pace) for each in record.groups),
    )


def _group(group: GroupLimit, now: datetime, pace: int) -> GroupLimit:
    return replace(
        group,
        running=tuple(_running(each, now, pace) for each in group.running),
        waiting=tuple(_pending(each, now, pace) for each in group.waiting),
    )


def _running(share: RunningShare, now: datetime, pace: int) -> RunningShare:
    return replace(share, start_at=_at(share.start_at, now, pace), walltime_s=_times(share.walltime_s, pace))


def _pending(share: PendingShare, now: datetime, pace: int) -> PendingShare:
    return replace(
        share, submit_at=_at(share.submit_at, now, pace), walltime_s=_times(share.walltime_s, pace)
    )


def _at(at: datetime | None, now: datetime, pace: int) -> datetime | None:
    return None if at is None else now + (at - now) * pace


def _times(seconds: int | None, pace: int) -> int | None:
    return None if seconds is None else seconds * pace
