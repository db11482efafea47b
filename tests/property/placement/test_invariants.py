"""The claims placement makes, on federations that lean towards feasible and tied."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.placement.invariants import INVARIANTS, Invariant

EXAMPLES = 200 if os.environ.get("CI") else 40


@pytest.mark.parametrize("invariant", INVARIANTS.values(), ids=lambda each: each.name)
def test_the_invariant_holds(invariant: Invariant) -> None:
    @settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(st.tuples(*invariant.arguments))
    def holds(arguments: tuple[object, ...]) -> None:
        invariant.claim(*arguments)

    holds()
