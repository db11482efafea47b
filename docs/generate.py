"""Write the reference pages that are made from the code, or with `--check` say which are not current.

    .venv/bin/python -m docs.generate [--check]

Each page is one function that reads the table the product itself uses, so it cannot say anything else.
"""
# ruff: noqa: INP001  # a program beside the pages it writes, not a package

import os
import sys
import tempfile
import textwrap
from argparse import SUPPRESS, Action
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import django
from django.conf import settings
from django.core.management import load_command_class
from django.core.management.base import BaseCommand

import run
from federation.event_types import EVENT_TYPES
from orchestrator import lifecycle
from orchestrator.placement.types import CODES
from portal import env
from providers.errors import FacetError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
_NOTE = "<!-- Made from {source}; edit that, then run `.venv/bin/python -m docs.generate`. -->"


def _page(title: str, source: str, *blocks: str) -> str:
    note = _NOTE.format(source=source)
    return "\n\n".join((f"# {title}", note, *(block.strip("\n") for block in blocks))) + "\n"


def _prose(text: str) -> str:
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)


def _cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def _table(heads: Sequence[str], rows: Iterator[Sequence[object]] | Sequence[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    lines += [f"| {' | '.join(_cell(each) for each in row)} |" for row in rows]
    return "\n".join(lines)


def environment() -> str:
    """Return the page of environment variables."""
    secrets = env.secret_variables()
    rows = []
    for name, described in env.Env.model_fields.items():
        variable, default = env.variable_of(name), described.default
        if isinstance(default, Path):
            default = f"{default.relative_to(ROOT)}/ beside `run.py`"
        if isinstance(default, bool):
            default = str(default).lower()
        shown = "" if default in (None, ()) else default
        given = f"`{variable}`" + (f" or `{variable}_FILE`" if variable in secrets else "")
        rows.append((given, shown, described.description))
    return _page(
        "Environment variables",
        "portal/env.py",
        _prose(
            "Facet reads these variables and no others. A bad one stops the start with a sentence that names "
            "it; so does an unknown one that begins with `FACET_`. A secret may instead be a file named by "
            "the variable with `_FILE`. Nothing is read from a dotenv file."
        ),
        _table(("Variable", "Default", "Meaning"), rows),
    )


S = TypeVar("S", bound=StrEnum)


def _diagram(moves: Mapping[S, frozenset[S]]) -> str:
    first = next(iter(moves))
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}"]
    lines += [f"    {source} --> {target}" for source, target in lifecycle.pairs(moves)]
    lines += [f"    {state} --> [*]" for state in lifecycle.terminal_states(moves)]
    return "\n".join((*lines, "```"))


def states() -> str:
    """Return the page of states and moves."""
    kinds: dict[str, Mapping[Any, frozenset[Any]]] = {
        "Task": lifecycle.TASK_MOVES,
        "Attempt": lifecycle.ATTEMPT_MOVES,
        "Group": lifecycle.GROUP_MOVES,
        "Transfer": lifecycle.TRANSFER_MOVES,
    }
    blocks = []
    for name, moves in kinds.items():
        rows = [
            (f"`{source}`", ", ".join(f"`{each}`" for each in sorted(targets)) or "final")
            for source, targets in moves.items()
        ]
        blocks += [f"## {name}", _diagram(moves), _table(("From", "To"), rows)]
    causes = ", ".join(f"`{cause}`" for cause in lifecycle.Cause)
    return _page(
        "States and moves",
        "orchestrator/lifecycle.py",
        _prose(
            "The same table guards every move in Python and, as a trigger, in the database. A state that is "
            "`final` is never left. `unknown` means that an attempt cannot be seen now: it is not an end, "
            "and never by itself a reason to run the work again. A transfer stays `requested` while it waits "
            "for a consent of its owner."
        ),
        *blocks,
        "## Causes",
        f"Why an attempt or task ended as it did: {causes}.",
    )


def events() -> str:
    """Return the page of event types."""
    rows = [(f"`{name}`", wake) for name, wake in EVENT_TYPES.items()]
    return _page(
        "Event types",
        "federation/event_types.py",
        _prose(
            "Every type an event can have. `milestone` and `exception` are worth waking an agent for; "
            "`routine` is not. [Events and cursors](../explanation/events.md) tells how to read them."
        ),
        _table(("Type", "Wakes"), rows),
    )


def reasons() -> str:
    """Return the page of reason codes."""
    from portal.web.presenters.from_decision import CODE_WORDS  # noqa: PLC0415  # needs Django ready

    rows = [
        (f"`{rule}`", f"`{code}`", CODE_WORDS.get(code, ""))
        for rule, codes in CODES.items()
        for code in codes
    ]
    return _page(
        "Reason codes of placement",
        "orchestrator/placement/types.py",
        _prose(
            "Why a candidate was rejected. Every rule is asked for every candidate, so one may carry several "
            "codes; each rejection also has what was `required`, what was `observed`, and a `remedy` where "
            "there is one. [Read a decision trace](../howto/read-a-decision-trace.md) shows them in use."
        ),
        _table(("Rule", "Code", "What a page says"), rows),
    )


def _errors() -> Iterator[type[FacetError]]:
    import_module("portal.api.urls")  # brings every module that has errors

    waiting: list[type[FacetError]] = [FacetError]
    while waiting:
        kind = waiting.pop(0)
        if kind.__module__.partition(".")[0] in ("portal", "orchestrator", "federation", "providers"):
            yield kind
        waiting += kind.__subclasses__()


def errors() -> str:
    """Return the page of error codes."""
    from portal.api.problems import TITLES  # noqa: PLC0415  # needs Django ready

    found: dict[str, tuple[set[int], set[bool]]] = {}
    for kind in _errors():
        statuses, retryable = found.setdefault(kind.code, (set(), set()))
        statuses.add(kind.http_status)
        retryable.add(kind.retryable)
    rows = [
        (
            f"`{code}`",
            " or ".join(str(status) for status in sorted(statuses)),
            "yes" if retryable == {True} else "no",
            *TITLES.get(code, ("", "")),
        )
        for code, (statuses, retryable) in sorted(found.items())
    ]
    return _page(
        "Error codes",
        "providers/errors.py and portal/api/problems.py",
        _prose(
            "Every failure of the API is `application/problem+json` (RFC 9457) with `type`, `title`, "
            "`status`, `detail`, `code`, `retry_safe`, `errors[]` (`pointer`, `code`, `message`), "
            "`remediation` and `next_actions`, and where it applies `retry_after_s` and `facts`. *Again* "
            "tells whether the same request is safe to send again."
        ),
        _table(("Code", "Status", "Again", "Meaning", "What to do"), rows),
    )


def skills() -> str:
    """Return the page of skills and of what can be read."""
    from portal.api.resources import RESOURCES  # noqa: PLC0415  # needs Django ready
    from portal.skills.every import SKILLS  # noqa: PLC0415  # needs Django ready

    called = [
        (f"`{one.name}`", one.summary, " or ".join(f"`{scope}`" for scope in one.scopes))
        for one in sorted(SKILLS.values(), key=lambda one: one.name)  # the order of import must not matter
    ]
    read = [
        (f"`/api/v1/{one.name}`", one.summary, ", ".join(f"`{name}`" for name in one.parameters()))
        for one in RESOURCES.values()
    ]
    return _page(
        "Skills and reads",
        "the registry of skills and portal/api/resources.py",
        _prose(
            "The exact schemas are in [openapi.json](openapi.json), at `GET /api/v1/skills` of a running "
            "Facet, and to browse at `/api/v1/docs`."
        ),
        "## Skills",
        "`POST /api/v1/skills/NAME` with a JSON object; any one of the scopes will do.",
        _table(("Skill", "Does", "Scope"), called),
        "## Reads",
        _prose(
            "`GET`, all with the scope `read`; one object at `/{id}`. Lists answer a page in `results` and "
            "the cursor of the following one in `next`, null at the end."
        ),
        _table(("Path", "Holds", "Query parameters"), read),
    )


def _spelled(action: Action) -> str:
    if action.option_strings:
        value = "" if action.nargs == 0 else f" {action.dest.upper()}"
        spelled = f"{action.option_strings[-1]}{value}"
        return spelled if action.required else f"[{spelled}]"
    return str(action.dest).upper()


def _own_actions(name: str) -> Iterator[Action]:
    command = load_command_class("portal", name)
    every = {option for action in _plain_actions() for option in action.option_strings}
    for action in command.create_parser("manage.py", name)._actions:  # noqa: SLF001  # argparse tells them nowhere else
        if action.help != SUPPRESS and not set(action.option_strings) & every:
            yield action


def _plain_actions() -> Sequence[Action]:
    return BaseCommand().create_parser("manage.py", "none")._actions  # noqa: SLF001  # as above


def commands() -> str:
    """Return the page of commands."""
    usage = "\n".join(
        line.strip() for line in str(run.__doc__).splitlines() if line.strip().startswith("python3 run.py")
    )
    missing = [word for word in run.COMMANDS if f"run.py {word}" not in usage]
    if missing:
        raise ValueError(f"run.py does not describe {', '.join(missing)}")
    rows = []
    for path in sorted((ROOT / "portal" / "management" / "commands").glob("[!_]*.py")):
        words = " ".join([path.stem, *(_spelled(action) for action in _own_actions(path.stem))])
        rows.append((f"`{words}`", load_command_class("portal", path.stem).help))
    return _page(
        "Commands",
        "portal/management/commands/ and run.py",
        f"```text\n{usage}\n```",
        _prose(
            "`demo`, `up` and `manage` read the [environment variables](environment.md); `test` reads "
            "`DATA_DIR`, `DATABASE_URL` and `REDIS_URL`. `PORT` and `DATA_DIR` let several copies run "
            "side by side."
        ),
        "## Django's command line",
        _prose(
            "Run as `python3 run.py manage …`: it uses the servers of a running installation with the same "
            "`DATA_DIR`, or starts them for the length of the command. Django's own commands "
            "(`createsuperuser`, `migrate`, `shell`, …) work too."
        ),
        _table(("Command", "Does"), rows),
        "## Health",
        _prose(
            "`GET /healthz` answers 200 while the process is up. `GET /readyz` answers 200 when Facet can do "
            "its work, else 503, with `ok` and a reason for each part."
        ),
    )


PAGES: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "environment": environment,
    "errors": errors,
    "events": events,
    "reason-codes": reasons,
    "skills": skills,
    "states": states,
}


def stale() -> list[str]:
    """Return the pages that are missing or not what the code says now."""
    kept = {name: HERE / "reference" / f"{name}.md" for name in PAGES}
    return [name for name, path in kept.items() if not path.exists() or path.read_text() != PAGES[name]()]


def main(words: Sequence[str]) -> int:
    """Write the pages, or compare them; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        if not settings.configured:
            os.environ |= {"DATA_DIR": folder, "DJANGO_SETTINGS_MODULE": "portal.settings"}
        django.setup()
        behind = stale()
        if "--check" not in words:
            for name in behind:
                (HERE / "reference" / f"{name}.md").write_text(PAGES[name]())
    did = "not current" if "--check" in words else "written"
    sys.stdout.write("".join(f"docs/reference/{name}.md: {did}\n" for name in behind))
    return 1 if behind and "--check" in words else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
