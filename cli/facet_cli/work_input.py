"""From options to a task input. Pure but for reading the files named.

Sizes are sent as they were written wherever the server reads that spelling (`64G`, `1-12:00:00`, minutes).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from facet_cli.errors import CliError

_UNITS_S = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_SPOKEN = re.compile(r"^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$", re.ASCII)
_MAX_BYTES = 1024 * 1024
_NAMES_ITSELF = re.compile(
    r"^#\s?(?:SBATCH|PBS|BSUB|\$|flux:|FLUX:|COBALT|OAR)\s.*?(?:-[JNn]\b|--(?:job-?)?name\b)", re.MULTILINE
)
"""A directive that names the job: the server reads it, and calls the task so."""

LISTS = {
    "accelerator": ("accelerator", "types"),
    "architecture": ("architecture",),
    "runtime": ("container", "runtime"),
    "allow": ("policy", "allow_systems"),
    "exclude": ("policy", "exclude_systems"),
    "prefer": ("policy", "prefer"),
}
"""Option to its place in the envelope."""


def count_range(text: str) -> Any:
    """Return `4` as a number and `1..4` as a range.

    Raises:
        CliError: it is neither.
    """
    least, dots, most = text.partition("..")
    if not (least.isdigit() and (most.isdigit() if dots else True)):
        raise CliError(f"`{text}` is neither a number nor a range such as 1..4.")
    if not dots:
        return int(least)
    if int(least) > int(most):
        raise CliError(f"`{text}` begins above its end.")
    return {"min": int(least), "max": int(most)}


def _range(text: str, one: Any) -> Any:
    least, dots, most = text.partition("..")
    return {"min": one(least), "max": one(most)} if dots else one(text)


def seconds(text: str) -> Any:
    """Return `1h30m` in seconds; what Slurm and ISO 8601 write is left to the server."""
    match = _SPOKEN.match(text)
    if not text or match is None:
        return text
    return sum(int(part or 0) * size for part, size in zip(match.groups(), _UNITS_S.values()))


def waiting_time(text: str) -> float:
    """Return `90`, `2.5` or `5m` as seconds.

    Raises:
        CliError: it is none of these.
    """
    try:
        found = float(seconds(text))
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise CliError(f"`{text}` is no time to wait: give seconds, or 5m, 2h.")
    return found


def wall_time(text: str) -> Any:
    """Return a wall time or a range of them."""
    return _range(text, seconds)


def memory(text: str) -> Any:
    """Return memory as the server reads it: `64G`, or MiB as a number, or a range."""
    return _range(text, lambda part: int(part) if part.isdigit() else part)


def read_text(path: str) -> str:
    """Return what a file holds, or standard input for `-`.

    Raises:
        CliError: it cannot be read, or is no text of at most 1 MiB.
    """
    try:
        raw = sys.stdin.buffer.read(_MAX_BYTES + 1) if path == "-" else Path(path).read_bytes()
        text = raw.decode()
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CliError(f"{path} is not UTF-8 text.") from None
    if len(raw) > _MAX_BYTES:
        raise CliError(f"{path} is longer than 1 MiB.", hint="Put large files at the site and name them.")
    return text


def read_object(path: str) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        CliError: there is none.
    """
    try:
        found = json.loads(read_text(path))
    except ValueError as error:
        raise CliError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise CliError(f"{path} does not hold a JSON object.")
    return found


def words(given: list[str] | None) -> list[str]:
    """Return the words of options that may be repeated or hold commas."""
    return [word.strip() for text in given or [] for word in text.split(",") if word.strip()]


def envelope_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the envelope that the options describe; the file first, then what is said beside it."""
    envelope = read_object(args.envelope) if args.envelope else {}
    for name in ("gpus", "cpus", "nodes"):
        if getattr(args, name) is not None:
            envelope[name] = count_range(getattr(args, name))
    if args.memory is not None:
        envelope["memory_mib"] = memory(args.memory)
    if args.walltime is not None:
        envelope["walltime_s"] = wall_time(args.walltime)
    if args.gpu_memory is not None:
        _put(envelope, ("accelerator", "min_memory_mib"), memory(args.gpu_memory))
    for option, place in LISTS.items():
        named = words(getattr(args, option))
        if named:
            _put(envelope, place, named)
    return envelope


def _put(envelope: dict[str, Any], place: tuple[str, ...], value: object) -> None:
    for step in place[:-1]:
        envelope = envelope.setdefault(step, {})
    envelope[place[-1]] = value


def _variables(given: list[str] | None) -> dict[str, str]:
    found = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise CliError(f"`--env {text}` must be NAME=VALUE.")
        found[name] = value
    return found


def task_input(args: argparse.Namespace, *, needs_work: bool = True) -> dict[str, Any]:
    """Return the task input that the options describe.

    Raises:
        CliError: neither or both of script and command.
    """
    task: dict[str, Any] = read_object(args.task_file) if args.task_file else {}
    if args.script and args.tail:
        raise CliError("Give a script, or a command after --, not both.")
    if args.script:
        task["script"] = read_text(args.script)
        if not (_NAMES_ITSELF.search(task["script"]) or args.like or args.script == "-"):
            task.setdefault("name", Path(args.script).stem[:120])
    if args.tail:
        task["command"] = list(args.tail)
    if args.like is not None:
        task["like"] = args.like
    if needs_work and not ({"script", "command", "like"} & task.keys()):
        raise CliError(
            "Give a script, or a command after --.", hint="facet submit job.sbatch | facet submit -- hostname"
        )
    envelope = envelope_of(args)
    if envelope:
        task["envelope"] = {**(task.get("envelope") or {}), **envelope}
    simple = ("name", "objective", "workdir", "client_ref", "envelope_id", "dialect", "group")
    task.update({name: getattr(args, name) for name in simple if getattr(args, name) is not None})
    _environment(task, args)
    if args.retries is not None:
        task["retry"] = {**(task.get("retry") or {}), "max_attempts": args.retries + 1}
    if args.stay:
        task["replacement"] = {"enabled": False}
    return task


def _environment(task: dict[str, Any], args: argparse.Namespace) -> None:
    said = {
        "modules": words(args.module),
        "variables": _variables(args.env),
        "setup": list(args.setup or []),
        "conda": args.conda,
        "container": args.container,
    }
    said = {name: value for name, value in said.items() if value}
    if said:
        task["environment"] = {**(task.get("environment") or {}), **said}
