"""The ledger of credits: reserve, settle, release; each once; and the totals always equal the lines."""

from collections import defaultdict
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, IntegrityError, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federation import charges
from federation.models import Allocation, Charge, System
from federation.services import allocate

pytestmark = pytest.mark.django_db(transaction=True)

NOW = datetime(2027, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def allocation(alice: User) -> Allocation:
    system = System.objects.create(slug="delta", name="Delta")
    return allocate(alice, system, "x-gpu", unit="SU", granted=Decimal(100), now=NOW)


def _reserve(allocation: Allocation, amount: str, attempt: str = "att_1") -> Charge | None:
    with transaction.atomic():
        return charges.reserve(
            user_id=allocation.user_id,
            system_id=allocation.system_id,
            account=allocation.account,
            attempt=attempt,
            amount=Decimal(amount),
            now=NOW,
        )


def _settle(amount: str, attempt: str = "att_1") -> Charge | None:
    with transaction.atomic():
        return charges.settle(attempt=attempt, amount=Decimal(amount), now=NOW)


def _release(attempt: str = "att_1") -> Charge | None:
    with transaction.atomic():
        return charges.release(attempt=attempt, now=NOW)


def _totals(allocation: Allocation) -> tuple[Decimal, Decimal]:
    """Return what is reserved and what is used."""
    allocation.refresh_from_db()
    return (allocation.reserved, allocation.used)


def _are(reserved: str, used: str) -> tuple[Decimal, Decimal]:
    return (Decimal(reserved), Decimal(used))


def _lines() -> list[tuple[str, str, Decimal]]:
    return list(Charge.objects.order_by("id").values_list("attempt_handle", "kind", "amount"))


def test_reserving_holds_the_amount(allocation: Allocation) -> None:
    line = _reserve(allocation, "2.5")

    assert line is not None
    assert (line.kind, line.amount, line.at) == ("reserve", Decimal("2.5"), NOW)
    assert _totals(allocation) == _are("2.5", "0")


def test_settling_books_the_cost_and_gives_back_what_was_held(allocation: Allocation) -> None:
    _reserve(allocation, "2.5")

    _settle("1.25")

    assert _totals(allocation) == _are("0", "1.25")
    assert _lines() == [("att_1", "reserve", Decimal("2.5")), ("att_1", "settle", Decimal("1.25"))]


def test_an_attempt_may_cost_more_than_was_held(allocation: Allocation) -> None:
    _reserve(allocation, "1")

    _settle("3")

    assert _totals(allocation) == _are("0", "3")


def test_releasing_gives_back_all_of_it(allocation: Allocation) -> None:
    _reserve(allocation, "2.5")
    _reserve(allocation, "1", "att_2")

    line = _release()

    assert line is not None
    assert (line.kind, line.amount) == ("release", Decimal("2.5"))
    assert _totals(allocation) == _are("1", "0")


@pytest.mark.parametrize("first", ["settle", "release"])
@pytest.mark.parametrize("second", ["settle", "release"])
def test_a_second_ending_does_nothing(allocation: Allocation, first: str, second: str) -> None:
    _reserve(allocation, "2")
    endings = {"settle": lambda: _settle("1"), "release": _release}
    endings[first]()
    after = (_totals(allocation), _lines())

    assert endings[second]() is None
    assert (_totals(allocation), _lines()) == after


def test_a_second_reservation_of_one_attempt_is_refused_and_changes_nothing(allocation: Allocation) -> None:
    _reserve(allocation, "2")

    with pytest.raises(IntegrityError), transaction.atomic():
        _reserve(allocation, "2")

    assert _totals(allocation) == _are("2", "0")


def test_an_ending_without_a_beginning_does_nothing(allocation: Allocation) -> None:
    assert _settle("1", "att_9") is None
    assert _release("att_9") is None
    assert (_totals(allocation), _lines()) == (_are("0", "0"), [])


@pytest.mark.parametrize("amount", ["0", "-1"])
def test_nothing_is_held_for_nothing(allocation: Allocation, amount: str) -> None:
    assert _reserve(allocation, amount) is None
    assert _lines() == []


def test_an_account_facet_keeps_no_allocation_of_is_not_charged(allocation: Allocation) -> None:
    allocation.account = "another"

    assert _reserve(allocation, "1") is None


@pytest.mark.parametrize("field", ["reserved", "used"])
def test_the_database_refuses_a_total_below_zero(allocation: Allocation, field: str) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Allocation.objects.filter(pk=allocation.pk).update(**{field: Decimal("-0.0001")})


def test_the_database_refuses_to_change_or_delete_a_line(allocation: Allocation) -> None:
    _reserve(allocation, "1")

    with pytest.raises(DatabaseError, match="Cannot update"), transaction.atomic():
        Charge.objects.update(amount=0)
    with pytest.raises(DatabaseError, match="delete rows"), transaction.atomic():
        Charge.objects.get().delete()


moves = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "settle", "release"]),
        st.integers(1, 4),
        st.decimals(Decimal(0), Decimal(50), places=4),
    ),
    max_size=14,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves)
def test_the_totals_always_equal_the_lines(
    allocation: Allocation, story: list[tuple[str, int, Decimal]]
) -> None:
    with transaction.atomic():
        for kind, number, amount in story:
            attempt = f"att_{number}"
            if kind == "reserve":
                if not Charge.objects.filter(attempt_handle=attempt).exists():
                    _reserve(allocation, str(amount), attempt)
            elif kind == "settle":
                _settle(str(amount), attempt)
            else:
                _release(attempt)
            _ledger_balances(allocation)
        transaction.set_rollback(True)


def _ledger_balances(allocation: Allocation) -> None:
    by_attempt: dict[str, dict[str, Decimal]] = defaultdict(dict)
    for attempt, kind, amount in _lines():
        by_attempt[attempt][kind] = amount
    is_open = [lines["reserve"] for lines in by_attempt.values() if len(lines) == 1]
    settled = [lines["settle"] for lines in by_attempt.values() if "settle" in lines]

    assert _totals(allocation) == (sum(is_open, Decimal(0)), sum(settled, Decimal(0)))
    assert all(len(lines) <= 2 for lines in by_attempt.values())
