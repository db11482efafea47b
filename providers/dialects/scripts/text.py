"""A batch script as lines: line ends, byte-order mark, dashes and junk settled before anybody reads it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from providers.dialects.scripts.types import Note
from providers.errors import InvalidInput

MAX_CHARS = 1_000_000
_DASHES = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212"), "-")
_QUOTES = {0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"', 0x00A0: " "}


@dataclass(frozen=True, slots=True)
class ScriptText:
    """Lines without their ends (index 0 is line 1), and what was odd about the file."""

    lines: tuple[str, ...]
    refusals: tuple[Note, ...]
    warnings: tuple[Note, ...]

    def numbered(self) -> Iterator[tuple[int, str]]:
        """Yield (line number from 1, line)."""
        return enumerate(self.lines, start=1)


def read_text(raw: object) -> ScriptText:
    """Return the script's lines.

    Raises:
        InvalidInput: not text, empty, binary, or too long.
    """
    text = _as_text(raw)
    refusals: list[Note] = []
    warnings: list[Note] = []
    if text.startswith("\ufeff"):
        text = text.removeprefix("\ufeff")
        refusals.append(Note(line=1, text="", why="byte-order mark before #!; save the file as plain UTF-8"))
    if not text.strip():
        raise _invalid("empty_script", "The script is empty: send its whole text.")
    if "\r\n" in text:
        why = "Batch script contains DOS line breaks (\\r\\n); read as if they were \\n, write it with \\n"
        refusals.append(Note(line=0, text="", why=why))
    lines = tuple(text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n"))
    if not lines[0].startswith("#!"):
        why = "no #! line: the scheduler refuses the script or guesses a shell; begin it with #!/bin/bash"
        warnings.append(Note(line=1, text=lines[0][:120], why=why))
    return ScriptText(lines=lines, refusals=tuple(refusals), warnings=tuple(warnings))


def plain_dashes(line: str) -> str:
    """Return a directive line with typographic dashes, quotes and blanks as their ASCII kin.

    Two hyphens often become one en dash: an en or em dash before a word of two letters or more is `--`.
    """
    long_option = re.sub(r"(?<=\s)[\u2013\u2014](?=[A-Za-z]{2})", "--", line)
    return long_option.translate(_DASHES).translate(_QUOTES)


def _as_text(raw: object) -> str:
    if isinstance(raw, bytes):
        try:
            raw = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise _invalid("binary_script", "The script is not UTF-8 text.") from None
    if not isinstance(raw, str):
        raise _invalid("wrong_type", f"The script must be text, not {type(raw).__name__}.")
    if len(raw) > MAX_CHARS:
        raise _invalid(
            "script_too_long", f"The script has {len(raw)} characters; at most {MAX_CHARS} are read."
        )
    if re.search(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\ud800-\udfff]", raw):
        raise _invalid("binary_script", "The script holds control characters: it is no text file.")
    return raw


def _invalid(code: str, message: str) -> InvalidInput:
    return InvalidInput(
        message, problems=(("/script", code, message),), remediation="Send a batch script as text."
    )
