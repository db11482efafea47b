"""Envelopes from JSON: every spelling, every default, every fault by its pointer."""

from decimal import Decimal
from typing import Any

import jsonschema
import pytest

from orchestrator.envelope.schema import envelope_input_schema
from orchestrator.envelope.spellings import duration_s, memory_mib
from orchestrator.envelope.types import Accelerator, Amounts, Envelope, Range
from orchestrator.envelope.validate import read_envelope, read_envelope_input
from providers.dialects.scripts.quantities import Misspelled
from providers.errors import InvalidInput

FULL: dict[str, Any] = {
    "gpus": {"min": 1, "max": 4},
    "cpus": 16,
    "nodes": {"min": 1, "max": 2},
    "memory_mib": {"min": "64G", "max": 131_072},
    "walltime_s": {"min": "PT30M", "max": "2:00:00"},
    "architecture": ["amd64", "aarch64"],
    "accelerator": {"types": ["A100-80GB"], "vendor": "NVIDIA"},
    "container": {"runtime": ["Apptainer"], "image": "docker://ubuntu:22.04"},
    "software": [{"name": "lammps", "version": ">=2023, <2025"}, "python"],
    "network": ["InfiniBand"],
    "filesystem": ["lustre"],
    "parallel": [{"name": "openmpi", "version": "4.1.5"}],
    "data": {
        "inputs": [{"uri": "globus://c0ffee/in/a.dat", "bytes": 10, "sha256": "AB" * 32}],
        "outputs": [{"uri": "file:///scratch/out"}],
    },
    "runtime": {
        "estimate_s": 3600,
        "at": {"gpus": 4},
        "scaling": {"points": [{"gpus": 4, "runtime_s": 900}, {"gpus": 1, "runtime_s": "1:00:00"}]},
    },
    "policy": {
        "allow_systems": ["Delta", "anvil"],
        "exclude_partitions": ["delta/preempt"],
        "prefer": ["anvil"],
        "deadline": "2031-01-01T12:00:00+02:00",
        "max_charge": {"delta": 10.5, "anvil": "3"},
    },
    "objective": "lowest_charge",
}


def faults(obj: object, **known: Any) -> dict[str, str]:
    """Return code by pointer of an input that must be refused."""
    with pytest.raises(InvalidInput) as caught:
        read_envelope(obj, **known)
    assert all(message for _, _, message in caught.value.problems)
    return {pointer.removeprefix("/envelope"): code for pointer, code, _ in caught.value.problems}


def message_of(obj: object) -> str:
    with pytest.raises(InvalidInput) as caught:
        read_envelope(obj)
    return caught.value.problems[0][2]


def test_a_full_envelope_is_normalized_field_by_field() -> None:
    envelope = read_envelope(FULL)

    assert envelope.gpus == Range(min=1, max=4)
    assert envelope.cpus == Range(min=16, max=16)
    assert envelope.nodes == Range(min=1, max=2)
    assert envelope.memory_mib == Range(min=65_536, max=131_072)
    assert envelope.walltime_s == Range(min=1800, max=7200)
    assert envelope.architecture == ("x86_64", "aarch64")
    assert envelope.accelerator == Accelerator(types=("a100",), vendor="nvidia", min_memory_mib=81_920)
    assert envelope.container is not None
    assert (envelope.container.runtime, envelope.container.image) == (("apptainer",), "docker://ubuntu:22.04")
    assert [(s.name, s.version) for s in envelope.software] == [("lammps", ">=2023,<2025"), ("python", None)]
    assert envelope.network == ("infiniband",)
    assert [(s.name, s.version) for s in envelope.parallel] == [("openmpi", "==4.1.5")]
    assert envelope.data.inputs[0].sha256 == "ab" * 32
    assert sum(ref.bytes or 0 for ref in envelope.data.inputs) == 10
    assert not envelope.has_unsized_inputs
    assert envelope.runtime is not None
    assert envelope.runtime.scaling is not None
    assert [(p.gpus, p.runtime_s) for p in envelope.runtime.scaling.points] == [(1, 3600), (4, 900)]
    assert envelope.policy.allow_systems == ("delta", "anvil")
    assert envelope.policy.max_charge == {"delta": Decimal("10.5"), "anvil": Decimal(3)}
    assert envelope.deadline_at is not None
    assert envelope.deadline_at.isoformat() == "2031-01-01T10:00:00+00:00"
    assert envelope.objective == "lowest_charge"
    assert envelope.original == FULL
    assert envelope.rationale == {}


def test_the_normalized_form_reads_back_as_itself() -> None:
    envelope = read_envelope(FULL)

    assert read_envelope(envelope.model_dump(mode="json")) == envelope
    assert Envelope.model_validate_json(envelope.model_dump_json()) == envelope


