"""wait and events: one blocking call, no polling, printed once."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from facet_cli import files, told
from facet_cli.client import Client
from facet_cli.commands.context import Context
from facet_cli.errors import Gone, TimedOut
from facet_cli.exits import Exit, of_states
from facet_cli.following import Follower
from facet_cli.handles import is_final, kind_of, path_of
from facet_cli.output import Output, duration, one_line

_LISTED = 1000
_TYPES = {"task": ("task.*", "approval.requested"), "grp": ("group.*",), "xfer": ("transfer.*",)}


def wait(context: Context) -> Exit:
    """Wait until every task named has ended or needs a decision."""
    return wait_for(context, list(dict.fromkeys(context.args.tasks)))


def wait_for(context: Context, handles: Sequence[str]) -> Exit:
    """Wait for tasks, groups and transfers; print how they ended once, and return what that means."""
    args = context.args
    for handle in handles:
        kind_of(handle)
    session = getattr(args, "session", None) or os.environ.get("FACET_SESSION") or None
    with files.held(*_locks(session, handles)):
        found, cursor, timed_out = _ended(context, handles)
        ended = {handle: each for handle, each in found.items() if is_final(handle, each["state"])}
        _tell(context.output, [found[handle] for handle in handles], cursor, timed_out=timed_out)
        for handle in ended:
            told.mark(
                session, handle, cursor=cursor, state=ended[handle]["state"]
            )  # before the locks go: the bridge must not tell it again
    if timed_out:
        return Exit.TIMED_OUT
    return of_states(each["state"] for each in ended.values())


def _locks(session: str | None, handles: Sequence[str]) -> list[Path]:
    """Return what shows the bridge that somebody listens: a session's lock, else one for each subject.

    A person at a terminal holds none: the agent is still to be woken.
    """
    if session is not None:
        return [files.lock_path("session", session)]
    if sys.stdout.isatty():
        return []
    return [files.lock_path("subject", handle) for handle in handles]


def _ended(context: Context, handles: Sequence[str]) -> tuple[dict[str, dict[str, Any]], int, bool]:
    """Return the objects at the end, the cursor up to which that is so, and whether time ran out."""
    args, client = context.args, context.client
    timeout_s = getattr(args, "timeout", None)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    cursor = client.head()  # before the states are read: what happens in between is heard
    found = {handle: client.get(path_of(handle)) for handle in handles}
    while True:
        follower = Follower(
            client,
            cursor,
            types=tuple(sorted({word for handle in handles for word in _TYPES[kind_of(handle)]})),
            subject=handles[0] if len(handles) == 1 else None,
            deadline=deadline,
            only_poll=getattr(args, "poll", False),
        )
        try:
            _follow(context, follower, found, until_any=getattr(args, "any", False))
        except TimedOut:
            return found, follower.after, True
        except Gone:  # away for so long that the log moved on: look, and listen from here
            cursor = client.head()
            found = {handle: client.get(path_of(handle)) for handle in handles}
        else:
            return found, follower.after, False


def _follow(context: Context, follower: Follower, found: dict[str, Any], *, until_any: bool) -> None:
    """Follow events until enough has ended; `found` is brought up to date."""

    def is_over() -> bool:
        ended = [is_final(handle, each["state"]) for handle, each in found.items()]
        return any(ended) if until_any else all(ended)

    if is_over():
        return
    for event in follower.events():
        asks_a_person = event["type"].startswith("approval.")  # its subject is the approval
        handle = event["task"] if asks_a_person else event["subject"]
        if handle not in found:
            continue
        context.output.note(f"{event['at']} {handle} {one_line(event['type'])}: {one_line(event['summary'])}")
        if asks_a_person or is_final(handle, event["state"]):
            found[handle] = _read(follower.client, handle)
            if is_over():
                return


def _read(client: Client, handle: str) -> dict[str, Any]:
    return dict(client.get(path_of(handle)))


def _tell(output: Output, found: Sequence[dict[str, Any]], cursor: int, *, timed_out: bool) -> None:
    if output.as_json:
        output.document({"results": list(found), "cursor": cursor, "timed_out": timed_out})
        return
    for each in found:
        output.line(sentence(output, each))


def sentence(output: Output, each: dict[str, Any]) -> str:
    """Return how a task, group or transfer stands, in a line."""
    place = "/".join(str(each[part]) for part in ("system", "partition") if each.get(part))
    attempt = each.get("attempt") or {}
    ran_s = attempt.get("ran_s") if isinstance(attempt, dict) else None
    words = [
        each["id"],
        output.state(each["state"]),
        one_line(f"({each['cause']})") if each.get("cause") else "",
        one_line(f"on {place}") if place else "",
        f"after {duration(ran_s)}" if ran_s is not None else "",
        f"· {one_line(each['reason'])}" if each.get("reason") else "",
    ]
    return " ".join(word for word in words if word)


def events(context: Context) -> Exit:
    """Print events after a cursor; with -f go on for ever."""
    args, output, client = context.args, context.output, context.client
    types = tuple(word for text in args.types or [] for word in text.split(",") if word)
    after = args.after
    if after is None:
        after = client.head() if args.follow else 0
    if not args.follow:
        after = _listed(context, after, types)
        return Exit.OK
    deadline = None if args.timeout is None else time.monotonic() + args.timeout
    follower = Follower(client, after, types, args.subject, deadline, only_poll=args.poll)
    for count, event in enumerate(follower.events(), 1):
        _tell_event(output, event)
        if count == args.limit:
            break
    return Exit.OK


def _listed(context: Context, after: int, types: Sequence[str]) -> int:
    """Print what is there from a cursor on, page by page, and return where it ends."""
    left = context.args.limit or _LISTED
    while left > 0:
        asked: dict[str, Any] = {
            "after": after,
            "timeout_s": 0,
            "limit": min(200, left),
            "types": list(types),
        }
        if context.args.subject:
            asked["subject"] = context.args.subject
        try:
            page = context.client.asked("wait_for_events", asked)
        except Gone as error:
            if context.args.after is not None:
                raise
            after = error.oldest
            continue
        for event in page["events"]:
            _tell_event(context.output, event)
        after, left = int(page["next"]), left - len(page["events"])
        if page["timed_out"]:
            break
    return after


def _tell_event(output: Output, event: dict[str, Any]) -> None:
    if output.as_json:
        output.record(event)
        return
    kind = output.paint(f"{one_line(event['type']):<24}", "bold")
    about = f"{one_line(event['subject'])} {one_line(event['summary'])}"
    output.line(f"{event['cursor']:>7} {event['at'][:19]} {kind} {about}")
