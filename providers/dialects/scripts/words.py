"""Directive lines as options: splitting like a shell, unique prefixes, glued short options."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from providers.dialects.scripts.sheet import Sheet

Takes = Literal["value", "none", "maybe"]


@dataclass(frozen=True, slots=True)
class Given:
    """One option as it was given; `name` is the full name without dashes."""

    name: str
    value: str | None
    line: int

    @property
    def text(self) -> str:
        """The option in the scheduler's own words."""
        dashes = "-" if len(self.name) == 1 else "--"
        return f"{dashes}{self.name}" if self.value is None else f"{dashes}{self.name}={self.value}"


@dataclass(frozen=True, slots=True)
class Table:
    """The options of one command: how each takes its value, and one-letter names."""

    takes: Mapping[str, Takes]
    shorts: Mapping[str, str]

    def matching(self, prefix: str) -> list[str]:
        """Return the options a long name can stand for: itself, or all it is a prefix of."""
        if prefix in self.takes:
            return [prefix]
        return sorted(name for name in self.takes if name.startswith(prefix))


def table(values: str, flags: str, maybe: str = "") -> Table:
    """Return a table from words like `nodes/N`; `maybe` options take a value only after `=`."""
    takes: dict[str, Takes] = {}
    shorts: dict[str, str] = {}
    kinds: tuple[tuple[Takes, str], ...] = (("value", values), ("none", flags), ("maybe", maybe))
    for kind, listed in kinds:
        for word in listed.split():
            name, _, short = word.partition("/")
            takes[name] = kind
            if short:
                shorts[short] = name
    return Table(takes=takes, shorts=shorts)


def split_words(text: str) -> tuple[list[str], str, bool]:
    """Return (words, comment, closed): quotes and backslashes as in a shell, no expansion.

    A `#` that begins a word begins a comment. `closed` is False when a quote never ends.
    """
    words: list[str] = []
    word, quote, started, index = "", "", False, 0
    while index < len(text):
        char = text[index]
        if quote:
            if char == quote:
                quote = ""
            else:
                word += char
        elif char in "'\"":
            quote, started = char, True
        elif char == "\\" and index + 1 < len(text):
            index += 1
            word, started = word + text[index], True
        elif char.isspace():
            if started:
                words.append(word)
            word, started = "", False
        elif char == "#" and not started:
            return words, text[index:], True
        else:
            word, started = word + char, True
        index += 1
    return ([*words, word] if started else words), "", not quote


def words_of(sheet: Sheet, line: int, text: str) -> list[str]:
    """Return the words of one directive line; comments and open quotes are remarked."""
    # A template's hole is one word, whatever blanks it holds.
    words, comment, closed = split_words(re.sub(r"\{\{\s*([\w.]+)\s*\}\}", r"{{\1}}", text))
    if comment:
        sheet.note("ignored", line, comment, "text after # is a comment")
    if not closed:
        sheet.note("refusals", line, text, "a quote is opened and never closed")
    return words


def read_long_options(sheet: Sheet, line: int, words: Sequence[str], known: Table) -> list[Given]:
    """Return the options of one line, read as getopt_long and argparse do."""
    given: list[Given] = []
    rest = iter(words)
    for word in rest:
        if word.startswith("--") and len(word) > 2:
            found = _long(sheet, line, word, rest, known)
        elif word.startswith("-") and len(word) > 1:
            found = _short(sheet, line, word, rest, known)
        else:
            sheet.note("refusals", line, word, f"Invalid directive found in batch script: {word}")
            continue
        given.extend(found)
    return given


def _long(sheet: Sheet, line: int, word: str, rest: Iterator[str], known: Table) -> list[Given]:
    prefix, equals, value = word[2:].partition("=")
    names = known.matching(prefix)
    if len(names) > 1:
        choice = " or ".join(f"--{name}" for name in names)
        sheet.note("refusals", line, word, f"ambiguous option: {choice}")
        return []
    if not names:
        sheet.note("not_understood", line, word, f"unknown option --{prefix}")
        return []
    name = names[0]
    takes = known.takes[name]
    if takes == "none" or (takes == "maybe" and not equals):
        return [Given(name, None, line)]
    return _with_value(sheet, line, name, value if equals else next(rest, None))


def _short(sheet: Sheet, line: int, word: str, rest: Iterator[str], known: Table) -> list[Given]:
    given: list[Given] = []
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        name = known.shorts.get(letter)
        if name is None:
            sheet.note("not_understood", line, word, f"unknown option -{letter}")
            return given
        if known.takes[name] == "value":
            value = letters.removeprefix("=") if letters else next(rest, None)
            return given + _with_value(sheet, line, name, value)
        if known.takes[name] == "maybe":
            return [*given, Given(name, letters.removeprefix("=") or None, line)]
        given.append(Given(name, None, line))
    return given


def _with_value(sheet: Sheet, line: int, name: str, value: str | None) -> list[Given]:
    if value is None or value == "":
        sheet.note("refusals", line, f"--{name}", f"option --{name} needs a value")
        return []
    return [Given(name, value, line)]


def read_dash_options(sheet: Sheet, line: int, words: Sequence[str], known: Mapping[str, int]) -> list[Given]:
    """Return options of commands whose names are single-dash words (qsub, bsub).

    `known` says how many values each takes; a value may be glued to a one-letter name.
    Several values are joined by one blank. A long option (`--name value`) is looked up as `-name`.
    """
    given: list[Given] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word[1:].partition("=")
        if not word.startswith("-") or len(word) < 2:
            sheet.note("refusals", line, word, f"stray word {word}: quote values that hold blanks")
        elif known.get(word[1:]) is not None:
            values = [taken for _ in range(known[word[1:]]) if (taken := next(rest, None)) is not None]
            if len(values) < known[word[1:]]:
                sheet.note("refusals", line, word, f"option {word} needs a value")
            else:
                given.append(Given(word[1:], " ".join(values) if values else None, line))
        elif equals and known.get(name) == 1:
            given.append(Given(name, value, line))
        elif known.get(word[1]) == 1 and not word.startswith("--"):
            given.append(Given(word[1], word[2:], line))
        else:
            sheet.note("not_understood", line, word, f"unknown option {word}")
    return given
