"""What real Slurm printed, and the hard cases, from `tests/data`."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from providers.dialects.slurm.queue import COLUMNS, FIELD_END, RECORD_END
from providers.types import BatchReply, Node, QueueJob, Reply

DATA = Path(__file__).parents[2] / "data"
CAPTURES = [f"{c}/{s}" for c in ("delta", "deltaai", "anvil", "vista") for s in ("idle", "busy", "mixed")]
VERSIONS = ["20.11", "22.05", "25.11"]


@cache
def recorded(path: str) -> str:
    """Return a recording under tests/data/slurm, compressed or not."""
    plain = DATA / "slurm" / path
    if plain.exists():
        return plain.read_text()
    return gzip.decompress(plain.with_name(plain.name + ".gz").read_bytes()).decode()


@cache
def cases() -> dict[str, Any]:
    """Return the hard cases by id."""
    lines = (DATA / "cases" / "slurm_read.jsonl").read_text().splitlines()
    return {case["id"]: case for case in map(json.loads, lines)}


def case(name: str) -> tuple[Any, Any]:
    """Return (input, expected) of a case."""
    found = cases()[name]
    return found["input"], found["expected"]


def by_name(nodes: tuple[Node, ...]) -> dict[str, Node]:
    return {node.name: node for node in nodes}


def by_id(jobs: tuple[QueueJob, ...]) -> dict[str, QueueJob]:
    return {job.job_id: job for job in jobs}


def queue_text(*jobs: dict[str, str]) -> str:
    """Return what squeue prints for these jobs: columns by name, sensible values for the rest."""
    usual = {
        "JobArrayID": "44",
        "PriorityLong": "100",
        "SubmitTime": "2031-02-03T04:05:06",
        "StartTime": "N/A",
        "NodeList": "",
        "State": "PENDING",
        "UserName": "alice",
        "Account": "physics",
        "Partition": "gpu",
        "QOS": "normal",
        "NumNodes": "1",
        "NumCPUs": "1",
        "tres-alloc": "cpu=1,mem=4000M,node=1,billing=1",
        "tres-per-node": "N/A",
        "tres-per-job": "N/A",
        "TimeLimit": "1:00:00",
        "Reason": "Priority",
    }
    return "".join(
        FIELD_END.join((usual | job)[name] for name in COLUMNS) + RECORD_END + "\n" for job in jobs
    )


def node_text(name: str = "wg01", **fields: str) -> str:
    """Return what `scontrol -o -d show node` prints: fields by name, sensible values for the rest."""
    usual = {
        "Arch": "x86_64",
        "CPUAlloc": "0",
        "CPUTot": "64",
        "ActiveFeatures": "(null)",
        "Gres": "(null)",
        "RealMemory": "512000",
        "AllocMem": "0",
        "State": "IDLE",
        "ThreadsPerCore": "1",
        "Partitions": "gpu",
        "AllocTRES": "",
    }
    tail = {key: fields.pop(key) for key in ("Reason", "Comment", "Extra") if key in fields}
    words = {"NodeName": name} | usual | fields | tail
    return " ".join(f"{key}={value}" for key, value in words.items()) + "\n"


def answers(**stdout: str | Reply) -> BatchReply:
    """Return replies by operation name: text for a program that ended with 0."""
    return BatchReply(
        replies={
            name: said if isinstance(said, Reply) else Reply(name=name, rc=0, stdout=said)
            for name, said in stdout.items()
        }
    )
