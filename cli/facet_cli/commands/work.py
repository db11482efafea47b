"""draft, preview, submit, group, move: work goes in."""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

from facet_cli.client import fresh_key
from facet_cli.commands import waiting
from facet_cli.commands.context import Context
from facet_cli.errors import CliError, Problem
from facet_cli.exits import Exit
from facet_cli.files import read_json, safe_name, state_dir, write_json
from facet_cli.output import Output, duration, one_line
from facet_cli.work_input import read_object, read_text, task_input

_IN_WORDS = {"not_authorized", "partition_blocked"}
"""Codes whose observation is a sentence of its own."""
_KEY_KEPT_S = 24 * 3600
"""The server keeps answers for 48 h; a key is used again for half of that."""


def draft(context: Context) -> Exit:
    """Draft an envelope from a script or from words; nothing is submitted."""
    args, output = context.args, context.output
    if (args.script is None) == (args.text is None):
        raise CliError("Give either a script or --text.", hint="facet draft job.sbatch")
    asked = {"text": args.text} if args.script is None else {"script": read_text(args.script)}
    if args.dialect:
        asked["dialect"] = args.dialect
    drafted = context.client.once("draft_envelope", asked)
    if output.as_json:
        output.document(drafted)
    else:
        _tell_draft(output, drafted)
    return Exit.OK if drafted["validation"]["valid"] else Exit.REJECTED


def _tell_draft(output: Output, drafted: dict[str, Any]) -> None:
    output.line(
        f"{drafted['id'] or 'no handle'} · from {drafted['source']} · confidence {drafted['confidence']:.2f}"
    )
    for name, value in drafted["said"].items():
        if name in ("source", "confidence"):  # in the line above
            continue
        why = one_line(drafted["rationale"].get(name, ""))
        output.line(f"  {name}: {one_line(json.dumps(value))}" + (f"  ({why})" if why else ""))
    for part in ("conflicts", "refusals", "warnings", "not_understood", "ignored"):
        for note in drafted[part]:
            where = f"line {note['line']}: " if note["line"] else ""
            output.line(f"  {part}: {where}{one_line(note['text'], 60)}: {one_line(note['why'])}")
    for question in drafted["questions"]:
        output.line(f"  question: {one_line(question)}")
    for fault in drafted["validation"]["errors"]:
        output.line(f"  {one_line(fault['pointer'])}: {one_line(fault['message'])}")


def preview(context: Context) -> Exit:
    """Say where the work would go, and why not elsewhere; nothing is submitted."""
    output = context.output
    given = task_input(context.args, needs_work=False)
    full = 1 if context.args.full else None
    decision = context.client.asked("preview_placement", given, full=full)
    if output.as_json:
        output.document(decision)
    else:
        tell_decision(output, decision)
    return Exit.OK if decision["selected"] else Exit.UNSCHEDULABLE


def tell_decision(output: Output, decision: dict[str, Any], *, why_not: bool = True) -> None:
    """Print where work goes and how long each step takes; with `why_not` what was ruled out as well."""
    chosen = decision["selected"]
    if chosen:
        place = f"{chosen['system']}/{chosen['partition']}"
        output.line(f"{output.paint(one_line(place), 'bold')} {_shape(chosen.get('shape'))}".rstrip())
        told = chosen.get("estimates") or {}
        wait = told.get("wait_s")
        p50 = wait.get("p50") if isinstance(wait, dict) else wait
        output.line(f"  starts in about {duration(p50)}, ends in about {duration(told.get('completion_s'))}")
    else:
        output.line(output.paint("nowhere: no system can run this as described", "yellow"))
    for line in _ruled_out(decision["candidates"]) if why_not else ():
        output.line(f"  not {line}")
    closest = decision.get("closest")
    if not chosen and closest:
        output.line(f"  closest: {one_line(_sentences(closest), 300)}")


