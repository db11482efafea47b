"""Our objects as the outside sees them: one class each, for API, pages, MCP and events alike. Pure values."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from pydantic import Field

from orchestrator.budgets_shown import CostShown
from orchestrator.placement.types import WaitClass
from providers.types import Frozen


class ForecastShown(Frozen):
    """What was predicted of an attempt's wait, and what came; null = not known yet, or not any more."""

    wait_class: WaitClass = Field(serialization_alias="class")
    p50_s: int
    p90_s: int
    actual_s: int | None = Field(description="From submission to start; null after a requeue.")
    within_2x: bool | None = Field(description="The longer of p50 and actual at most twice the shorter.")


class CalibrationShown(Frozen):
    """How good one kind of prediction at one partition was, over `n` of your attempts."""

    measure: str = Field(description="wait, runtime or charge.")
    system: str
    partition: str
    wait_class: WaitClass | None = Field(serialization_alias="class", description="Of waits.")
    basis: str | None = Field(description="Of runtimes and charges: declared, history or assumed.")
    unit: str = Field(description="s; of charges the site's own.")
    n: int
    within_1min: float | None = Field(
        description="Share whose actual was at most 60 s from p50; null: charges."
    )
    within_2x: float = Field(
        description="Share whose larger of p50 and actual was at most twice the smaller."
    )
    log_error: float = Field(description="Mean |ln(actual / p50)|: 0 = exact, 0.69 = twice or half.")
    p90_coverage: float = Field(description="Share whose actual was not over p90; 0.9 is right.")


class OutcomeShown(Frozen):
    """What was predicted of one measure of an attempt, and what came; null = not known yet."""

    measure: str = Field(description="runtime or charge.")
    unit: str
    p50: float
    p90: float
    actual: float | None = Field(description="Of a run that succeeded.")
    within_2x: bool | None


class AttemptShown(Frozen):
    """One try at one placement."""

    id: str
    task: str
    number: int
    state: str
    cause: str | None
    system: str
    partition: str
    account: str | None
    qos: str | None
    shape: dict[str, Any]
    decision: str
    predicted: dict[str, Any]
    forecast: ForecastShown | None = Field(description="The wait as predicted and as it came.")
    outcomes: list[OutcomeShown] = Field(description="Runtime and charge as predicted and as they came.")
    job_id: str | None
    state_raw: str | None
    reason_raw: str | None
    reason_explained: str | None
    observed_at: datetime | None
    planned_at: datetime
    submitted_at: datetime | None
    eligible_at: datetime | None
    expected_start_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    finished_at: datetime | None
    waited_s: int | None = Field(description="From submission to start, by the scheduler's own times.")
    ran_s: int | None
    exit_code: int | None
    exit_signal: int | None
    restarts: int
    nodes: list[str]
    workdir: str | None
    stdout: str | None
    stderr: str | None
    charge_reserved: Decimal = Field(description="Held for it now, in the unit of its predicted charge.")
    charge_settled: Decimal | None = Field(description="What it cost by accounting; null: not known yet.")
    cancel_requested_at: datetime | None
    rivalry: str | None = Field(
        description="Another open attempt may stand beside it: hedge, replaced (its system went out of "
        "sight) or successor. The first that is seen to start stays."
    )


class TaskShown(Frozen):
    """The user's unit of work."""

    id: str
    name: str
    objective: str
    state: str
    cause: str | None
    reason: str | None
    system: str | None
    partition: str | None
    account: str | None
    shape: dict[str, Any] | None
    attempt: AttemptShown | None = Field(description="The accepted attempt.")
    attempts: int
    envelope: str
    group: str | None
    client_ref: str | None
    project: str | None
    cost: list[CostShown] = Field(
        description="By system, each in its own unit; empty where nothing is charged."
    )
    manifest: str | None
    submitted_by: str
    cancel_requested: bool
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    next_actions: list[dict[str, Any]]


class EventShown(Frozen):
    """One event. `cursor` is its place in commit order."""

    id: str
    cursor: int
    type: str
    subject: str
    task: str | None
    group: str | None
    attempt: str | None
    transfer: str | None
    system: str | None
    actor: str
    on_behalf_of: str | None
    at: datetime
    state: str | None
    summary: str
    data: dict[str, Any]
    next_actions: list[dict[str, Any]]
    wake: str


