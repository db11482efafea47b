"""The skill on data: move it, storage to storage."""

from typing import Any

from pydantic import Field

from orchestrator import transfer_selectors
from orchestrator.models import Transfer
from orchestrator.move_input import MoveInput
from orchestrator.services import transfers
from orchestrator.shown import TransferShown
from portal.skills.registry import Answer, Call, Scope, Skill, register
from providers.errors import NotAuthorized
from providers.types import Frozen


class MovedData(Frozen):
    """The handle of the transfer, where it leads, and what was looked at before it was accepted."""

    id: str
    state: str
    transfer: TransferShown
    references: dict[str, str] = Field(description="`source`, `destination` as understood; `events`, `self`.")
    policy: list[dict[str, Any]] = Field(
        description="By rule: outcome (allowed, needs_action, info), detail."
    )


class MoveGiven(Frozen):
    """A move, read by the verb so that every fault has its pointer."""

    model_config = Frozen.model_config | {"extra": "allow"}


def _move(given: MoveGiven, call: Call) -> Answer:
    if call.caller.systems is not None:  # collections are no systems: nobody could say where it may reach
        named = ", ".join(sorted(call.caller.systems))
        raise NotAuthorized(
            f"This token is for {named} alone; data is moved with one that is not bound to systems.",
            remediation="Make a token with the scope `submit` for all systems.",
        )
    transfer = transfers.move_data(
        call.caller.user,
        given.model_extra or {},
        actor=call.caller.actor,
        now=call.now,
        created=call.options.created,
    )
    return _answer(transfer)


def _move_again(handle: str, call: Call) -> Answer:
    """Return the answer to a request whose transfer exists, but whose first answer was never given."""
    return _answer(transfers.find_transfer(call.caller.user, handle))


def _answer(transfer: Transfer) -> Answer:
    shown = transfer_selectors.show_transfer(transfer)
    where = f"/api/v1/transfers/{shown.id}"
    value = MovedData(
        id=shown.id,
        state=shown.state,
        transfer=shown,
        references={
            "source": shown.source,
            "destination": shown.destination,
            "self": where,
            "events": f"/api/v1/events?transfer={shown.id}",
        },
        policy=transfer.policy,
    )
    return Answer(value, status=202, location=where)


register(
    Skill(
        "move_data",
        "Move a file or folder between collections, or between folders of this machine; checksums verified.",
        MoveGiven,
        MovedData,
        (Scope.SUBMIT,),
        _move,
        side_effects=True,
        creates=True,
        statuses=(202,),
        resume=_move_again,
        input_schema=MoveInput.model_json_schema,
    )
)
