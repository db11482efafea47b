"""Where a script's directives stand: its head, the directives that come too late, and its body."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from providers.dialects.scripts.body import outside_heredocs, read_body
from providers.dialects.scripts.sheet import Sheet
from providers.dialects.scripts.text import ScriptText, plain_dashes
from providers.dialects.scripts.types import Body

Lines = Sequence[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Layout:
    """Numbered lines. `directives` hold what follows the prefix; the others are whole lines."""

    directives: Lines
    late: Lines
    near: Lines
    body: Lines

    def read_body(self, sheet: Sheet) -> Body:
        """Return what the body says; its remarks go to the sheet too."""
        body = read_body(self.body)
        sheet.notes["not_understood"].extend(body.notes)
        return body


def lay_out(text: ScriptText, prefix: str, *, anywhere: bool = False) -> Layout:
    """Split a script at its first command.

    Args:
        text: The script.
        prefix: Regular expression of a directive's beginning, matched in column 1.
        anywhere: Directives count after commands too (Grid Engine).
    """
    pattern = re.compile(prefix)
    nearly = re.compile(rf"\s*#+\s*(?:{prefix.lstrip('#')})")
    head: list[tuple[int, str]] = []
    near: list[tuple[int, str]] = []
    late: list[tuple[int, str]] = []
    lines = list(text.numbered())
    first = next(
        (n for n, line in lines if line.strip() and not line.lstrip().startswith("#")), len(lines) + 1
    )
    for number, line in lines[: first - 1]:
        match = pattern.match(line)
        if match:
            head.append((number, line[match.end() :]))
        elif nearly.match(line):
            near.append((number, line))
    body = lines[first - 1 :]
    for number, line in outside_heredocs(body, []):
        match = pattern.match(line)
        if match and anywhere:
            head.append((number, line[match.end() :]))
        elif match:
            late.append((number, line))
    return Layout(directives=head, late=late, near=near, body=body)


def remark_on_strays(sheet: Sheet, layout: Layout, name: str) -> None:
    """Record directives that do not count: too late, indented, or commented out."""
    for number, line in layout.late:
        sheet.note("ignored", number, line, f"{name} after the first command is ignored")
    for number, line in layout.near:
        why = "indented" if line[0].isspace() else "commented out"
        sheet.note("ignored", number, line, f"{why}: {name} must stand in column 1, written exactly so")


def with_plain_dashes(sheet: Sheet, number: int, rest: str) -> str:
    """Return a directive with ASCII dashes and quotes; typographic ones are refused by schedulers."""
    plain = plain_dashes(rest)
    if plain != rest:
        why = "typographic dashes, quotes or blanks: the scheduler does not know them; read as ASCII"
        sheet.note("refusals", number, rest.strip(), why)
    return plain
