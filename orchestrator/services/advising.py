"""What a task might ask less of, and what that would bring; nothing is kept."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser

from orchestrator.envelope.types import Envelope
from orchestrator.placement.types import Decision
from orchestrator.placement.whatif import Relaxation, relaxations
from orchestrator.services.deciding import placement_for
from orchestrator.services.envelopes import Understood, within
from orchestrator.services.tasks import asked


@dataclass(frozen=True, slots=True)
class Advice:
    """The decision as asked, and the single changes that would help, the most helpful first."""

    decision: Decision
    relaxations: tuple[Relaxation, ...]
    understood: Understood | None


def advise(
    user: AbstractBaseUser, given: object, *, now: datetime, systems: Collection[str] | None = None
) -> Advice:
    """Return where a task or a bare envelope would run, and which of its demands cost time.

    Placement is asked once per demand over the same records at the same instant; `systems` bounds where it
    may run at all, None = everywhere.

    Raises:
        InvalidInput: the input cannot be read.
    """
    wanted = asked(user, given, systems=systems)
    placement = placement_for(
        user, wanted.envelope, now=now, kind=wanted.kind, environment=wanted.environment
    )

    def ask(envelope: Envelope) -> Decision:
        return placement(within(envelope, systems, pointer=""))

    decision = placement(wanted.envelope)
    return Advice(decision, tuple(relaxations(wanted.envelope, decision, ask)), wanted.understood)
