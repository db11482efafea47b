"""What accounts may use and have used, as `sshare` tells it in TRES-minutes.

Source: sshare(1); a limit binds an account and everything under it. `GrpTRESRaw` is in minutes, rounded
down, and decays where the site lets usage decay (PriorityDecayHalfLife). Recorded from 22.05.8.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from providers.dialects.slurm.records import read_table, reading
from providers.errors import UnparsableOutput

SHOW_SHARES: Final = ("sshare", "-P", "-o", "Account,User,GrpTRESMins,GrpTRESRaw")
"""The user's own rows, and those of the accounts above them, which hold the limits."""


class Share(NamedTuple):
    """One account of the user: minutes of a TRES granted (None = no limit) and used."""

    account: str
    granted_min: int | None
    used_min: int


class _Row(NamedTuple):
    depth: int
    account: str
    user: str
    limits: Mapping[str, int]
    used: Mapping[str, int]


def read_shares(text: str, *, user: str, tres: str) -> tuple[Share, ...]:
    """Return the user's accounts with the limit that leaves least: their own, the account's or one above.

    Raises:
        UnparsableOutput: there is no header, or a cell is no list of name=count.
    """
    command = " ".join(SHOW_SHARES)
    above: list[_Row] = []
    found: dict[str, Share] = {}
    for cells in read_table(text, command=command, need=frozenset({"Account", "User", "GrpTRESMins"})):
        with reading(command, "|".join(cells.values())):
            row = _read(cells)
        above = [each for each in above if each.depth < row.depth]
        if not row.user:
            above.append(row)
        elif row.user == user:
            share = _tightest([row, *reversed(above)], tres)
            found[row.account] = Share(row.account, *share)
    return tuple(found.values())


def _read(cells: Mapping[str, str]) -> _Row:
    name = cells["Account"]
    return _Row(
        depth=len(name) - len(name.lstrip(" ")),
        account=name.strip(),
        user=cells["User"],
        limits=_counts(cells["GrpTRESMins"]),
        used=_counts(cells.get("GrpTRESRaw", "")),
    )


def _counts(text: str) -> dict[str, int]:
    found = {}
    for part in text.split(",") if text else ():
        name, _, count = part.rpartition("=")
        if not name or not count.isdecimal():
            raise UnparsableOutput(f"{part[:80]!r} is no name=minutes", field="GrpTRES", text=text[:200])
        found[name] = int(count)
    return found


def _tightest(rows: list[_Row], tres: str) -> tuple[int | None, int]:
    """Return granted and used of the row that leaves least; without any limit, what the user's row used."""
    limited = [(row.limits[tres], row.used.get(tres, 0)) for row in rows if tres in row.limits]
    if not limited:
        return None, rows[0].used.get(tres, 0)
    return min(limited, key=lambda pair: pair[0] - pair[1])
