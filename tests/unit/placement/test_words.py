"""Versions, vendors, sizes and canonical JSON: the small words placement reads."""

from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from hashlib import sha256

import pytest

from federation.types import ChargeRule, Health, Maintenance, UserLimits
from orchestrator.placement.capacity import vendor_of
from orchestrator.placement.sizing import doublings
from orchestrator.placement.trace import canonical, encode, record_digest
from orchestrator.placement.types import CODES, RULE_OF, rejection
from orchestrator.placement.versions import UnreadableVersion, satisfies
from tests.property.placement.views import NOW, bounds, record


@pytest.mark.parametrize(
    ("version", "specifier", "met"),
    [
        ("1.10", ">=1.9", True),
        ("1.9", ">1.9", False),
        ("1.9.0", "==1.9", True),
        ("2.0", ">=1.2,<2", False),
        ("1.99.3", ">=1.2, <2", True),
        ("2024.1", "2024.1", True),
        ("2024.1", "!=2024.1", False),
        ("1.4.9", "~=1.4.2", True),
        ("1.5.0", "~=1.4.2", False),
        ("1.4.9", "==1.4.*", True),
        ("1.5", "!=1.4.*", True),
        ("2.0rc1", "<2.0", True),
        ("v3.1", "<=3.1", True),
    ],
)
def test_a_version_meets_its_specifier(version: str, specifier: str, met: bool) -> None:
    assert satisfies(version, specifier) is met


def test_a_specifier_that_is_no_comparison_is_refused() -> None:
    with pytest.raises(UnreadableVersion):
        satisfies("1.0", ">= about two")


@pytest.mark.parametrize(
    ("gpu", "vendor"),
    [
        ("a100", "nvidia"),
        ("gh200", "nvidia"),
        ("l40s", "nvidia"),
        ("rtx_6000", "nvidia"),
        ("mi250x", "amd"),
        ("mi300a", "amd"),
        ("max1550", "intel"),
        ("tpu", None),
    ],
)
def test_the_vendor_is_read_from_the_name_or_not_known(gpu: str, vendor: str | None) -> None:
    assert vendor_of(gpu) == vendor


@pytest.mark.parametrize(
    ("least", "most", "sizes"),
    [(1, 1, [1]), (1, 8, [1, 2, 4, 8]), (3, 10, [3, 6, 10]), (0, 2, [0, 1, 2]), (2, 3, [2, 3])],
)
def test_sizes_are_the_minimum_its_doublings_and_the_maximum(least: int, most: int, sizes: list[int]) -> None:
    assert doublings(bounds(least, most)) == sizes


def test_canonical_json_has_one_form_for_equal_values() -> None:
    noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
    value = {
        ("b", "x"): frozenset({"z", "a"}),
        "a": [Decimal("1.50"), Health.ONLINE, None, True],
        "at": noon.astimezone(timezone(timedelta(hours=2))),
    }

    assert encode(canonical(value)) == (
        b'{"a":["1.50","online",null,true],"at":"2026-03-02T12:00:00+00:00","b/x":["a","z"]}'
    )


def test_what_has_no_canonical_form_is_refused() -> None:
    with pytest.raises(TypeError):
        canonical(object())


def test_every_code_belongs_to_one_rule() -> None:
    assert len(RULE_OF) == sum(len(codes) for codes in CODES.values())
    with pytest.raises(KeyError):
        rejection("bad_luck", required=None, observed=None, remedy="")


def test_a_record_is_digested_in_its_canonical_form() -> None:
    rich = record(
        maintenance=(Maintenance(NOW, None, frozenset({"n2", "n10", "n1"}), "upgrade"),),
        software={"zlib": ("1.3",), "é": ()},
        health=Health.DEGRADED,
        charge=ChargeRule(unit="SU", per_gpu=Decimal("1.50")),
        credit_left=Decimal("12.30"),
        held_uris=frozenset({"globus://c/b", "globus://c/a"}),
        limits=UserLimits(max_gpus_per_job=4),
    )
    plain = {each.name: canonical(getattr(rich, each.name)) for each in fields(rich)}
    del plain["nodes"], plain["queue"], plain["circuit_open"], plain["groups"]

    assert record_digest(rich, "snap") == sha256(encode({**plain, "live": "snap"})).hexdigest()
    assert record_digest(rich, "snap") != record_digest(rich, "other")
