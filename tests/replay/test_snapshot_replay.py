"""What a real controller once printed, an envelope and an instant give the recorded decision, byte for byte.

The whole pure path is replayed: the dialect reads the recorded probe, profile and probe are joined, the
user's records are made, and placed. Look at a difference before recording anew by running this file
(`python -m tests.replay.test_snapshot_replay`).
"""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from federation.merge import prepare
from federation.profile_yaml import read_profile
from federation.records import records
from federation.types import Access, Credit, Health, ResourceRecord, Standing
from orchestrator.envelope.types import Accelerator, Envelope, Range, Runtime
from orchestrator.placement.model import PlacementModel
from orchestrator.placement.place import place
from orchestrator.placement.trace import decision_bytes
from orchestrator.placement.types import Decision
from providers.dialects.slurm.probe import read_probe
from providers.types import BatchReply, Probe
from tests.unit.slurm_read.recordings import recorded

FOLDER = Path(__file__).parent.parent / "data" / "placement"
TAKEN_AT = datetime(2026, 11, 29, 20, 31, 52, tzinfo=UTC)
NOW = TAKEN_AT + timedelta(seconds=20)
MODEL = PlacementModel().with_start(("anvil", "gpu", False, True), 3)
CREDIT = Credit(unit="SU", granted=Decimal(1000), left=Decimal(400))

ENVELOPES: dict[str, Envelope] = {
    "one-gpu": Envelope(
        gpus=Range.exactly(1),
        cpus=Range.exactly(8),
        walltime_s=Range.exactly(1800),
        runtime=Runtime(estimate_s=600),
    ),
    "two-to-eight-gpus": Envelope(
        gpus=Range(min=2, max=8),
        cpus=Range(min=8, max=64),
        walltime_s=Range.exactly(14_400),
        runtime=Runtime(estimate_s=7200),
    ),
    "whole-cpu-nodes": Envelope(
        gpus=Range.exactly(0), cpus=Range.exactly(256), nodes=Range.exactly(2), walltime_s=Range.exactly(3600)
    ),
    "no-such-gpu": Envelope(
        gpus=Range.exactly(1),
        cpus=Range.exactly(8),
        walltime_s=Range.exactly(1800),
        accelerator=Accelerator(types=("b200",)),
    ),
}


def snapshot() -> Probe:
    """Return the recorded probe, read at the instant it was taken."""
    reply = BatchReply.model_validate_json(recorded("probe/full-22.05.8.json"))
    return read_probe(reply, now=TAKEN_AT)


def seen() -> tuple[ResourceRecord, ...]:
    """Return alice's records, made as the product makes them."""
    probe = snapshot()
    prepared = prepare(read_profile((FOLDER / "anvil.profile.yaml").read_text()), probe, probe.partitions)
    access = Access(
        is_connected=True,
        remote_user=probe.user,
        associations=probe.associations,
        qos=probe.qos or (),
        credits={each.account: CREDIT for each in probe.associations or ()},
    )
    standing = Standing(health=Health.ONLINE, snapshot_id="snap_recorded", observed_at=probe.taken_at)
    return records(prepared, access, standing)


def decided(name: str) -> Decision:
    return place(ENVELOPES[name], seen(), now=NOW, model=MODEL, decision_id="dec_1")


def recorded_bytes(name: str) -> bytes:
    return (FOLDER / f"snapshot-{name}.decision.json").read_bytes().rstrip(b"\n")


@pytest.mark.parametrize("name", ENVELOPES)
def test_the_recorded_snapshot_gives_the_recorded_decision(name: str) -> None:
    assert decision_bytes(decided(name)) == recorded_bytes(name)


def test_the_order_in_which_records_come_changes_no_byte() -> None:
    backwards = place(
        ENVELOPES["two-to-eight-gpus"],
        tuple(reversed(seen())),
        now=NOW,
        model=MODEL,
        decision_id="dec_1",
    )

    assert decision_bytes(backwards) == recorded_bytes("two-to-eight-gpus")


def test_another_second_is_another_decision() -> None:
    later = place(
        ENVELOPES["one-gpu"], seen(), now=NOW + timedelta(seconds=1), model=MODEL, decision_id="dec_1"
    )

    assert decision_bytes(later) != recorded_bytes("one-gpu")


def test_what_the_recording_shows_is_what_was_decided_on() -> None:
    """The recording is of a busy machine: else it would replay nothing of interest."""
    views = {view.partition: view for view in seen() if view.access_denied is None}

    assert set(views) == {"ai", "gpu", "shared", "wholenode"}
    assert {name: view.queue.running_count for name, view in views.items()} == {
        "ai": 2,
        "gpu": 6,
        "shared": 1,
        "wholenode": 1,
    }


if __name__ == "__main__":
    for each in ENVELOPES:
        (FOLDER / f"snapshot-{each}.decision.json").write_bytes(decision_bytes(decided(each)) + b"\n")
