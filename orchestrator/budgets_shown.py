"""Budgets, approvals and costs as the outside sees them. Pure values."""

from datetime import datetime
from decimal import Decimal

from pydantic import Field

from orchestrator.budgets import Ask
from providers.types import Frozen


class MeterShown(Frozen):
    """One measure of a budget."""

    measure: str = Field(description="charge, node_hours, accelerator_hours, attempts or model_tokens.")
    system: str | None = Field(description="Of a charge: the site whose unit it is in.")
    unit: str
    limit: Decimal | None = Field(description="Null: counted, not limited.")
    reserved: Decimal = Field(description="Held for attempts that have not ended.")
    used: Decimal
    left: Decimal | None
    used_frac: float | None = Field(description="Used and reserved as a share of the limit.")
    approval_above: Decimal | None = Field(
        description="An attempt that would hold more waits for a person; null: none does."
    )
    exhausted_at: datetime | None


class BudgetShown(Frozen):
    """What one task, group, project or token may use, and what it has used."""

    id: str
    state: str = Field(description="open, exhausted or closed.")
    scope: str = Field(description="task, group, project or token.")
    subject: str = Field(description="Handle of the task, group or token; the word of the project.")
    name: str
    meters: list[MeterShown]
    thresholds: list[float] = Field(description="Shares of a limit that are told once when passed.")
    on_exhaustion: str = Field(description="hold: nothing new starts; cancel: running work is ended too.")
    deadline: datetime | None
    imposed: bool = Field(description="Set by an administrator; only an administrator changes it.")
    created_by: str
    created_at: datetime
    updated_at: datetime
    closed_at: datetime | None


class ApprovalShown(Frozen):
    """A placement that waits, or waited, for a person."""

    id: str
    state: str = Field(description="pending, approved, rejected, expired or withdrawn.")
    task: str
    task_name: str
    decision: str = Field(description="The placement that is asked about.")
    system: str | None
    partition: str | None
    asks: list[Ask] = Field(description="What would be held, and above what a person is asked.")
    asked_by: str
    needs_admin: bool = Field(description="Only an administrator may decide.")
    created_at: datetime
    expires_at: datetime
    decided_by: str | None
    decided_via: str | None = Field(description="page, api or mcp.")
    decided_at: datetime | None
    note: str | None


class CostShown(Frozen):
    """What a task costs at one site, in the site's own unit; never summed across sites."""

    system: str
    unit: str
    predicted_p50: Decimal | None = Field(description="For the accepted attempt's expected runtime.")
    predicted_p90: Decimal | None = Field(description="For the runtime that nine of ten stay under.")
    predicted_most: Decimal | None = Field(description="For the whole wall time: what is reserved.")
    reserved: Decimal = Field(description="Held now.")
    settled: Decimal = Field(description="What ended attempts cost by accounting.")