class EnvelopeShown(Frozen):
    """A kept envelope: as given and as normalized."""

    id: str
    state: str = Field("kept", description="Envelopes never change.")
    source: str
    confidence: float | None
    envelope: dict[str, Any]
    original: dict[str, Any] | None
    rationale: dict[str, str]
    drafting: dict[str, Any] | None = Field(
        None, description="What a model's help cost; null: none was asked."
    )
    created_at: datetime


class DecisionShown(Frozen):
    """A placement decision as kept; a list shows it without what a candidate's sizing tried."""

    id: str
    state: str = Field(description="placed, or unschedulable.")
    task: str | None
    purpose: str = Field(description="submit, retry, replan, replace or hedge.")
    system: str | None
    partition: str | None
    input_hash: str
    model_version: str
    snapshot_ids: list[str]
    objective: str
    result: str
    selected: dict[str, Any] | None
    runner_up: dict[str, Any] | None
    margin_s: int | None
    candidates: list[dict[str, Any]]
    closest: dict[str, Any] | None
    warnings: list[str]
    generated_at: datetime


class ChildShown(Frozen):
    """One child of a group in short."""

    key: str
    round: int
    after: list[str]
    id: str
    name: str
    state: str
    system: str | None
    partition: str | None


class GroupShown(Frozen):
    """Tasks answered for as one, with its first hundred children; `/tasks?group=` lists them all."""

    id: str
    name: str
    objective: str
    state: str
    diversity: str
    require: str | int = Field(description="Children of a round that must have ended before the next.")
    rounds: int
    completed_rounds: list[int]
    counts: dict[str, int] = Field(description="Children by state.")
    children: list[ChildShown] | None
    cancel_requested: bool
    created_at: datetime
    finished_at: datetime | None


class GroupManifestShown(Frozen):
    """What the children of a group left together so far; each child's own manifest lists its files."""

    manifests: int = Field(description="Children that have left one.")
    unlisted: int = Field(description="Of these, the ones whose files their site could not list.")
    files: int
    bytes: int
    started_at: datetime | None = Field(description="The first start of any attempt, by accounting.")
    ended_at: datetime | None = Field(description="The last end so far.")
    cost: list[CostShown] = Field(
        description="By system, each in its own unit and never added up; empty where nothing is charged."
    )


class TransferItem(Frozen):
    """One file or folder of a transfer."""

    source: str
    destination: str
    bytes: int | None = Field(description="As declared; null = not known.")
    sha256: str | None
    path: str | None = Field(description="Below the job's working directory; null = no job's.")


class TransferShown(Frozen):
    """One movement of data, storage to storage."""

    id: str
    task: str | None
    attempt: str | None
    state: str
    purpose: str = Field(description="move, stage_in, stage_out or replicate.")
    mover: str = Field(description="`globus` or `file` (this machine).")
    source: str
    destination: str
    items: list[TransferItem]
    reason: str | None = Field(description="Why it stands where it stands, in the storage's own words.")
    fault: str | None = Field(
        description="missing_source, permission_denied, quota, checksum_mismatch, deadline, consent or other."
    )
    faults: int = Field(description="How often something was tried again.")
    files: int | None
    files_moved: int
    files_skipped: int = Field(description="Were there already, with the same checksum.")
    bytes_expected: int | None
    bytes_moved: int
    rate_mib_s: float | None = Field(description="Of a finished one, from its start to its end.")
    sign_in: str | None = Field(description="Where a person gives the consent it waits for.")
    submitted_by: str
    cancel_requested: bool
    created_at: datetime
    started_at: datetime | None
    observed_at: datetime | None
    deadline_at: datetime | None
    finished_at: datetime | None
    next_actions: list[dict[str, Any]]


class TimelineEntry(Frozen):
    """One stretch of an attempt's life; `predicted` entries are what was expected."""

    attempt: str
    number: int
    system: str
    phase: str
    start_at: datetime
    end_at: datetime | None
    predicted: bool = False
    state: str


class Timeline(Frozen):
    """A task's life so far and as it was expected."""

    task: str
    now: datetime
    entries: list[TimelineEntry]
