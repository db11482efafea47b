"""What systems hold of a task's inputs is one bounded question, however many systems and copies there are."""

from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from federation.models import System
from federation.selectors import records_for
from orchestrator.data_reach import held, with_data
from orchestrator.envelope.types import Data
from orchestrator.models import Replica
from tests.web.world import make_system

pytestmark = pytest.mark.django_db(transaction=True)

DIGEST, OTHER = "a" * 64, "b" * 64
URI = "globus://6c54cade-bde5-45c1-bdea-f4bd71dba2cc/in"
DATA = Data.model_validate({"inputs": [{"uri": URI, "bytes": 10, "sha256": DIGEST}]})


def copy(user: User, system: System, path: str, *, digest: str = DIGEST, at: datetime) -> None:
    Replica.objects.create(user=user, system=system, uri=URI, path=path, bytes=10, sha256=digest, seen_at=at)


def test_the_newest_equal_copy_of_each_system_is_held_and_nobody_elses(
    alice: User, bob: User, now: datetime
) -> None:
    anvil, delta = (make_system(alice, slug, slug, "a100", "40G", free=1, now=now) for slug in ("a1", "d1"))
    copy(alice, anvil, "/old", at=now)
    copy(alice, anvil, "/new", at=now + timedelta(seconds=1))
    copy(alice, anvil, "/other", digest=OTHER, at=now)
    copy(bob, delta, "/bobs", at=now)

    found = held(alice.pk, DATA, system_ids=[anvil.pk, delta.pk])

    assert found == {anvil.pk: {(DIGEST, 10): "/new"}, delta.pk: {}}
    seen = {each.system: each.held_uris for each in with_data(alice, DATA, records_for(alice, now=now))}
    assert seen == {"a1": frozenset({URI}), "d1": frozenset()}


def test_what_is_held_is_one_query_whatever_the_systems_and_the_copies(alice: User, now: datetime) -> None:
    def queries() -> list[str]:
        records = records_for(alice, now=now)
        with CaptureQueriesContext(connection) as seen:
            with_data(alice, DATA, records)
        return [each["sql"] for each in seen if "replica" in each["sql"]]

    systems = [make_system(alice, "s0", "s0", "a100", "40G", free=1, now=now)]
    one = queries()
    systems += [make_system(alice, f"s{n}", f"s{n}", "a100", "40G", free=1, now=now) for n in (1, 2, 3)]
    for number in range(50):
        copy(alice, systems[number % 4], f"/path/{number}", at=now)

    assert len(one) == len(queries()) == 1
    assert DIGEST in one[0], "only the inputs asked about are looked for"