def _ruled_out(candidates: list[dict[str, Any]]) -> list[str]:
    """Return a line for each partition that no account can use: what stops the one that comes nearest."""
    nearest: dict[str, list[dict[str, Any]]] = {}
    open_to_us = {_place(each) for each in candidates if each["feasible"]}
    for each in candidates:
        place, reasons = _place(each), each["rejections"]
        if place not in open_to_us and (place not in nearest or _far(reasons) < _far(nearest[place])):
            nearest[place] = reasons
    return [
        f"{place}: {'; '.join(dict.fromkeys(_reason(why) for why in reasons[:2]))}"
        for place, reasons in nearest.items()
    ]


def _far(reasons: list[dict[str, Any]]) -> tuple[bool, int]:
    """Return how far a candidate is: what one may not do at all comes last."""
    return any(why["code"] == "not_authorized" for why in reasons), len(reasons)


def _place(candidate: dict[str, Any]) -> str:
    return one_line(f"{candidate['system']}/{candidate['partition']}")


def _sentences(closest: dict[str, Any]) -> str:
    """Return the smallest change that would help, in words."""
    changes = " ".join(str(each["sentence"]) for each in closest["changes"])
    then = " Then it would run there." if closest.get("verified") else ""
    return f"{_place(closest)}: {changes}{then}"


def _reason(why: dict[str, Any]) -> str:
    """Return what is against a candidate; a shortened answer may hold no more than the code."""
    code = one_line(why["code"], 60)
    if why.get("required") is None and why.get("observed") is None:
        return code
    needs, has = one_line(why.get("required"), 60), one_line(why.get("observed"), 60)
    return f"{code}: {has}" if code in _IN_WORDS else f"{code}: needs {needs}, has {has}"


def _shape(shape: dict[str, Any] | None) -> str:
    if not shape:
        return ""
    counts = [f"{shape[name]} {name}" for name in ("nodes", "gpus", "cpus") if shape.get(name)]
    limit = shape.get("walltime_s")
    return one_line(" · ".join([*counts, *([f"at most {duration(limit)}"] if limit else [])]))


def submit(context: Context) -> Exit:
    """Submit a task; with --wait stay until it ends."""
    args, output = context.args, context.output
    given = task_input(args)
    answer = _sent_once(context, "submit_task", given, wait_s=args.wait_s)
    state = answer["state"]
    if not args.wait or state == "unschedulable":
        if output.as_json:
            output.document(answer)
        else:
            output.line(f"{answer['id']} {output.state(state)}")
            tell_decision(output, answer["decision"], why_not=state == "unschedulable")
        return Exit.UNSCHEDULABLE if state == "unschedulable" else Exit.OK
    if not output.as_json:
        output.line(f"{answer['id']} {output.state(state)}")
        tell_decision(output, answer["decision"], why_not=False)
    return waiting.wait_for(context, [answer["id"]])


def _sent_once(context: Context, skill: str, given: dict[str, Any], **query: Any) -> Any:
    """Call a creating skill so that the same command, run again after no answer came, does nothing twice."""
    args, client = context.args, context.client
    if args.idempotency_key:
        return client.skill(skill, given, key=args.idempotency_key, **query)
    said = json.dumps([client.account.url, client.account.profile, skill, given], sort_keys=True)
    name = safe_name(hashlib.sha256(said.encode()).hexdigest())
    kept = state_dir() / "unanswered" / f"{name}.json"
    earlier = read_json(kept) or {}
    if time.time() - float(earlier.get("at") or 0) > _KEY_KEPT_S:
        earlier = {"key": fresh_key(), "at": time.time()}
        write_json(kept, earlier)
    else:
        context.output.note("an earlier run had no answer: asking again under its key")
    try:
        answer = client.skill(skill, given, key=earlier["key"], **query)
    except Problem as error:
        if error.status < 500 and not error.may_be_tried_again:
            kept.unlink(missing_ok=True)  # refused for good: nothing was made
        raise
    kept.unlink(missing_ok=True)
    return answer


