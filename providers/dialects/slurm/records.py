"""Slurm's answers taken apart: which replies count, scontrol's Key=Value records, sacctmgr's tables, JSON.

A reply counts when its program ended by itself with exit status 0 and nothing was cut. Everything
else is no observation.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from providers.errors import SchedulerDown, UnparsableOutput
from providers.types import BatchReply, Reply

_TEXT_KEYS: Final = re.compile(r"\s(?:Reason|Comment|Extra|OS)=")
_STAMP: Final = re.compile(r"\s\[\S+@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\]")
_OS: Final = re.compile(r"\sOS=.*?(?=\sRealMemory=)", re.DOTALL)


# --- replies --------------------------------------------------------------------------------------


def counted(reply: BatchReply, name: str) -> str:
    """Return what the named program printed, if its reply counts.

    Raises:
        SchedulerDown: it is absent, failed, was skipped or did not end in time.
        UnparsableOutput: the answer was cut.
    """
    found = reply.replies.get(name)
    if found is None:
        raise SchedulerDown(f"there is no answer to {name!r}", command=name)
    why = _why_not(found)
    if why:
        raise SchedulerDown(
            f"{name!r} {why}", command=name, rc=found.rc, said=(found.stderr or found.stdout)[:500]
        )
    if found.truncated:
        raise UnparsableOutput(f"the answer to {name!r} was cut", command=name, line="")
    return found.stdout


def _why_not(reply: Reply) -> str:
    """Return why a reply is no observation; "" when it is one (though it may be cut)."""
    if reply.missing:
        return "is not installed there"
    if reply.timed_out:
        return "did not end in time"
    if reply.skipped:
        return "was not run, because a command before it failed"
    if reply.rc != 0:
        return f"failed with exit status {reply.rc}"
    return ""


def not_understood(cause: UnparsableOutput, *, command: str, line: str) -> UnparsableOutput:
    """Return the error with the command and the line added, unless it names them already."""
    if "command" in cause.facts:
        return cause
    told = UnparsableOutput(f"{command} printed what is not understood: {cause.message}")
    told.facts = {**cause.facts, "command": command, "line": line[:500]}
    return told


@contextmanager
def reading(command: str, line: str) -> Iterator[None]:
    """Add the command and the line to whatever is not understood inside."""
    try:
        yield
    except UnparsableOutput as cause:
        raise not_understood(cause, command=command, line=line) from cause


# --- scontrol -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """One record of `scontrol show`; `line` is its text for error reports."""

    fields: Mapping[str, str]
    line: str
    command: str

    def need(self, key: str) -> str:
        """Return the value of a key.

        Raises:
            UnparsableOutput: the record has no such key.
        """
        try:
            return self.fields[key]
        except KeyError:
            raise UnparsableOutput(
                f"{self.command} printed a record without {key}", command=self.command, line=self.line[:500]
            ) from None

    def get(self, key: str, default: str = "") -> str:
        """Return the value of a key, or the default where this version has no such key."""
        return self.fields.get(key, default)


def split_records(text: str, *, first_key: str, command: str) -> Iterator[Record]:
    """Yield the records of a listing, with or without -o.

    Each begins at the start of a line with `first_key=`. Free text (Reason, Comment, Extra, OS) is kept
    apart, so that nothing an administrator wrote can pass for a field; other keys count where they
    first appear.

    Raises:
        UnparsableOutput: the listing begins with something else, or a word is no Key=Value.
    """
    starts = [match.start() for match in re.finditer(rf"^{first_key}=", text, re.MULTILINE)]
    preamble = text[: starts[0]] if starts else text
    if preamble.strip():
        raise UnparsableOutput(
            f"{command} printed no {first_key}", command=command, line=preamble.strip()[:500]
        )
    for start, end in pairwise((*starts, len(text))):
        line = text[start:end].strip()
        yield Record(_fields(line, command), line, command)


def _fields(line: str, command: str) -> Mapping[str, str]:
    body = _OS.sub("", line, count=1)
    mark = _TEXT_KEYS.search(body)
    head, tail = (body[: mark.start()], body[mark.start() :]) if mark else (body, "")
    fields: dict[str, str] = {}
    for word in head.split():
        key, equals, value = word.partition("=")
        if not equals:
            raise UnparsableOutput(
                f"{command} printed {word!r}, which is no Key=Value", command=command, line=line[:500]
            )
        fields.setdefault(key, value)
    reason = re.search(r"\sReason=(.*)", tail, re.DOTALL)
    if reason:
        stamps = list(_STAMP.finditer(reason[1]))
        text = reason[1][: stamps[-1].start()] if stamps else re.split(r"\s(?:Comment|Extra)=", reason[1])[0]
        fields["Reason"] = " ".join(text.split())
    return fields


# --- sacctmgr, sshare -----------------------------------------------------------------------------


def read_table(text: str, *, command: str, need: frozenset[str]) -> Iterator[Mapping[str, str]]:
    """Yield the rows of a `-P` table by the names in its header.

    Raises:
        UnparsableOutput: no header with the needed columns, or a row of another width.
    """
    lines = text.splitlines()
    header = lines[0].split("|") if lines else []
    if not need <= set(header):
        raise UnparsableOutput(
            f"{command} printed no column {', '.join(sorted(need - set(header)))}",
            command=command,
            line=lines[0][:500] if lines else "",
        )
    for line in lines[1:]:
        cells = line.split("|")
        if len(cells) != len(header):
            raise UnparsableOutput(
                f"{command} printed {len(cells)} cells under {len(header)} columns",
                command=command,
                line=line[:500],
            )
        yield dict(zip(header, cells, strict=True))
