"""The skill on envelopes that could ask for less: what each demand costs in time."""

from typing import Any

from pydantic import Field

from orchestrator.placement.types import Closest, Figure, Selected
from orchestrator.services.advising import advise
from orchestrator.services.again import as_before
from portal.skills.placing import preview_schema
from portal.skills.registry import Answer, Call, Scope, Skill, register
from providers.types import Frozen


class WhatIf(Frozen):
    """One change of the envelope, and where the work would run with it."""

    field: str = Field(description="Path in the envelope.")
    current: Figure
    proposed: Figure = Field(description="null: the demand is dropped.")
    selected: Selected
    sooner_s: int | None = Field(description="Earlier completion; null: as asked it fits nowhere.")


class Relaxed(Frozen):
    """Where it would run as asked, and the single changes that would help, the most helpful first."""

    result: str
    selected: Selected | None
    relaxations: list[WhatIf]
    closest: Closest | None = Field(description="The smallest change, when it fits nowhere.")


class RelaxInput(Frozen):
    """An envelope, bare or within a task input; nothing is submitted."""

    model_config = Frozen.model_config | {"extra": "allow"}


def _relax(given: RelaxInput, call: Call) -> Answer:
    wanted: dict[str, Any] = as_before(call.caller.user, given.model_extra or {})
    advice = advise(call.caller.user, wanted, now=call.now, systems=call.caller.systems)
    found = [WhatIf.model_validate(dict(each)) for each in advice.relaxations]
    decision = advice.decision
    return Answer(
        Relaxed(
            result=decision.result,
            selected=decision.selected,
            relaxations=found,
            closest=decision.closest,
        )
    )


register(
    Skill(
        "relax_envelope",
        "Say which demands of an envelope cost time: placement is asked again without each of them.",
        RelaxInput,
        Relaxed,
        (Scope.READ,),
        _relax,
        input_schema=preview_schema,
    )
)
