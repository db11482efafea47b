"""What users, accounts and QoS may hold at once, and what they hold.

Source: sacctmgr(1) show qos, show association; resource_limits.html; scontrol(1) show assoc_mgr;
sshare(1). Columns are found by their header, so that a version's new ones do no harm.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from providers.dialects.slurm.gres import read_tres
from providers.dialects.slurm.records import read_table, reading
from providers.dialects.slurm.units import (
    NOTHING,
    finite,
    read_count,
    read_limit_s,
    read_maximum,
    read_words,
)
from providers.errors import UnparsableOutput
from providers.types import Association, Limits, Qos

SHOW_QOS: Final = (
    "sacctmgr",
    "-P",
    "show",
    "qos",
    "format=Name,Priority,Flags,GrpTRES,GrpJobs,GrpSubmit,MaxTRES,MaxWall,MaxTRESPU,MaxJobsPU,MaxSubmitPU",
)
_COLUMNS: Final = (
    *("Account", "User", "Partition", "ParentName", "GrpJobs", "GrpTRES", "GrpSubmit"),
    *("MaxJobs", "MaxTRES", "MaxSubmit", "MaxWall", "QOS", "DefaultQOS"),
)
SHOW_ASSOCIATIONS: Final = (
    "sacctmgr",
    "-P",
    "show",
    "association",
    "format=" + ",".join(_COLUMNS),
)
"""Everybody's rows that we may see: those of accounts, which hold the group limits, come only so."""
SHOW_USAGE: Final = ("sshare", "-U", "-P")
_USED: Final = re.compile(r"(?P<limit>N|\d+)\((?P<used>\d+)\)", re.ASCII)
_QOS: Final = re.compile(r"^QOS=(?P<name>[^\s(]+)\(\d+\)\n(?P<body>(?:[ \t]+.*\n?)*)", re.MULTILINE)


# --- QoS ------------------------------------------------------------------------------------------


def read_qos(text: str) -> tuple[Qos, ...]:
    """Return the QoS of `sacctmgr -P show qos`. An empty cell is no limit, 0 is a hard zero.

    Raises:
        UnparsableOutput: a cell is not understood, or there is no header.
    """
    command = "sacctmgr show qos"
    found: list[Qos] = []
    for row in read_table(text, command=command, need=frozenset({"Name"})):
        with reading(command, "|".join(row.values())):
            per_job = _limits(tres=row.get("MaxTRES"), wall=row.get("MaxWall"))
            found.append(
                Qos(
                    name=row["Name"],
                    priority=read_maximum(row.get("Priority", "")) or 0,
                    flags=read_words(row.get("Flags")),
                    per_job=per_job,
                    per_user=_limits(
                        tres=row.get("MaxTRESPU"), jobs=row.get("MaxJobsPU"), submit=row.get("MaxSubmitPU")
                    ),
                    group=_limits(
                        tres=row.get("GrpTRES"), jobs=row.get("GrpJobs"), submit=row.get("GrpSubmit")
                    ),
                )
            )
    return tuple(found)


def _limits(
    *, tres: str | None = "", jobs: str | None = "", submit: str | None = "", wall: str | None = ""
) -> Limits:
    numbers = read_tres(tres or "")
    return Limits(
        max_jobs=read_maximum(jobs or ""),
        max_submit_jobs=read_maximum(submit or ""),
        max_walltime_s=finite(read_limit_s(wall or "")),
        max_gpus=numbers.get("gres/gpu"),
        max_cpus=numbers.get("cpu"),
        max_nodes=numbers.get("node"),
        max_memory_mib=numbers.get("mem"),
    )


# --- associations ---------------------------------------------------------------------------------


class _Row(NamedTuple):
    account: str
    user: str
    cells: Mapping[str, str]


def read_associations(
    text: str, *, user: str | None = None, fairshare: Mapping[tuple[str, str], float] | None = None
) -> tuple[Association, ...]:
    """Return user associations; rows without a user are the accounts themselves.

    `group` is the tightest of the row's own group limits and those of the accounts above it: they bind
    the user although the row does not show them.

    Args:
        text: `sacctmgr -P show association` with header.
        user: Whose rows to keep; None keeps everybody's.
        fairshare: By (account, user), from `read_fairshare`.

    Raises:
        UnparsableOutput: a cell is not understood, or there is no header.
    """
    command = "sacctmgr show association"
    need = frozenset({"Account", "User"})
    rows = [_Row(row["Account"], row["User"], row) for row in read_table(text, command=command, need=need)]
    parents: dict[str, str] = {}
    groups: dict[str, Limits] = {}
    for row in rows:
        if not row.user:
            with reading(command, "|".join(row.cells.values())):
                parents[row.account] = row.cells.get("ParentName") or row.cells.get("Par Name") or ""
                groups[row.account] = _group(row.cells)
    found: list[Association] = []
    for row in rows:
        if row.user and user in (None, row.user):
            with reading(command, "|".join(row.cells.values())):
                above = [groups[name] for name in _line(row.account, parents) if name in groups]
                share = (fairshare or {}).get((row.account, row.user))
                found.append(_association(row, above=above, share=share))
    return tuple(found)


