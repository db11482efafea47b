"""bridge run, once, status, dead-letters, replay, watch, hold."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

from facet_cli import files
from facet_cli.bridge import rules as rulebook
from facet_cli.bridge.loop import Bridge
from facet_cli.bridge.state import Place, load
from facet_cli.commands.context import Context
from facet_cli.errors import CliError, Unreachable
from facet_cli.exits import Exit
from facet_cli.handles import kind_of, path_of
from facet_cli.output import one_line


def bridge(context: Context) -> Exit:
    """Wake a coding agent when something happened: follow events, keep them, start the agent once."""
    return {
        "run": _run,
        "once": _run,
        "status": _status,
        "dead-letters": _dead_letters,
        "replay": _replay,
        "watch": _watch,
        "hold": _hold,
    }[context.args.what](context)


def _place(context: Context) -> Place:
    return Place.of(context.client.account.profile)


def _run(context: Context) -> Exit:
    place = _place(context)
    lock = files.take(place.lock)
    if lock is None:
        raise CliError("A bridge of this profile runs already.", hint="facet bridge status")
    with lock:
        ours = Bridge(context.client, place, rulebook.path())
        with _stopped_by_signals(ours.stopping):
            if context.args.what == "once":
                ours.once()
            else:
                context.output.note(f"following {context.client.account.url}; rules in {ours.rules_file}")
                ours.run()
    if context.args.what == "once":
        return _status(context)
    return Exit.OK


@contextlib.contextmanager
def _stopped_by_signals(stopping: threading.Event) -> Iterator[None]:
    before = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, lambda *_: stopping.set())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _status(context: Context) -> Exit:
    """Say what is waiting, under way and behind; needs no server."""
    place, output = _place(context), context.output
    state = load(place)
    told: dict[str, Any] = {
        "running": files.is_held(place.lock),
        "cursor": state.cursor,
        "gaps": state.gaps,
        "rules_file": str(rulebook.path()),
        "dead_letters": len(_letters(place)),
        "rules": {
            name: {
                "waiting": len(each.queue),
                "under_way": each.flight.wake if each.flight else None,
                "tries": each.flight.tries if each.flight else 0,
                "replays": len(each.replays),
                "wakes_in_kept_hour": len(each.wakes),
                "delivered": each.delivered,
                "told_elsewhere": each.told_elsewhere,
            }
            for name, each in state.rules.items()
        },
    }
    if output.as_json:
        output.document(told)
        return Exit.OK
    running = "running" if told["running"] else "not running"
    output.line(
        f"bridge {running} · cursor {state.cursor} · {told['dead_letters']} dead letters · gaps {state.gaps}"
    )
    for name, each in told["rules"].items():
        counts = f"{each['waiting']} waiting, {each['delivered']} delivered"
        counts += f", {each['told_elsewhere']} told by a wait" if each["told_elsewhere"] else ""
        output.line(f"  {name}: {counts}, under way: {each['under_way'] or 'nothing'}")
    return Exit.OK


def _letters(place: Place) -> list[dict[str, Any]]:
    if not place.dead.is_dir():
        return []
    return [files.read_json(path) for path in sorted(place.dead.glob("*.json"))]


def _dead_letters(context: Context) -> Exit:
    output, found = context.output, _letters(_place(context))
    if output.as_json:
        output.document({"results": found})
        return Exit.OK
    for each in found:
        about = ", ".join(f"{event['type']} {event['subject']}" for event in each["events"][:3])
        output.line(f"{each['wake']} ({one_line(each['rule'])}): {one_line(about)}: {one_line(each['why'])}")
    return Exit.OK


def _replay(context: Context) -> Exit:
    """Hand dead letters to the bridge again; one that runs takes them at once."""
    place, args = _place(context), context.args
    wanted = [each["wake"] for each in _letters(place)] if args.all else list(args.names)
    if not wanted and not args.all:
        raise CliError("Name a dead letter, or --all.", hint="facet bridge dead-letters")
    files.make_private(place.inbox)
    for name in wanted:
        path = place.dead / f"{files.safe_name(name)}.json"
        if not path.exists():
            raise CliError(f"There is no dead letter `{name}`.", exit_code=Exit.NOT_FOUND)
        path.replace(place.inbox / path.name)
    if context.output.as_json:
        context.output.document({"replayed": wanted})
    else:
        context.output.line(f"{len(wanted)} will be tried again.")
    return Exit.OK


def _watch(context: Context) -> Exit:
    """Add a rule: wake this session when one of these ends or needs a decision."""
    args, where = context.args, rulebook.path()
    if where.suffix == ".toml":
        raise CliError(f"{where} is yours to edit; only bridge.json is written.")
    if (args.claude is None) == (args.codex is None):
        raise CliError("Give --claude SESSION or --codex THREAD.")
    rule = _rule(args)
    with contextlib.suppress(Unreachable):  # what is not known now is looked at when the bridge runs
        for handle in args.names:
            context.client.get(path_of(handle))
    with contextlib.ExitStack() as stack:
        lock = files.take(where.with_suffix(".lock"), within_s=5.0)
        if lock is not None:
            stack.enter_context(lock)
        kept = files.read_json(where) or {"rules": []}
        rules = [each for each in kept["rules"] if each.get("name") != rule["name"]]
        document = {**kept, "rules": [*rules, rule]}
        rulebook.rules_of(document, str(where))
        files.write_private(where, json.dumps(document, indent=2) + "\n")
    if context.output.as_json:
        context.output.document(rule)
    else:
        context.output.line(f"Rule `{rule['name']}` is in {where}; `facet bridge run` follows it.")
    return Exit.OK


def _rule(args: Any) -> dict[str, Any]:
    kinds = {handle: kind_of(handle) for handle in args.names}
    kind, session = ("claude", args.claude) if args.claude else ("codex", args.codex)
    wake = {"kind": kind, "session": session, **({"cwd": args.cwd} if args.cwd else {})}
    rule: dict[str, Any] = {"name": args.name or files.safe_name(f"{kind}-{session}")[:64], "wake": wake}
    for word, prefix in (("tasks", "task"), ("groups", "grp")):
        named = [handle for handle, each in kinds.items() if each == prefix]
        if named:
            rule[word] = named
    if len(kinds) > sum(len(rule.get(word, [])) for word in ("tasks", "groups")):
        raise CliError("Only tasks and groups can be watched.")
    return rule


def _hold(context: Context) -> Exit:
    """Run a command while its session counts as alive, so that the bridge leaves it alone."""
    args = context.args
    if len(args.names) != 1 or not args.tail:
        raise CliError(
            "Give a session and a command.", hint="facet bridge hold SESSION -- claude --resume SESSION"
        )
    with files.held(files.lock_path("session", args.names[0])):
        done = subprocess.run(list(args.tail), check=False)
    raise SystemExit(done.returncode if done.returncode >= 0 else 128 - done.returncode)
