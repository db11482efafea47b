"""Which limit of its own user holds a waiting job back: when jobs of theirs end, its turn comes. Pure."""

from typing import Final, Literal

Cap = Literal["jobs", "gpus", "cpus", "nodes"]

_CAPS: Final[dict[str, Cap]] = {
    "QOSMaxJobsPerUserLimit": "jobs",
    "AssocMaxJobsLimit": "jobs",
    "QOSMaxGRESPerUser": "gpus",
    "QOSMaxCpuPerUserLimit": "cpus",
    "QOSMaxNodePerUserLimit": "nodes",
}
"""Slurm's words. Limits on one job are not here: such a job never starts."""


def cap_of(reason: str) -> Cap | None:
    """Return what the limit counts, None where the job waits for something else."""
    return _CAPS.get(reason.partition(",")[0])