def group(context: Context) -> Exit:
    """Submit several tasks as one, described in a JSON file."""
    context.client.require("submit_group")
    answer = _sent_once(context, "submit_group", read_object(context.args.file))
    if not context.output.as_json:
        _tell_object(context.output, answer)
    elif not context.args.wait:
        context.output.document(answer)
    if not context.args.wait:
        return Exit.OK
    return waiting.wait_for(context, [answer["id"]])


def move(context: Context) -> Exit:
    """Move data between two places; the bytes never pass here."""
    args = context.args
    context.client.require("move_data")
    asked: dict[str, Any] = {"source": args.source, "destination": args.destination}
    if args.sha256:
        asked["source"] = {"uri": args.source, "sha256": args.sha256}
    options = {"recursive": args.recursive or None, "deadline": args.deadline, "label": args.label}
    said = {name: value for name, value in options.items() if value is not None}
    if said:
        asked["options"] = said
    if args.task:
        asked["task"] = args.task
    answer = _sent_once(context, "move_data", asked)
    if not context.output.as_json:
        _tell_object(context.output, answer)
    elif not args.wait:
        context.output.document(answer)
    return waiting.wait_for(context, [answer["id"]]) if args.wait else Exit.OK


def _tell_object(output: Output, answer: dict[str, Any]) -> None:
    output.line(f"{answer['id']} {output.state(answer.get('state', ''))}")
    for child in (answer.get("group") or {}).get("children") or []:
        place = one_line(f" on {_place(child)}") if child.get("system") else ""
        output.line(f"  {one_line(child['key'])} {child['id']} {output.state(child['state'])}{place}")


def add_work_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser every option that describes work."""
    add: Callable[..., Any] = parser.add_argument
    add("script", nargs="?", help="a batch script, or - for standard input; or give a command after --")
    add("--command", action="store_true", help="the command follows after --")
    add("--task-file", metavar="FILE", help="a whole task input as JSON; options win over it")
    add("--like", metavar="TASK", help="the same work as this task's again; options say what differs")
    add_size_options(parser)
    add("--envelope-id", metavar="ENV", help="an envelope drafted before")
    add("--name", help="shown everywhere")
    add("--objective", help="what it is for, kept for people and agents")
    add("--workdir", help="absolute path at the site")
    add("--module", action="append", metavar="NAME", help="modules loaded first")
    add("--env", action="append", metavar="NAME=VALUE", help="environment variables")
    add("--setup", action="append", metavar="LINE", help="shell lines run first")
    add("--conda", help="conda environment")
    add("--container", help="container image")
    add("--dialect", help="of the script: slurm, pbs, lsf, flux, sge, cobalt, oar")
    add("--group", metavar="GRP", help="group it belongs to")
    add("--client-ref", help="a reference of your own")
    add("--retries", type=int, metavar="N", help="how often to try again")
    add("--stay", action="store_true", help="never move it to another system while it waits")


def add_size_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser every option that describes an envelope."""
    add: Callable[..., Any] = parser.add_argument
    add("--envelope", metavar="FILE", help="a ResourceEnvelope as JSON; options win over it")
    for name in ("gpus", "cpus", "nodes"):
        add(f"--{name}", metavar="N|MIN..MAX", help=f"{name} in all")
    add("--memory", metavar="SIZE", help="memory in all: 64G, MiB as a number, or a range")
    add("--walltime", metavar="TIME", help="2h, 1h30m, 1-12:00:00, or a range 1h..4h")
    add("--accelerator", action="append", metavar="TYPE", help="a100,h100: any of them will do")
    add("--gpu-memory", metavar="SIZE", help="least memory of one GPU")
    add("--architecture", action="append", metavar="NAME", help="x86_64, aarch64")
    add("--allow", action="append", metavar="SYSTEM", help="only these systems")
    add("--exclude", action="append", metavar="SYSTEM", help="never these systems")
    add("--prefer", action="append", metavar="SYSTEM", help="these when it makes no difference")
    add("--runtime", action="append", metavar="NAME", help="container runtimes, any of them")
