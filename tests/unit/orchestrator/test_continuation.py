"""What a waking agent may do next: the smallest change that helps, as an envelope to place anew with."""

from typing import Any

import pytest

from orchestrator.continuation import helping_change
from orchestrator.envelope.changes import with_changes
from orchestrator.envelope.validate import read_envelope

BODY = read_envelope(
    {
        "gpus": {"min": 8, "max": 16},
        "nodes": 2,
        "accelerator": {"types": ["h100"], "min_memory_mib": 80_000},
        "policy": {"max_charge": {"delta": "1"}},
        "software": [{"name": "pytorch", "version": ">=2"}],
    }
).model_dump(mode="json")


def closest(*changes: tuple[str | None, Any], verified: bool = True) -> dict[str, Any]:
    told = [
        {"field": field, "code": "x", "current": None, "proposed": proposed, "sentence": f"Set {field}."}
        for field, proposed in changes
    ]
    return {
        "system": "delta",
        "partition": "gpu",
        "account": None,
        "changes": told,
        "verified": verified,
    }


@pytest.mark.parametrize(
    ("field", "proposed", "members"),
    [
        ("gpus.min", 4, {"gpus": {"min": 4, "max": 16}}),
        ("nodes", None, {"nodes": None}),
        ("policy.allow_systems", ["delta"], {"policy": {**BODY["policy"], "allow_systems": ["delta"]}}),
        ("policy.max_charge.delta", "2.5", {"policy": {**BODY["policy"], "max_charge": {"delta": "2.5"}}}),
        ("accelerator.types", ["h100", "a100"], None),
    ],
)
def test_a_change_becomes_the_members_that_it_changes(
    field: str, proposed: object, members: dict[str, Any] | None
) -> None:
    change = helping_change(BODY, closest((field, proposed)))

    assert change is not None
    assert change["says"] == f"Set {field}."
    if members is not None:
        assert change["envelope"] == members
    read_envelope(with_changes(BODY, change["envelope"]))


def test_what_was_not_found_to_help_or_is_no_edit_is_not_offered() -> None:
    assert helping_change(BODY, None) is None
    assert helping_change(BODY, closest()) is None
    assert helping_change(BODY, closest(("gpus.min", 4), verified=False)) is None
    assert helping_change(BODY, closest((None, "an account"))) is None
    assert helping_change(BODY, closest(("software.pytorch", None))) is None
    assert BODY["gpus"] == {"min": 8, "max": 16}


def test_what_silence_made_is_made_anew_but_never_what_was_said() -> None:
    silent = read_envelope({"gpus": 4}).model_dump(mode="json")
    edited = {**silent, "cpus": {"min": 32, "max": 32}}

    assert read_envelope(with_changes(silent, {"gpus": 2})).cpus.max == 2
    assert read_envelope(with_changes(edited, {"gpus": 2})).cpus.max == 32
