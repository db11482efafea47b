"""Calling skills and reading resources for MCP: the same scopes, rates, idempotency and errors as REST."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.http import QueryDict
from django.utils import timezone

from federation.handles import new_handle
from portal import idempotency
from portal.api import rates
from portal.api.parsing import check_keepable
from portal.api.problems import problem_of, translated
from portal.api.resources import RESOURCES
from portal.mcp.schemas import DRY_RUN, KEY, WAIT, extras
from portal.mcp.short import LOG_BYTES, ROOM_BYTES, fitted, harmless, sentence, told_problem
from portal.skills import events
from portal.skills.every import SKILLS
from portal.skills.registry import Answer, Call, Caller, Options, Scope, Skill, require, skill
from portal.waiting import Found, Wait
from providers.errors import InvalidInput, NotFound

READABLE = ("systems", "tasks", "groups", "attempts", "decisions", "transfers")
"""What can be read as `facet://KIND/ID`."""
WAITING = "wait_for_events"
LONGEST_WAIT_S = 50.0
_OPTIONS = Options(room=ROOM_BYTES)
_HANDLE = re.compile(r"^[a-z]{2,6}_([0-9a-z]{26})$")
_TIME_CHARS = 10
"""Characters of a handle that say when it was made."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """What a tool answers."""

    value: Json
    text: str
    is_error: bool = False


def call(caller: Caller, name: str, arguments: Mapping[str, Any]) -> Told:
    """Call a skill; every failure is an answer with its code and remedy."""

    def work() -> Json:
        one = skill(name)
        given, options, key, dry_run = _read(one, arguments)
        return _value(one, given, caller, options, key=key, dry_run=dry_run)

    return guarded(caller, name, work, dry_run=arguments.get(DRY_RUN) is True)


def begin_wait(caller: Caller, arguments: Mapping[str, Any]) -> Wait | Told:
    """Begin to wait for events, in a thread; the waiting itself needs none. A failure is an answer."""
    try:
        rates.take(caller.user.pk)
        given = skill(WAITING).taken(dict(arguments), caller)
        return events.begin(given, Call(caller, timezone.now(), _OPTIONS))
    except Exception as error:  # noqa: BLE001  # every failure is answered as a problem
        return failed(error)


def waited(wait: Wait, found: Found) -> Told:
    """Return what a wait that is over found."""
    return _told(WAITING, _dumped(events.answer_of(wait, found, options=_OPTIONS)))


def failed(error: Exception) -> Told:
    """Return a failure as an answer."""
    problem = problem_of(translated(error)).body
    return Told(fitted(harmless(problem))[0], harmless(told_problem(problem)), is_error=True)


def guarded(caller: Caller, name: str, work: Callable[[], Json], *, dry_run: bool = False) -> Told:
    """Do the work of a tool and return its answer, short enough; every failure is one, too."""
    try:
        rates.take(caller.user.pk)
        value = work()
    except Exception as error:  # noqa: BLE001  # every failure is answered as a problem
        return failed(error)
    finally:
        if not connection.in_atomic_block:
            connection.close()
    return _told(name, value, dry_run=dry_run)


def _told(name: str, value: Json, *, dry_run: bool = False) -> Told:
    short, is_cut = fitted(harmless(value))
    told = short.get("would", short) if dry_run else short
    return Told(short, sentence(name, told, is_cut=is_cut, dry_run=dry_run))


def _read(one: Skill, arguments: Mapping[str, Any]) -> tuple[Json, Options, str | None, bool]:
    """Return the skill's own input, the options, the idempotency key and whether nothing is to change."""
    check_keepable(arguments)
    own = extras(one)
    given = {name: value for name, value in arguments.items() if name not in own}
    wait_s, key, dry_run = (arguments.get(word) if word in own else None for word in (WAIT, KEY, DRY_RUN))
    if dry_run is not None and not isinstance(dry_run, bool):
        raise _bad(DRY_RUN, "must be true or false")
    if key is not None and not isinstance(key, str):
        raise _bad(KEY, "must be text")
    is_number = isinstance(wait_s, int | float) and not isinstance(wait_s, bool)
    if wait_s is not None and not (is_number and 0 <= float(wait_s) <= LONGEST_WAIT_S):
        raise _bad(WAIT, "must be seconds from 0 to 50")
    if one.name == "read_log":
        wanted = given.get("limit", LOG_BYTES)
        given["limit"] = min(wanted, LOG_BYTES) if isinstance(wanted, int) else wanted
    waits_s = Options().wait_s if wait_s is None else float(wait_s)
    return given, Options(room=ROOM_BYTES, wait_s=waits_s), key, bool(dry_run)


