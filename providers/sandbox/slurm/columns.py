"""Columns of squeue and sinfo: `%.18i` formats and `Field:width` lists, headers and padding."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")

DEFAULT_WIDTH = 20


class Column:
    """One column: which value, how wide (0 = as it comes), which side, what follows it."""

    __slots__ = ("auto", "code", "prefix", "right", "suffix", "width")

    def __init__(
        self, code: str, width: int, *, right: bool, suffix: str, prefix: str = "", auto: bool = False
    ):
        self.code, self.width, self.right = code, width, right
        self.suffix, self.prefix, self.auto = suffix, prefix, auto

    def cell(self, text: str) -> str:
        """Return the text cut and padded."""
        if self.width:
            text = (
                text[: self.width].rjust(self.width) if self.right else text[: self.width].ljust(self.width)
            )
        return f"{self.prefix}{text}{self.suffix}"


class BadFormat(ValueError):
    """A code or field is not known; the message is the code or field."""


def short_columns(text: str, known: Mapping[str, object]) -> list[Column]:
    """Read a `-o` format: `%[.#][width]code` with anything between; `#` fits the widest value."""
    found = []
    prefix, _, rest = text.partition("%")
    for piece in ("%" + rest).split("%")[1:]:
        shape = re.fullmatch(r"(\.)?(#)?(\d*)([A-Za-z])(.*)", piece, re.DOTALL)
        if shape is None or shape.group(4) not in known:
            raise BadFormat(f"%{piece}".strip() if shape is None else f"%{shape.group(4)}")
        dot, auto, width, code, suffix = shape.groups()
        found.append(
            Column(code, int(width or 0), right=bool(dot), suffix=suffix, prefix=prefix, auto=bool(auto))
        )
        prefix = ""
    return found


def long_columns(text: str, known: Mapping[str, object]) -> list[Column]:
    """Read a `-O` list: `Name`, `Name:30`, `Name:.30`, `Name:|`; without a colon 20 wide and cut."""
    found = []
    for part in text.split(","):
        name, colon, shape = part.partition(":")
        code = name.strip().lower()
        if code not in known:
            raise BadFormat(name.strip())
        size = re.fullmatch(r"(\.)?(\d*)(.*)", shape, re.DOTALL)
        dot, width, suffix = size.groups() if size else (None, "", shape)
        found.append(
            Column(code, int(width or 0) if colon else DEFAULT_WIDTH, right=bool(dot), suffix=suffix or "")
        )
    return found


def table(
    columns: list[Column],
    rows: list[T],
    values: Mapping[str, tuple[str, Callable[[T], str]]],
    *,
    header: bool,
) -> list[str]:
    """Return the printed lines; `values` maps a code to its heading and its reader."""
    for column in columns:
        if column.auto:
            heading, read = values[column.code]
            column.width = max([len(heading), *(len(read(row)) for row in rows)])
    lines = ["".join(c.cell(values[c.code][0]) for c in columns)] if header else []
    readers = [(column.cell, values[column.code][1]) for column in columns]
    lines.extend("".join(cell(read(row)) for cell, read in readers) for row in rows)
    return lines
