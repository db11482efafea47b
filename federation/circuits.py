"""Keeping each system's circuit breaker: every verb inside the caller's transaction, with its event."""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum

from federation import circuit
from federation.circuit import Circuit, CircuitState, Proof
from federation.ledger import Happening, record
from federation.models import System


def circuit_of(system: System) -> Circuit:
    """Return how a system's circuit stood when the row was read."""
    return Circuit.model_validate(system.circuit) if system.circuit else circuit.CLOSED


class Admission(StrEnum):
    """Whether one new attempt may be sent, and as what."""

    FREE = "free"
    TRIAL = "trial"
    REFUSED = "refused"


def take_place(slug: str, attempt: str, *, now: datetime) -> Admission:
    """Admit one new attempt to a system, as the trial where its circuit is not closed.

    The row is locked only where the circuit is not closed, so that two attempts cannot be one trial.
    """
    if circuit_of(System.objects.only("circuit").get(slug=slug)).state is CircuitState.CLOSED:
        return Admission.FREE
    locked = System.objects.select_for_update(no_key=True, of=("self",)).get(slug=slug)
    was = circuit_of(locked)
    if not circuit.admits(was, now=now):
        return Admission.REFUSED
    _keep(locked, was, circuit.with_trial(was, attempt, now=now), now=now)
    return Admission.FREE if was.state is CircuitState.CLOSED else Admission.TRIAL


def note_failure(system_id: int, attempt: str, proof: Proof, reason: str, *, now: datetime) -> None:
    """Count an incident."""
    _change(system_id, lambda was: circuit.after_failure(was, attempt, proof, reason, now=now), now=now)


def note_success(system: System, attempt: str, proof: Proof, *, now: datetime) -> None:
    """Count a success; costs nothing while nothing went wrong (by the row as it was read)."""
    if not circuit_of(system).is_plain:
        _change(system.pk, lambda was: circuit.after_success(was, attempt, proof), now=now)


def note_nothing(system: System, attempt: str, *, now: datetime) -> None:
    """Give a trial's place to the next where it ended without telling anything."""
    if not circuit_of(system).is_plain:
        _change(system.pk, lambda was: circuit.without_trial(was, attempt), now=now)


def _change(system_id: int, change: Callable[[Circuit], Circuit], *, now: datetime) -> None:
    locked = System.objects.select_for_update(no_key=True, of=("self",)).get(pk=system_id)
    was = circuit_of(locked)
    _keep(locked, was, change(was), now=now)


def _keep(system: System, was: Circuit, now_is: Circuit, *, now: datetime) -> None:
    if now_is == was:
        return
    system.circuit = now_is.model_dump(mode="json")
    System.objects.filter(pk=system.pk).update(circuit=system.circuit)
    if now_is.state is was.state or CircuitState.HALF_OPEN is now_is.state:
        return
    record([_event(system, now_is)], now=now)


def _event(system: System, circuit_now: Circuit) -> Happening:
    """Return the event of a circuit that opened or closed; the system's health says the rest."""
    opened = circuit_now.state is CircuitState.OPEN
    word = "degraded" if opened and system.health == "online" else system.health
    summary = (
        f"{system.name} gets no new work for now: {circuit_now.reason}"
        if opened
        else f"{system.name} takes new work again"
    )
    return Happening(
        type=f"system.{word}",
        subject=system.slug,
        system=system.slug,
        state=word,
        summary=summary,
        data={"circuit": circuit_now.model_dump(mode="json"), "reason": circuit_now.reason},
    )