def _group(cells: Mapping[str, str]) -> Limits:
    return _limits(tres=cells.get("GrpTRES"), jobs=cells.get("GrpJobs"), submit=cells.get("GrpSubmit"))


def _line(account: str, parents: Mapping[str, str]) -> tuple[str, ...]:
    """Return the account and those above it, each once."""
    line: list[str] = []
    while account and account not in line:
        line.append(account)
        account = parents.get(account, "")
    return tuple(line)


def _association(row: _Row, *, above: Iterable[Limits], share: float | None) -> Association:
    cells = row.cells
    default = cells.get("Def QOS") or cells.get("DefaultQOS") or ""
    return Association(
        account=row.account,
        user=row.user,
        partition=cells.get("Partition") or None,
        qos=read_words(cells.get("QOS")),
        default_qos=None if default in NOTHING else default,
        limits=_limits(
            tres=cells.get("MaxTRES"),
            jobs=cells.get("MaxJobs"),
            submit=cells.get("MaxSubmit"),
            wall=cells.get("MaxWall"),
        ),
        group=tightest(_group(cells), *above),
        fairshare=share,
    )


def tightest(*limits: Limits) -> Limits:
    """Return the limits that hold where all of these do."""
    merged: dict[str, int] = {}
    for each in limits:
        for name, value in each.model_dump().items():
            if value is not None:
                merged[name] = min(value, merged.get(name, value))
    return Limits(**merged)


def read_fairshare(text: str) -> dict[tuple[str, str], float]:
    """Return the fair-share factor (0 to 1) by (account, user) from `sshare -P`.

    Raises:
        UnparsableOutput: a factor is no number, or there is no header.
    """
    command = "sshare -P"
    shares: dict[tuple[str, str], float] = {}
    for row in read_table(text, command=command, need=frozenset({"Account", "User", "FairShare"})):
        if row["User"] and row["FairShare"]:
            with reading(command, "|".join(row.values())):
                shares[row["Account"].strip(), row["User"]] = _factor(row["FairShare"])
    return shares


def _factor(text: str) -> float:
    if re.fullmatch(r"\d+\.\d+|inf", text, re.ASCII) is None:
        raise UnparsableOutput(f"{text[:80]!r} is no fair-share factor", field="FairShare", text=text[:200])
    return min(1.0, float(text))


# --- what is used now -----------------------------------------------------------------------------


class Used(NamedTuple):
    """One limit and what is used of it; limit None = none, 0 = nothing allowed."""

    limit: int | None
    used: int

    @property
    def is_blocked(self) -> bool:
        """Whether nothing more fits."""
        return self.limit is not None and self.used >= self.limit


def read_used(text: str) -> dict[str, Used]:
    """Return "cpu=N(12),gres/gpu=4(3)" by key.

    Raises:
        UnparsableOutput: a part is no key=limit(used).
    """
    found: dict[str, Used] = {}
    for part in text.split(",") if text else ():
        key, _, value = part.partition("=")
        match = _USED.fullmatch(value)
        if match is None:
            raise UnparsableOutput(f"{part[:80]!r} is no limit(used)", field="usage", text=text[:200])
        limit = None if match["limit"] == "N" else read_count(match["limit"])
        found[key] = Used(limit, read_count(match["used"]))
    return found


def read_qos_usage(text: str) -> dict[str, dict[str, Used]]:
    """Return by QoS what its group limits are and how much is used, from `scontrol show assoc_mgr flags=qos`.

    Raises:
        UnparsableOutput: there is no QoS, or a limit is not understood.
    """
    command = "scontrol show assoc_mgr"
    usage: dict[str, dict[str, Used]] = {}
    for match in _QOS.finditer(text):
        with reading(command, match[0]):
            tres = re.search(r"^\s+GrpTRES=(\S*)$", match["body"], re.MULTILINE)
            usage[match["name"]] = read_used(tres[1]) if tres else {}
    if not usage:
        raise UnparsableOutput(f"{command} printed no QoS", command=command, line=text[:200])
    return usage
