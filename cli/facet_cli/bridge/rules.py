"""The rules: which events wake whom. Read strictly: an unknown word is an error."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from facet_cli.errors import CliError
from facet_cli.files import config_dir

KINDS = {
    "claude": {"session", "cwd", "program", "args"},
    "codex": {"session", "cwd", "program", "args"},
    "command": {"argv", "session", "cwd"},
    "webhook": {"url", "secret_file", "session"},
}
_RULE = {
    "name",
    "types",
    "tasks",
    "groups",
    "systems",
    "wake",
    "max_wakes_per_hour",
    "coalesce_s",
    "max_tries",
    "timeout_s",
    "retry_s",
}
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
_SESSION = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$")
_TYPE = re.compile(r"^[a-z]+\.(?:\*|[a-z_]+)$")


@dataclass(frozen=True)
class Wake:
    """Whom to wake, and how."""

    kind: str
    session: str | None = None
    cwd: str | None = None
    program: str | None = None
    args: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    url: str | None = None
    secret_file: str | None = None


@dataclass(frozen=True)
class Rule:
    """Which events, and whom they wake."""

    name: str
    wake: Wake
    types: tuple[str, ...] = ()
    """Empty: whatever asks for attention."""
    tasks: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()
    max_wakes_per_hour: int = 12
    coalesce_s: float = 3.0
    max_tries: int = 3
    timeout_s: float = 3600.0
    retry_s: float = 5.0
    """Pause before the second try; it doubles from one to the next, with jitter."""


@dataclass(frozen=True)
class Rules:
    """All rules, and how many wakes an hour may have over all."""

    rules: tuple[Rule, ...] = ()
    max_wakes_per_hour: int = 60


def path() -> Path:
    """Return the file of rules: bridge.toml where there is one, else bridge.json."""
    toml = config_dir() / "bridge.toml"
    return toml if toml.exists() else config_dir() / "bridge.json"


def load(where: Path) -> Rules:
    """Return the rules in a file; none where there is no file.

    Raises:
        CliError: the file cannot be read, or says something unknown.
    """
    try:
        text = where.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Rules()
    except OSError as error:
        raise CliError(f"{where} cannot be read: {error.strerror}.") from None
    return rules_of(_parsed(text, where), str(where))


def _parsed(text: str, where: Path) -> Any:
    try:
        if where.suffix != ".toml":
            return json.loads(text)
        if sys.version_info < (3, 11):
            raise CliError(f"{where} needs Python 3.11.", hint="Write bridge.json instead.")
        import tomllib  # noqa: PLC0415  # only newer Pythons have it

        return tomllib.loads(text)
    except ValueError as error:
        raise CliError(f"{where} cannot be read: {error}") from None


def rules_of(given: Any, where: str) -> Rules:
    """Return the rules in a document.

    Raises:
        CliError: naming the place of the first fault.
    """
    _known(given, {"rules", "max_wakes_per_hour"}, where)
    found = tuple(
        _rule(each, f"{where}: rules[{number}]")
        for number, each in enumerate(_list(given.get("rules", []), where))
    )
    names = [rule.name for rule in found]
    for name in names:
        if names.count(name) > 1:
            raise CliError(f"{where}: two rules are called `{name}`.")
    return Rules(found, int(_number(given, "max_wakes_per_hour", 60, where)))


def _rule(given: Any, where: str) -> Rule:
    _known(given, _RULE, where)
    name = given.get("name")
    if not isinstance(name, str) or not _NAME.match(name):
        raise CliError(f"{where}: `name` must be letters, digits, dot, dash or underscore.")
    types = _strings(given, "types", where)
    for each in types:
        if not _TYPE.match(each):
            raise CliError(f"{where}: `{each}` is no event type (task.failed, task.*).")
    return Rule(
        name=name,
        wake=_wake(given.get("wake"), f"{where}.wake"),
        types=types,
        tasks=_strings(given, "tasks", where),
        groups=_strings(given, "groups", where),
        systems=_strings(given, "systems", where),
        max_wakes_per_hour=int(_number(given, "max_wakes_per_hour", 12, where)),
        coalesce_s=_number(given, "coalesce_s", 3.0, where),
        max_tries=int(_number(given, "max_tries", 3, where)),
        timeout_s=_number(given, "timeout_s", 3600.0, where),
        retry_s=_number(given, "retry_s", 5.0, where),
    )


def _wake(given: Any, where: str) -> Wake:
    kind = given.get("kind") if isinstance(given, dict) else None
    if kind not in KINDS:
        raise CliError(f"{where}: `kind` must be one of {', '.join(KINDS)}.")
    _known(given, {"kind", *KINDS[kind]}, where)
    texts = {name: _text(given, name, where) for name in ("session", "cwd", "program", "url", "secret_file")}
    wake = Wake(kind=kind, args=_strings(given, "args", where), argv=_strings(given, "argv", where), **texts)
    if wake.session is not None and not _SESSION.match(wake.session):
        raise CliError(f"{where}: `session` must be letters, digits, dot, dash, colon or underscore.")
    if kind in {"claude", "codex"} and wake.session is None:
        raise CliError(f"{where}: `session` is missing: which conversation is to be resumed?")
    if kind == "command" and not wake.argv:
        raise CliError(f"{where}: `argv` is missing: the program and its arguments.")
    if kind == "webhook":
        _check_webhook(wake, where)
    return wake


def _check_webhook(wake: Wake, where: str) -> None:
    parts = urlsplit(wake.url or "")
    is_local = parts.hostname in {"localhost", "127.0.0.1", "::1"}
    if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and is_local)):
        raise CliError(f"{where}: `url` must be https, or http to this machine.")
    if wake.secret_file is None:
        raise CliError(f"{where}: `secret_file` is missing: the file with the signing secret (whsec_…).")


def _known(given: Any, names: set[str], where: str) -> None:
    if not isinstance(given, dict):
        raise CliError(f"{where}: an object is wanted.")
    strange = sorted(set(given) - names)
    if strange:
        raise CliError(f"{where}: `{strange[0]}` is unknown; known are {', '.join(sorted(names))}.")


def _list(given: Any, where: str) -> list[Any]:
    if not isinstance(given, list):
        raise CliError(f"{where}: `rules` must be a list.")
    return given


def _strings(given: dict[str, Any], name: str, where: str) -> tuple[str, ...]:
    found = given.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
        raise CliError(f"{where}: `{name}` must be a list of texts.")
    return tuple(found)


def _text(given: dict[str, Any], name: str, where: str) -> str | None:
    found = given.get(name)
    if found is not None and (not isinstance(found, str) or not found):
        raise CliError(f"{where}: `{name}` must be a text.")
    return found


def _number(given: dict[str, Any], name: str, otherwise: float, where: str) -> float:
    found = given.get(name, otherwise)
    if isinstance(found, bool) or not isinstance(found, (int, float)) or found < 0:
        raise CliError(f"{where}: `{name}` must be a number from 0.")
    return float(found)
