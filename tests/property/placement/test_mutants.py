"""Every invariant must fail on a broken placement; one that cannot fail proves nothing."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.property.placement.invariants import INVARIANTS
from tests.property.placement.mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_mutant_dies(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    invariant = INVARIANTS[mutant.killer]
    healthy = getattr(mutant.target, mutant.attribute, sorted)
    monkeypatch.setattr(mutant.target, mutant.attribute, mutant.fault(healthy), raising=False)

    @settings(
        deadline=None,
        max_examples=400,
        derandomize=True,
        report_multiple_bugs=False,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.just(mutant.witness) if mutant.witness else st.tuples(*invariant.arguments))
    def holds(arguments: tuple[object, ...]) -> None:
        invariant.claim(*arguments)

    with pytest.raises((AssertionError, ExceptionGroup)):
        holds()


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.witness], ids=lambda mutant: mutant.name)
def test_the_healthy_code_passes_on_the_witness(mutant: Mutant) -> None:
    assert mutant.witness is not None

    INVARIANTS[mutant.killer].claim(*mutant.witness)


def test_every_invariant_has_killed_a_mutant() -> None:
    assert {mutant.killer for mutant in MUTANTS} == set(INVARIANTS)
