"""What a caller may say of a budget, whether with a task, with a group or on its own. Pure."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, WithJsonSchema, field_validator, model_validator

from orchestrator.budgets import THRESHOLDS, UNITS
from providers.types import Frozen

Amount = Annotated[
    Decimal,
    Field(ge=0, max_digits=18, decimal_places=4),
    WithJsonSchema({"type": "number", "minimum": 0}),
]
"""At most four decimals; as JSON also understood as text."""
MOST_COUNTED = 10**12
"""More attempts or tokens than this are taken for a slip."""
Share = Annotated[float, Field(gt=0, le=1)]
Project = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+-]{0,59}$")]


_BINDS_NOTHING = frozenset({"thresholds", "on_exhaustion", "task", "group", "project", "token", "name"})
"""What alone makes no budget."""


class ApproveAbove(Frozen):
    """What one attempt may hold without a person's approval."""

    charge: dict[str, Amount] = Field(default_factory=dict, description="By system, in its own unit.")
    node_hours: Amount | None = None
    accelerator_hours: Amount | None = None


class BudgetInput(Frozen):
    """What work may use at most, and when somebody hears of it. A limit that is not said does not bind."""

    max_charge: dict[str, Amount] = Field(
        default_factory=dict, description="By system, in its own unit; sites are never added up."
    )
    max_node_hours: Amount | None = None
    max_accelerator_hours: Amount | None = None
    max_attempts: int | None = Field(None, ge=1, le=MOST_COUNTED)
    max_model_tokens: int | None = Field(
        None, ge=0, le=MOST_COUNTED, description="Of models that draft for this work."
    )
    deadline: AwareDatetime | None = Field(
        None, description="After it nothing new starts, and what waits is cancelled."
    )
    thresholds: tuple[Share, ...] = Field(
        THRESHOLDS, max_length=10, description="Shares of each limit that are told once when passed."
    )
    approve_above: ApproveAbove = ApproveAbove()
    on_exhaustion: Literal["hold", "cancel"] = Field(
        "hold",
        description="hold: running work goes on; cancel: it is ended once the limit is used up, or at the "
        "deadline.",
    )

    @field_validator("thresholds")
    @classmethod
    def _ascend(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(sorted(set(value)))

    @model_validator(mode="after")
    def _says_something(self) -> "BudgetInput":
        if self.model_dump(exclude_defaults=True).keys() <= _BINDS_NOTHING:
            raise ValueError("name at least one limit, a deadline or what needs approval")
        return self

    def limits(self) -> Mapping[tuple[str, str], Decimal]:
        """Return each limit by (measure, system)."""
        said: dict[tuple[str, str], Any] = {("charge", slug): most for slug, most in self.max_charge.items()}
        said |= {(measure, ""): getattr(self, f"max_{measure}") for measure in UNITS}
        return {key: Decimal(most) for key, most in said.items() if most is not None}

    def unasked(self) -> Mapping[tuple[str, str], Decimal]:
        """Return what needs no approval by (measure, system)."""
        asked = self.approve_above
        said: dict[tuple[str, str], Decimal | None] = {
            ("charge", s): most for s, most in asked.charge.items()
        }
        said |= {("node_hours", ""): asked.node_hours, ("accelerator_hours", ""): asked.accelerator_hours}
        return {key: most for key, most in said.items() if most is not None}


class SetBudgetInput(BudgetInput):
    """A budget and what it is set on. It replaces the limits of the open budget there; counts go on."""

    task: str | None = None
    group: str | None = None
    project: Project | None = Field(None, description="The word that tasks carry as `project`.")
    token: str | None = Field(None, description="Handle of an API token of yours.")
    name: str = Field("", max_length=120)

    @model_validator(mode="after")
    def _is_set_on_one_thing(self) -> "SetBudgetInput":
        named = [word for word in ("task", "group", "project", "token") if getattr(self, word) is not None]
        if len(named) != 1:
            raise ValueError("name exactly one of `task`, `group`, `project`, `token`")
        return self

    @property
    def on(self) -> tuple[str, str]:
        """Return (scope, subject)."""
        scope = next(
            word for word in ("task", "group", "project", "token") if getattr(self, word) is not None
        )
        return scope, str(getattr(self, scope))