def test_an_empty_envelope_has_defaults_with_reasons() -> None:
    envelope = read_envelope({})

    assert envelope.minimum() == envelope.maximum()
    assert envelope.minimum() == Amounts(gpus=0, cpus=1, nodes=None, memory_mib=None, walltime_s=3600)
    assert envelope.objective == "earliest_completion"
    assert envelope.rationale == {
        "gpus": "not given: none",
        "cpus": "not given: one",
        "memory_mib": "not given: the site's default",
        "walltime_s": "not given: 3600 s by default",
    }


def test_a_named_accelerator_without_a_number_means_one_gpu() -> None:
    envelope = read_envelope({"accelerator": {"types": ["h100"]}})

    assert envelope.gpus == Range.exactly(1)
    assert envelope.rationale["gpus"] == "not given: one, because an accelerator is named"


def test_silent_cpus_follow_gpus_and_nodes() -> None:
    assert read_envelope({"gpus": {"min": 2, "max": 8}}).cpus == Range(min=2, max=8)
    assert read_envelope({"gpus": 2, "nodes": 4}).cpus == Range(min=4, max=4)


def test_minima_of_zero_and_below_one_cpu_per_node_are_raised_and_said() -> None:
    envelope = read_envelope({"cpus": {"min": 0, "max": 8}, "nodes": {"min": 2, "max": 4}})

    assert envelope.cpus == Range(min=2, max=8)
    assert envelope.rationale["cpus"] == "raised from 1 to one per node"


def test_null_is_silence() -> None:
    given = read_envelope_input({"gpus": None, "policy": None, "cpus": 4})

    assert (given.gpus, given.policy, given.cpus) == (None, None, Range.exactly(4))


def test_partitions_are_barred_everywhere_or_at_one_system() -> None:
    envelope = read_envelope(FULL)

    assert envelope.excludes_partition("delta", "preempt")
    assert not envelope.excludes_partition("anvil", "preempt")
    everywhere = read_envelope({"policy": {"exclude_systems": ["vista"], "exclude_partitions": ["debug"]}})
    assert everywhere.excludes_partition("anvil", "debug")


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("64G", 65_536),
        ("512MiB", 512),
        ("512mb", 512),
        ("4096", 4096),
        ("1.5 TB", 1_572_864),
        ("1500K", 2),
        ("1048577B", 2),
        ("0.5G", 512),
    ],
)
def test_memory_spellings(text: str, mib: int) -> None:
    assert memory_mib(text) == mib
    assert read_envelope({"memory_mib": text}).memory_mib == Range.exactly(mib)


@pytest.mark.parametrize("text", ["64 parsecs", "G", "-4G", "1e3G", "", "4GG", "64Gb/s", "9" * 40])
def test_memory_in_other_words_is_refused(text: str) -> None:
    with pytest.raises(Misspelled):
        memory_mib(text)
    assert faults({"memory_mib": text}) == {"/memory_mib": "wrong_unit"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-12:00:00", 129_600),
        ("90", 5400),
        ("PT2H", 7200),
        ("P1DT12H", 129_600),
        ("pt90m", 5400),
        ("2:30:00", 9000),
        ("1:30", 90),
        ("2-0", 172_800),
        ("2h30m", 9000),
        ("1.5 hours", 5400),
        ("3 days", 259_200),
    ],
)
def test_time_spellings(text: str, seconds: int) -> None:
    assert duration_s(text) == seconds
    assert read_envelope({"walltime_s": text}).walltime_s == Range.exactly(seconds)


