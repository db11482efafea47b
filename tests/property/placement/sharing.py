"""The invariants of sharing, as plain functions: what is kept or shared never changes a decision."""

from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal

from hypothesis import strategies as st

from federation.types import ResourceRecord
from orchestrator.envelope.types import Envelope
from orchestrator.placement.cache import PlanCache
from orchestrator.placement.place import place, reserve
from orchestrator.placement.store import PlanStore
from orchestrator.placement.trace import decision_bytes
from orchestrator.placement.types import Decision
from tests.property.placement.views import MODEL, NOW, envelopes, mostly

Seen = list[ResourceRecord]
AGES_S = (0, 0, 20, 45, 300)


@dataclass(frozen=True)
class Asker:
    """One user's question: what, when, at which priority, and one job at a time or not."""

    request: Envelope
    age_s: int
    priority: int | None
    name: str | None
    runs_one: bool

    def sees(self, views: Seen) -> Seen:
        """Return the records of a snapshot as this user has them; nodes and queues are shared."""
        most = 1 if self.runs_one else None
        return [
            replace(
                view,
                own_priority=self.priority,
                user=self.name,
                limits=replace(view.limits, max_running_jobs=most),
            )
            for view in views
        ]


askers = st.lists(
    st.builds(
        Asker,
        request=envelopes(),
        age_s=st.sampled_from(AGES_S),
        priority=st.sampled_from([None, 60, 200]),
        name=st.sampled_from([None, "bob"]),
        runs_one=mostly(False, True),
    ),
    min_size=2,
    max_size=3,
)


def _asked_twice(cache: PlanCache, asker: Asker, views: Seen) -> list[bytes]:
    """Return two decisions, the second planned behind the first."""
    now, seen = NOW + timedelta(seconds=asker.age_s), asker.sees(views)
    first = place(asker.request, seen, now=now, model=MODEL, cache=cache)
    reserve(cache, first, envelope=asker.request, records=seen)
    second = place(asker.request, seen, now=now, model=MODEL, cache=cache)
    return [decision_bytes(first), decision_bytes(second)]


def kept_plans_equal_fresh_ones(views: Seen, questions: list[Asker]) -> None:
    """Whoever asked before, and whatever was reserved for others, the bytes are those of a fresh plan."""
    store = PlanStore()
    for asker in [*questions, *questions]:
        assert _asked_twice(PlanCache(store), asker, views) == _asked_twice(PlanCache(), asker, views)


def a_full_store_answers_the_same(views: Seen, questions: list[Asker]) -> None:
    """A store that can keep next to nothing gives the same bytes, and stays that small."""
    store = PlanStore(max_weight=6)
    for asker in questions:
        assert _asked_twice(PlanCache(store), asker, views) == _asked_twice(PlanCache(), asker, views)
        assert store.weight <= 6 or len(store) == 1


def accounts_are_judged_as_if_alone(request: Envelope, views: Seen) -> None:
    """A candidate says the same of its account whoever is listed beside it."""
    accounts = [
        replace(view, account=name, credit_left=credit, has_allocation=name != "none")
        for view in views
        for name, credit in (
            ("abc", view.credit_left),
            ("def", view.credit_left),
            ("poor", Decimal(2)),
            ("none", view.credit_left),
            ("zero", view.credit_left),
        )
    ]
    together = place(request, accounts, now=NOW, model=MODEL)
    for candidate in together.candidates:
        own = next(
            a
            for a in accounts
            if (a.system, a.partition, a.account)
            == (candidate.system, candidate.partition, candidate.account)
        )
        alone = place(request, [own], now=NOW, model=MODEL).candidates[0]
        ranked = {"rank": candidate.rank, "tie_break": candidate.tie_break}
        assert candidate == alone.model_copy(update=ranked)


def a_decision_is_a_valid_value(request: Envelope, views: Seen) -> None:
    """What is made without validation is what validation would have made."""
    decision = place(request, views, now=NOW, model=MODEL)
    assert Decision.model_validate(decision.model_dump(by_alias=True, warnings=False)) == decision
