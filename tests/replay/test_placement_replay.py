"""A recorded federation, envelope and instant give the recorded decision, byte for byte.

A change of these bytes is a change of what users were promised: look at the difference, then record anew by
running this file (`python -m tests.replay.test_placement_replay`).
"""

from dataclasses import fields
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from federation.types import ResourceRecord
from orchestrator.envelope.types import Envelope
from orchestrator.placement.model import PlacementModel
from orchestrator.placement.place import place
from orchestrator.placement.trace import decision_bytes
from tests.property.placement.views import NOW

FOLDER = Path(__file__).parent.parent / "data" / "placement"
RECORDS = TypeAdapter(tuple[ResourceRecord, ...])
NAMES = ("scalable", "unschedulable")


def replayed(name: str) -> bytes:
    records = RECORDS.validate_json((FOLDER / "records.json").read_bytes())
    envelope = Envelope.model_validate_json((FOLDER / f"{name}.envelope.json").read_bytes())
    budgets = {"vista": Decimal(40)}
    model = PlacementModel().with_start(("anvil", "ai", False, True), 12)
    return decision_bytes(
        place(envelope, records, now=NOW, model=model, budgets=budgets, decision_id="dec_1")
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_recorded_decision_comes_out_again(name: str) -> None:
    assert replayed(name) == (FOLDER / f"{name}.decision.json").read_bytes().rstrip(b"\n")


def test_the_record_has_every_field_of_a_resource_record() -> None:
    first = RECORDS.validate_json((FOLDER / "records.json").read_bytes())[0]

    assert all(hasattr(first, each.name) for each in fields(ResourceRecord))


if __name__ == "__main__":
    for each in NAMES:
        (FOLDER / f"{each}.decision.json").write_bytes(replayed(each) + b"\n")
