"""A circuit breaker per system: stop sending new work where work keeps coming to nothing. Pure.

Health tells whether a system can be seen; the circuit tells whether it takes and starts work. Three incidents
in a row open it, and placement then leaves the system out. After a pause one attempt is let through as a
trial (half-open): its fate closes the circuit, or opens it for longer. Work that is there already is left
alone: a circuit decides about new attempts only.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from providers.types import Frozen

OPENS_AFTER = 3
"""Incidents in a row."""
FORGOTTEN_AFTER = timedelta(minutes=30)
"""An incident this long after the one before begins a new row."""
_SAME_INCIDENT = timedelta(seconds=10)
"""What fails together (jobs of one dead node, submissions of one moment) is one incident."""
_PAUSES_S = (60, 120, 300, 600, 1800)
"""Seconds from opening to the trial, the first time, the second time in a row …"""
TRIAL_TAKES = timedelta(minutes=30)
"""A trial that told nothing by then, because it waits in a queue, makes room for another."""
_LONGEST_PAUSE = max(timedelta(seconds=_PAUSES_S[-1]), TRIAL_TAKES)


class CircuitState(StrEnum):
    """`closed`: work flows. `open`: none is sent. `half_open`: one attempt is out as a trial."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Proof(StrEnum):
    """What an incident or a success is about; only the same kind of success undoes an incident."""

    DISPATCH = "dispatch"
    """Handing a job to the scheduler."""
    WORK = "work"
    """Starting it and keeping it alive."""


class Circuit(Frozen):
    """How one system's circuit stands."""

    state: CircuitState = CircuitState.CLOSED
    proof: Proof | None = None
    """What failed last."""
    failures: int = 0
    """Incidents in a row."""
    last_failure_at: datetime | None = None
    trips: int = 0
    """How often it opened without having closed since."""
    opened_at: datetime | None = None
    retry_at: datetime | None = None
    """Open: when a trial may be sent. Half-open: when another may."""
    reason: str = ""
    """What the last incident was, in one sentence."""
    trial: str = ""
    """Handle of the attempt that is out as a trial."""

    @property
    def is_plain(self) -> bool:
        """Whether nothing went wrong lately: a success then changes nothing."""
        return self.state is CircuitState.CLOSED and self.failures == 0


CLOSED = Circuit()


def admits(circuit: Circuit, *, now: datetime) -> bool:
    """Return whether one new attempt may be sent."""
    if circuit.state is CircuitState.CLOSED:
        return True
    if circuit.state is CircuitState.HALF_OPEN and not circuit.trial:
        return True
    # Longer than any pause is what a clock that was ahead put off.
    return circuit.retry_at is not None and (
        now >= circuit.retry_at or circuit.retry_at - now > _LONGEST_PAUSE
    )


def with_trial(circuit: Circuit, attempt: str, *, now: datetime) -> Circuit:
    """Return the circuit with this attempt out as its trial; a closed one as it is."""
    if circuit.state is CircuitState.CLOSED:
        return circuit
    return circuit.model_copy(
        update={"state": CircuitState.HALF_OPEN, "trial": attempt, "retry_at": now + TRIAL_TAKES}
    )


def after_failure(circuit: Circuit, attempt: str, proof: Proof, reason: str, *, now: datetime) -> Circuit:
    """Return the circuit after an incident: `attempt` could not be handed over, started or kept alive."""
    last = circuit.last_failure_at
    told = {"proof": proof, "reason": reason[:300], "last_failure_at": now}
    if circuit.state is CircuitState.OPEN:
        return circuit.model_copy(update=told)  # sent before it opened: nothing new
    if circuit.state is CircuitState.HALF_OPEN:
        return _opened(circuit.model_copy(update=told), now=now) if attempt == circuit.trial else circuit
    if last is not None and -_SAME_INCIDENT < now - last < _SAME_INCIDENT:
        return circuit.model_copy(update={"reason": told["reason"]})
    goes_on = last is not None and now - last < FORGOTTEN_AFTER
    failures = circuit.failures + 1 if goes_on else 1
    counted = circuit.model_copy(update={**told, "failures": failures})
    return _opened(counted, now=now) if failures >= OPENS_AFTER else counted


def after_success(circuit: Circuit, attempt: str, proof: Proof) -> Circuit:
    """Return the circuit after an attempt was taken (dispatch) or did its work (work).

    Work that is done proves that handing over works too; a job that was taken proves nothing of nodes.
    """
    proves = proof is Proof.WORK or circuit.proof is Proof.DISPATCH
    if not proves or circuit.state is CircuitState.OPEN:
        return circuit
    if circuit.state is CircuitState.HALF_OPEN and attempt != circuit.trial:
        return circuit
    return CLOSED


def without_trial(circuit: Circuit, attempt: str) -> Circuit:
    """Return the circuit after an attempt ended that told nothing (cancelled, gave way): the next may try."""
    if circuit.state is not CircuitState.HALF_OPEN or circuit.trial != attempt:
        return circuit
    return circuit.model_copy(update={"trial": ""})


def sentence(circuit: Circuit) -> str:
    """Return how the circuit stands, for a person; empty when it is closed."""
    if circuit.state is CircuitState.CLOSED:
        return ""
    if circuit.state is CircuitState.HALF_OPEN and circuit.trial:
        return f"No new work but one trial ({circuit.trial}) since: {circuit.reason}"
    when = f"; a trial may go after {circuit.retry_at:%H:%M:%S} UTC" if circuit.retry_at else ""
    return f"No new work is sent{when}. Last: {circuit.reason}"


def _opened(circuit: Circuit, *, now: datetime) -> Circuit:
    pause_s = _PAUSES_S[min(circuit.trips, len(_PAUSES_S) - 1)]
    return circuit.model_copy(
        update={
            "state": CircuitState.OPEN,
            "trips": circuit.trips + 1,
            "opened_at": circuit.opened_at or now,
            "retry_at": now + timedelta(seconds=pause_s),
            "trial": "",
        }
    )
