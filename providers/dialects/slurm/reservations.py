"""Reservations: nodes set aside, whole or by cores.

Source: scontrol(1) show reservation, reservations.html, versions 20.11 to 25.11.
"""

import re
from collections.abc import Mapping
from typing import Final

from providers.dialects.slurm.gres import read_tres
from providers.dialects.slurm.hostlist import expand, read_tasks
from providers.dialects.slurm.records import Record, reading, split_records
from providers.dialects.slurm.units import NOTHING, read_instant, read_words
from providers.errors import UnparsableOutput
from providers.types import Reservation

SHOW_RESERVATIONS: Final = ("scontrol", "-a", "-o", "show", "reservation")
_COMMAND: Final = " ".join(SHOW_RESERVATIONS)
_NONE: Final = "No reservations in the system"
_CORES: Final = re.compile(r"\sNodeName=(\S+)\s+CoreIDs=(\S+)")


def _records(text: str) -> tuple[Record, ...]:
    if text.strip() == _NONE:
        return ()
    records = tuple(split_records(text, first_key="ReservationName", command=_COMMAND))
    if not records:
        raise UnparsableOutput(f"{_COMMAND} printed nothing", command=_COMMAND, line="")
    return records


def read_reservations(text: str) -> tuple[Reservation, ...]:
    """Return the reservations of `scontrol [-o] show reservation`; () when Slurm says there are none.

    Raises:
        UnparsableOutput: a record is not understood, or nothing was printed at all.
    """
    found: list[Reservation] = []
    for record in _records(text):
        with reading(_COMMAND, record.line):
            found.append(_reservation(record))
    return tuple(found)


def _reservation(record: Record) -> Reservation:
    start_at = read_instant(record.need("StartTime"))
    if start_at is None:
        raise UnparsableOutput("a reservation has no start", field="StartTime")
    partition = record.get("PartitionName")
    return Reservation(
        name=record.need("ReservationName"),
        start_at=start_at,
        end_at=read_instant(record.need("EndTime")),
        node_names=expand(record.need("Nodes")),
        partition=None if partition in NOTHING else partition,
        users=read_words(record.get("Users")),
        accounts=read_words(record.get("Accounts")),
        flags=frozenset(read_words(record.get("Flags"))),
    )


def partly_reserved(text: str) -> Mapping[str, int]:
    """Return the reserved cores of each node of which active reservations take only some cores.

    A node that any active reservation takes whole is left out, as is one whose reservation names other
    resources than CPUs: what remains of it is not known.

    Raises:
        UnparsableOutput: a record is not understood.
    """
    cores: dict[str, int] = {}
    whole: set[str] = set()
    for record in _records(text):
        if record.need("State") != "ACTIVE":
            continue
        with reading(_COMMAND, record.line):
            parts = _part_of_nodes(record)
            if set(read_tres(record.get("TRES"))) <= {"cpu"}:
                for name, count in parts.items():
                    cores[name] = cores.get(name, 0) + count
                whole |= set(expand(record.need("Nodes"))) - set(parts)
            else:
                whole |= set(expand(record.need("Nodes")))
    return {name: count for name, count in cores.items() if name not in whole}


def _part_of_nodes(record: Record) -> dict[str, int]:
    parts: dict[str, int] = {}
    for nodes, ids in _CORES.findall(record.line):
        ranges, _ = read_tasks(ids)
        for name in expand(nodes):
            parts[name] = parts.get(name, 0) + sum(map(len, ranges))
    return parts
