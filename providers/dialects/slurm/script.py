"""A whole batch script as `sbatch` reads it: the `#SBATCH` lines, then what every scheduler's script does."""

from providers.dialects.body import body_lines
from providers.dialects.slurm.directives import directives
from providers.types import JobRequest


def render_script(job: JobRequest) -> str:
    """Return the script as `sbatch` reads it.

    Raises:
        InvalidInput: a field cannot be rendered safely, or there is not exactly one kind of work.
    """
    parts = ["#!/bin/bash", *(f"#SBATCH {line}" for line in directives(job)), "", *body_lines(job)]
    return "\n".join(parts) + "\n"