@pytest.mark.parametrize(
    "text", ["soon", "P", "PT", "UNLIMITED", "0", "1:2:3:4", "-5", "", "2h 30x", "1" * 200]
)
def test_time_in_other_words_is_refused(text: str) -> None:
    with pytest.raises(Misspelled):
        duration_s(text)
    assert faults({"walltime_s": text}) == {"/walltime_s": "wrong_unit"}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        ({"gpu": 1}, {"/gpu": "unknown_field"}),
        ({"gpus": -1}, {"/gpus": "negative"}),
        ({"gpus": True}, {"/gpus": "wrong_type"}),
        ({"gpus": 2.0}, {"/gpus": "wrong_type"}),
        ({"gpus": "2"}, {"/gpus": "wrong_type"}),
        ({"gpus": [2]}, {"/gpus": "wrong_type"}),
        ({"gpus": float("nan")}, {"/gpus": "not_finite"}),
        ({"cpus": 10_000_001}, {"/cpus": "too_large"}),
        ({"cpus": 10**400}, {"/cpus": "too_large"}),
        ({"memory_mib": 2**41}, {"/memory_mib": "too_large"}),
        ({"walltime_s": 367 * 86_400}, {"/walltime_s": "too_large"}),
        ({"gpus": {"min": 4, "max": 2}}, {"/gpus": "min_over_max"}),
        ({"gpus": {"min": 4}}, {"/gpus/max": "missing"}),
        ({"gpus": {"min": 1, "max": 2, "step": 1}}, {"/gpus/step": "unknown_field"}),
        ({"gpus": {"min": 1, "max": "many"}}, {"/gpus/max": "wrong_type"}),
        ({"nodes": 0}, {"/nodes": "zero"}),
        ({"cpus": 0}, {"/cpus": "zero"}),
        ({"memory_mib": 0}, {"/memory_mib": "zero"}),
        ({"walltime_s": 0}, {"/walltime_s": "zero"}),
        ({"walltime_s": 1.5}, {"/walltime_s": "wrong_type"}),
        ({"nodes": 4, "cpus": 2}, {"/cpus": "cpus_below_nodes"}),
        ({"gpus": 0, "accelerator": {"types": ["a100"]}}, {"/accelerator": "accelerator_without_gpus"}),
        ({"accelerator": {}}, {"/accelerator": "empty"}),
        ({"accelerator": {"types": []}}, {"/accelerator": "empty"}),
        ({"accelerator": {"types": ["a1000"]}}, {"/accelerator/types/0": "unknown_accelerator"}),
        ({"accelerator": {"types": ["a100", "A100"]}}, {"/accelerator/types/1": "duplicate"}),
        ({"accelerator": {"types": "a100"}}, {"/accelerator/types": "wrong_type"}),
        ({"accelerator": {"types": ["a100"], "vendor": "amd"}}, {"/accelerator/vendor": "vendor_mismatch"}),
        ({"accelerator": {"vendor": "nvidea"}}, {"/accelerator/vendor": "unknown_vendor"}),
        ({"container": {}}, {"/container": "empty"}),
        ({"container": {"runtime": ["aptainer"]}}, {"/container/runtime/0": "unknown_container_runtime"}),
        ({"container": {"image": "a\nb"}}, {"/container/image": "bad_text"}),
        ({"architecture": ["x86"]}, {"/architecture/0": "unknown_architecture"}),
        ({"network": ["ib", "IB"]}, {"/network/1": "duplicate"}),
        ({"network": ["a b"]}, {"/network/0": "bad_word"}),
        ({"software": [{"version": "1"}]}, {"/software/0/name": "missing"}),
        ({"software": [{"name": "x", "version": "about 3"}]}, {"/software/0/version": "bad_version"}),
        ({"software": ["x", {"name": "X"}]}, {"/software/1": "duplicate"}),
        ({"data": {"inputs": [{"uri": "https://x/y"}]}}, {"/data/inputs/0/uri": "bad_uri_scheme"}),
        ({"data": {"inputs": [{"uri": "globus:///y"}]}}, {"/data/inputs/0/uri": "bad_uri"}),
        ({"data": {"inputs": [{"uri": "file://host/y"}]}}, {"/data/inputs/0/uri": "bad_uri"}),
        ({"data": {"inputs": [{"uri": "file:///a/../b"}]}}, {"/data/inputs/0/uri": "bad_uri"}),
        ({"data": {"inputs": [{"uri": "http://[::1"}]}}, {"/data/inputs/0/uri": "bad_uri"}),
        ({"data": {"inputs": [{"bytes": 1}]}}, {"/data/inputs/0/uri": "missing"}),
        (
            {"data": {"outputs": [{"uri": "file:///a", "sha256": "x", "bytes": -1}]}},
            {"/data/outputs/0/sha256": "bad_checksum", "/data/outputs/0/bytes": "negative"},
        ),
        ({"runtime": {"scaling": {}}}, {"/runtime/scaling": "exactly_one"}),
        ({"runtime": {"scaling": {"serial_fraction": 0.1}}}, {"/runtime/estimate_s": "missing"}),
        (
            {"runtime": {"estimate_s": 9, "scaling": {"serial_fraction": 1.5}}},
            {"/runtime/scaling/serial_fraction": "out_of_range"},
        ),
        (
            {"runtime": {"scaling": {"points": [{"gpus": 1, "cpus": 1, "runtime_s": 1}]}}},
            {"/runtime/scaling/points/0": "exactly_one"},
        ),
        (
            {"runtime": {"scaling": {"points": [{"gpus": 1, "runtime_s": 9}, {"cpus": 2, "runtime_s": 5}]}}},
            {"/runtime/scaling/points": "mixed_points"},
        ),
        ({"policy": {"deadline": "2031-01-01T00:00:00"}}, {"/policy/deadline": "no_zone"}),
        ({"policy": {"deadline": "tomorrow"}}, {"/policy/deadline": "bad_time"}),
        ({"policy": {"deadline": "0001-01-01T00:00:00+14:00"}}, {"/policy/deadline": "bad_time"}),
        ({"policy": {"max_charge": {"delta": -1}}}, {"/policy/max_charge/delta": "out_of_range"}),
        ({"policy": {"max_charge": {"delta": "lots"}}}, {"/policy/max_charge/delta": "wrong_type"}),
        ({"policy": {"allow_systems": []}}, {"/policy/allow_systems": "empty"}),
        (
            {"policy": {"allow_systems": ["a"], "exclude_systems": ["a"]}},
            {"/policy/allow_systems": "contradiction"},
        ),
        ({"policy": {"allow_systems": ["a"], "prefer": ["b"]}}, {"/policy/prefer": "contradiction"}),
        ({"objective": "fastest"}, {"/objective": "unknown_objective"}),
        (
            {"objective": "lowest_charge", "policy": {"objective": "soonest_start"}},
            {"/objective": "contradiction"},
        ),
        ({"source": "oracle"}, {"/source": "unknown_source"}),
        ({"confidence": 2}, {"/confidence": "out_of_range"}),
        ({"rationale": []}, {"/rationale": "wrong_type"}),
        ([], {"": "wrong_type"}),
        ("gpus: 4", {"": "wrong_type"}),
        ({"original": {"x": object()}}, {"/original/x": "not_json"}),
        ({"network": ["\ud800"]}, {"/network/0": "bad_text"}),
    ],
)
def test_faults_are_named_by_pointer_and_code(obj: object, expected: dict[str, str]) -> None:
    assert faults(obj) == expected