def _bad(name: str, text: str) -> InvalidInput:
    message = f"`{name}` {text}."
    return InvalidInput(message, problems=((f"/{name}", "bad_argument", message),))


def _value(
    one: Skill, given: Json, caller: Caller, options: Options, *, key: str | None, dry_run: bool
) -> Json:
    if dry_run:
        return {DRY_RUN: True, "would": _would(one, given, caller)}
    if key is None:
        return _dumped(one.call(given, caller, now=timezone.now(), options=options))
    return _once(one, given, caller, options, key)


def _dumped(answer: Answer) -> Json:
    value: Json = answer.value.model_dump(mode="json", by_alias=True)
    return value


def _once(one: Skill, given: Json, caller: Caller, options: Options, key: str) -> Json:
    """Do what creates something once for each key, which REST and MCP share."""
    require(caller, *one.scopes)
    begun = idempotency.begin(caller.user, key, route=f"skills/{one.name}", body=given, now=timezone.now())
    if isinstance(begun, idempotency.Kept):
        kept: Json = begun.body
        return kept
    try:
        if begun.created and one.resume is not None:
            answer = one.resume(begun.created, Call(caller, timezone.now(), options))
        else:
            noting = Options(room=options.room, wait_s=options.wait_s, created=begun.note)
            answer = one.call(given, caller, now=timezone.now(), options=noting)
    except BaseException:
        idempotency.abandon(begun)
        raise
    value = _dumped(answer)
    headers = {"Location": answer.location} if answer.location else {}
    idempotency.finish(begun, idempotency.Kept(answer.status, value, headers))
    return value


def _would(one: Skill, given: Json, caller: Caller) -> Json:
    """Run a skill in a transaction that is undone, and return its answer without the handles it made.

    No site hears of it: sites are only touched by what a commit hands out.
    """
    now = timezone.now()
    with transaction.atomic():
        found = _dumped(one.call(given, caller, now=now, options=Options(room=ROOM_BYTES, wait_s=0)))
        transaction.set_rollback(True)  # Django's only form
    value: Json = _without(found, _made_since(now))
    return value


def _made_since(now: datetime) -> Callable[[Any], bool]:
    """Return what tells a handle made in this very run (or text that names one) from earlier ones."""
    first = new_handle("x", now).removeprefix("x_")[:_TIME_CHARS]

    def is_made(value: Any) -> bool:
        match = _HANDLE.match(value) if isinstance(value, str) else None
        return match is not None and match[1][:_TIME_CHARS] >= first

    return is_made


def _without(value: Any, is_made: Callable[[Any], bool]) -> Any:
    if isinstance(value, dict):
        kept = {name: inner for name, inner in value.items() if name != "next_actions"}
        return {name: _without(inner, is_made) for name, inner in kept.items() if not is_made(inner)}
    if isinstance(value, list):
        return [_without(inner, is_made) for inner in value if not is_made(inner)]
    return value


def listed(caller: Caller) -> list[tuple[str, str, str]]:
    """Return (URI, name, description) of what there is to read just now: systems, and the newest tasks.

    Raises:
        NotAuthorized: the token may not read.
    """
    require(caller, Scope.READ)
    now = timezone.now()
    systems: Any = RESOURCES["systems"]
    rows, _ = systems.page(caller, QueryDict("limit=50"), now=now)
    found = [(f"facet://systems/{each.id}", each.id, f"{each.name}: {each.state}"[:200]) for each in rows]
    tasks = RESOURCES["tasks"].reached(caller)[:20]
    found += [(f"facet://tasks/{row.handle}", row.name, f"task, {row.state}") for row in tasks]
    return found


def read(caller: Caller, uri: str) -> str:
    """Return what stands at a URI, as JSON, short enough for a model.

    Raises:
        FacetError: nothing there, or the token may not read.
    """
    rates.take(caller.user.pk)
    require(caller, Scope.READ)
    check_keepable({"uri": uri})
    kind, _, handle = uri.removeprefix("facet://").partition("/")
    if not uri.startswith("facet://") or kind not in READABLE or not handle:
        raise NotFound(f"Nothing at {uri[:120]!r}; there is facet://KIND/ID of {', '.join(READABLE)}.")
    value = RESOURCES[kind].one(caller, handle, now=timezone.now())
    short, _ = fitted(harmless(value.model_dump(mode="json", by_alias=True)))
    return json.dumps(short, ensure_ascii=False, separators=(",", ":"))


def described() -> list[Skill]:
    """Return every skill, in the registry's order."""
    return list(SKILLS.values())
