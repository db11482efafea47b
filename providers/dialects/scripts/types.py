"""What a batch script asks for, in one vocabulary for all dialects.

Figures that end in no unit are counts; memory is MiB, time seconds. Totals are for the job.
None = the script is silent. Lines count from 1. Words of a site (partition, account, feature,
GPU type) stand as they were written: they are wishes, never authority.
"""

from typing import Literal

from pydantic import Field

from providers.types import Frozen

Dialect = Literal["slurm", "pbs", "lsf", "sge", "flux", "cobalt", "oar"]
DIALECTS: tuple[Dialect, ...] = ("slurm", "pbs", "lsf", "sge", "flux", "cobalt", "oar")


class Span(Frozen):
    """From the least asked for to the most."""

    min: int
    max: int


class Note(Frozen):
    """One remark on one line; `line` 0 means the script as a whole."""

    line: int
    text: str
    why: str


class MemoryAsk(Frozen):
    """Memory as it was asked: `mib` per `per`."""

    mib: int
    per: Literal["job", "node", "cpu", "gpu", "slot"]


class Chunk(Frozen):
    """One PBS chunk type: `count` equal pieces; figures per piece."""

    count: int
    cpus: int = 1
    tasks: int | None = None
    gpus: int = 0
    memory_mib: int | None = None


class Constraint(Frozen):
    """Feature words: all of these, and any of those. `same_on_all`: one choice for every node."""

    text: str
    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    same_on_all: bool = False


class ArrayAsk(Frozen):
    """A job array; None = the text gives no number."""

    text: str
    count: int | None = None
    step: int = 1
    max_concurrent: int | None = None


class Body(Frozen):
    """What the commands after the directives say."""

    modules: tuple[str, ...] = ()
    conda_env: str | None = None
    container_runtime: str | None = None
    container_image: str | None = None
    is_launcher: bool = False
    """The body submits other jobs."""
    generated: tuple[str, ...] = ()
    """Texts of scripts written by the body through here-documents."""
    lines: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    notes: tuple[Note, ...] = ()


class ScriptRequest(Frozen):
    """All that one script asks for."""

    dialect: Dialect
    nodes: Span | None = None
    tasks: Span | None = None
    cpus: Span | None = None
    gpus: Span | None = None
    gpus_per_node: int | None = None
    cpus_per_task: int | None = None
    gpu_types: tuple[str, ...] = ()
    """As written; any of them."""
    memory_mib: Span | None = None
    """Total, where it can be told."""
    memory_asked: MemoryAsk | None = None
    memory_limit_mib: int | None = None
    """A kill limit that reserves nothing (LSF -M)."""
    memory_is_all: bool = False
    """All memory of each node."""
    walltime_s: Span | None = None
    walltime_is_unlimited: bool = False
    """The script asks for no limit: the site's own limit holds."""
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    constraint: Constraint | None = None
    exclusive: bool = False
    array: ArrayAsk | None = None
    dependency: str | None = None
    job_name: str | None = None
    comment: str | None = None
    output_path: str | None = None
    error_path: str | None = None
    workdir: str | None = None
    local_scratch_mib: int | None = None
    """Total."""
    filesystems: tuple[str, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    body: Body = Body()
    variables: tuple[str, ...] = ()
    """Names that somebody must fill in: directives are not expanded by the scheduler."""
    lines: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """Which lines each field comes from."""
    reasons: dict[str, str] = Field(default_factory=dict)
    """How a figure was reckoned, where that is more than reading it."""
    ignored: tuple[Note, ...] = ()
    """The scheduler does not act on these."""
    not_understood: tuple[Note, ...] = ()
    refusals: tuple[Note, ...] = ()
    """The scheduler would refuse the script for these."""
    conflicts: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()
    extra: tuple[str, ...] = ()
    """Understood options that no field covers, in the dialect's own words."""

    @property
    def is_valid(self) -> bool:
        """Whether the scheduler would take the directives, as far as they can be read."""
        return not self.refusals