def test_all_faults_are_reported_at_once() -> None:
    found = faults({"gpu": 1, "cpus": -1, "memory_mib": "x", "policy": {"deadline": "x", "allowed": []}})

    assert found == {
        "/gpu": "unknown_field",
        "/cpus": "negative",
        "/memory_mib": "wrong_unit",
        "/policy/deadline": "bad_time",
        "/policy/allowed": "unknown_field",
    }


def test_messages_name_the_field_and_the_fix() -> None:
    assert message_of({"gpuss": 1}) == "gpuss is no field here; did you mean 'gpus' or 'cpus'?"
    assert message_of({"gpus": "4"}) == (
        "/envelope/gpus must be a whole number (write 4 without quotes), not 4 (str)"
    )
    assert "did you mean 'a100'" in message_of({"accelerator": {"types": ["a1000"]}})
    assert "end it with Z or an offset" in message_of({"policy": {"deadline": "2031-01-01T00:00:00"}})


def test_callers_may_know_more_words() -> None:
    unknown = {"accelerator": {"types": ["Quantum9"]}, "objective": "balanced"}

    known = read_envelope(unknown, known_accelerators={"quantum9"}, known_objectives={"balanced"})

    assert known.accelerator is not None
    assert known.accelerator.types == ("quantum9",)
    assert known.objective == "balanced"
    assert faults({"policy": {"prefer": ["detla"]}}, known_systems={"delta"}) == {
        "/policy/prefer/0": "unknown_system"
    }


def test_memory_in_accelerator_names_counts_only_when_every_type_says_it() -> None:
    both = read_envelope({"accelerator": {"types": ["a100-80gb", "v100-32gb"]}}).accelerator
    one = read_envelope({"accelerator": {"types": ["a100-80gb", "h100"]}}).accelerator

    assert both is not None
    assert both.min_memory_mib == 32_768
    assert one is not None
    assert one.min_memory_mib is None


def test_deep_or_vast_input_is_refused() -> None:
    deep: Any = {}
    for _ in range(5000):
        deep = {"original": deep}

    assert faults(deep) == {"": "too_large"}
    assert faults({"network": ["x"] * 30_000}) == {"": "too_large"}


def test_the_schema_accepts_the_spellings_and_refuses_the_unknown() -> None:
    schema = envelope_input_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema)
    lowered = {**FULL, "container": {"runtime": ["apptainer"]}, "accelerator": {"types": ["a100"]}}

    assert list(check.iter_errors(lowered)) == []
    assert list(check.iter_errors(read_envelope(FULL).model_dump(mode="json"))) == []
    assert not check.is_valid({"gpu": 1})
    assert not check.is_valid({"gpus": -1})
    assert not check.is_valid({"gpus": {"min": 1}})


def test_the_schema_names_every_field_of_the_envelope() -> None:
    properties = envelope_input_schema()["properties"]

    assert isinstance(properties, dict)
    assert set(properties) == set(Envelope.model_fields)
    assert all("description" in schema for schema in properties.values())
