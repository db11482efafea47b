"""Properties: junk is refused and never crashes, normal forms are fixpoints, ranges survive."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.envelope.draft import draft_from_script, draft_from_text
from orchestrator.envelope.merge import merge_script
from orchestrator.envelope.types import Envelope, EnvelopeInput, Range
from orchestrator.envelope.validate import read_envelope, read_envelope_input
from providers.errors import InvalidInput

T = TypeVar("T")
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


def spans(least: int, most: int) -> st.SearchStrategy[Any]:
    pair = st.tuples(st.integers(least, most), st.integers(least, most)).map(sorted)
    return st.integers(least, most) | pair.map(lambda p: {"min": p[0], "max": p[1]})


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return strategy | junk


fields: dict[str, st.SearchStrategy[Any]] = {
    "gpus": spans(0, 64),
    "cpus": spans(0, 512),
    "nodes": spans(0, 16),
    "memory_mib": spans(0, 10**6) | st.sampled_from(["64G", "512MiB", "1.5T"]),
    "walltime_s": spans(0, 10**6) | st.sampled_from(["90", "PT2H", "1-12:00:00", "2h"]),
    "architecture": st.lists(st.sampled_from(["x86_64", "arm64", "aarch64"]), max_size=2),
    "accelerator": st.fixed_dictionaries(
        {},
        optional={
            "types": st.lists(st.sampled_from(["a100", "H100-80GB", "mi250x"]), max_size=2),
            "vendor": st.sampled_from(["nvidia", "AMD"]),
            "min_memory_mib": st.sampled_from([0, 40_960, "80G"]),
        },
    ),
    "container": st.fixed_dictionaries(
        {}, optional={"runtime": st.just(["apptainer"]), "image": st.text(max_size=10)}
    ),
    "software": st.lists(
        st.fixed_dictionaries(
            {"name": st.sampled_from("abc")}, optional={"version": st.sampled_from([">=1", "2"])}
        ),
        max_size=2,
    ),
    "runtime": st.fixed_dictionaries(
        {},
        optional={
            "estimate_s": st.integers(0, 10**5),
            "at": st.fixed_dictionaries({}, optional={"gpus": st.integers(0, 9)}),
            "scaling": st.sampled_from(
                [{"serial_fraction": 0.25}, {"points": [{"cpus": 2, "runtime_s": 5}]}]
            ),
        },
    ),
    "policy": st.fixed_dictionaries(
        {},
        optional={
            "prefer": st.lists(st.sampled_from("pqr"), max_size=2),
            "max_charge": st.dictionaries(
                st.sampled_from("pq"), st.floats(0, 1e9) | st.just("1E+3"), max_size=2
            ),
            "deadline": st.datetimes(timezones=st.timezones()).map(lambda t: t.isoformat()),
        },
    ),
    "objective": st.sampled_from(["lowest_charge", "soonest_start"]),
    "rationale": st.dictionaries(st.text(max_size=5), st.text(min_size=1, max_size=9), max_size=2),
    "confidence": st.floats(0, 1),
}
plausible = st.fixed_dictionaries({}, optional=fields)
half_junk = st.fixed_dictionaries({}, optional={name: maybe(strategy) for name, strategy in fields.items()})


def outcome_of(read: Callable[[], T]) -> T | InvalidInput:
    """Return what was read, or the refusal; any other error is a failure of the test."""
    try:
        return read()
    except InvalidInput as refused:
        return refused


def read_or_none(obj: object) -> Envelope | None:
    outcome = outcome_of(lambda: read_envelope(obj))
    if not isinstance(outcome, InvalidInput):
        return outcome
    assert outcome.problems
    assert all(pointer.startswith("/envelope") for pointer, _, _ in outcome.problems)
    json.dumps(outcome.problems).encode("utf-8")
    return None


@given(junk | half_junk)
@example({"gpus": 10**5000})
@example({"network": ["\ud800"]})
@example({"memory_mib": "9" * 5000})
def test_junk_is_refused_and_never_crashes(obj: object) -> None:
    envelope = read_or_none(obj)

    assert envelope is None or isinstance(envelope, Envelope)


@given(plausible)
def test_the_normalized_form_is_a_fixpoint(obj: dict[str, Any]) -> None:
    envelope = read_or_none(obj)
    if envelope is None:
        return

    again = read_envelope(json.loads(envelope.model_dump_json()))

    assert again == envelope


@given(plausible)
def test_a_normalized_envelope_is_never_smaller_than_viable(obj: dict[str, Any]) -> None:
    envelope = read_or_none(obj)
    if envelope is None:
        return

    low, high = envelope.minimum(), envelope.maximum()
    assert 1 <= low.cpus <= high.cpus
    assert 0 <= low.gpus <= high.gpus
    assert 1 <= low.walltime_s <= high.walltime_s
    assert low.nodes is None or low.nodes <= low.cpus
    assert set(envelope.rationale) >= {
        name for name in ("gpus", "cpus", "walltime_s") if obj.get(name) is None
    }


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_ranges_survive_both_spellings(one: int, other: int) -> None:
    low, high = sorted((one, other))
    span = Range(min=low, max=high)

    assert read_envelope_input({"gpus": {"min": low, "max": high}}).gpus == span
    assert Range.model_validate_json(span.model_dump_json()) == span
    assert read_envelope_input({"gpus": low}).gpus == Range.exactly(low)
    assert [span.holds(value) for value in (low, high, high + 1)] == [True, True, False]


words = st.sampled_from(
    [
        "#!/bin/bash", "#SBATCH", "#PBS", "#BSUB", "#$", "# flux:", "#COBALT", "#OAR", "-n", "4",
        "--gres=gpu:2", "-l", "select=2:ncpus=4:ngpus=1+1", "walltime=1:00:00", "-t", "2:30", "--mem=4G",
        "-R", "rusage[mem=4,x=1]", "span[ptile=0]", "-pe", "smp", "8-", "-W", "\n", "\n", "\n", "=", "'",
        '"', "\\", "$X", "{{ y }}", "#", "<<E", "E", "-gpu", "num=/task", "--nodes=3-1", "--array=1-9:0",
        "/nodes=2/core=1", "{a=1}/gpu=", "module load x", "-", "--", "99999999999999999999", "\u2013n",
        "-N", "--attrs", "filesystems=", "-J", "a[1-3]%", "nodes=0:ppn=0:gpus=",
    ]
)  # fmt: skip
scripts = st.lists(words, max_size=40).map(" ".join).map(lambda text: text.replace(" \n ", "\n")) | st.text()


@given(scripts, st.sampled_from([None, "slurm", "pbs", "lsf", "sge", "flux", "cobalt", "oar"]))
def test_any_text_is_a_draft_or_refused(text: str, dialect: str | None) -> None:
    draft = outcome_of(lambda: draft_from_script(text, dialect=dialect))
    if isinstance(draft, InvalidInput):
        assert draft.problems
        return

    assert 0.05 <= draft.confidence <= 0.95
    assert (draft.envelope is None) == bool(draft.problems)
    if draft.envelope is not None:
        assert read_envelope(json.loads(draft.envelope.model_dump_json())) == draft.envelope
        merged, conflicts = merge_script(EnvelopeInput(), draft)
        assert conflicts == ()
        assert merged.maximum() == draft.envelope.maximum()


TEXT = (
    "4 a100s gpus for 2 hours 64 GB memory per node nodes each up to at least 16 cores lammps >= 2023 , "
    "80GB x PT 1-12:00:00 apptainer a an cheapest on - . 00 9999999 days 0"
)
phrases = st.sampled_from(TEXT.split())


@given(st.lists(phrases, max_size=15).map(" ".join) | st.text(max_size=60))
def test_any_words_are_a_draft_or_refused(text: str) -> None:
    draft = outcome_of(lambda: draft_from_text(text))
    if isinstance(draft, InvalidInput):
        assert draft.problems[0][1] == "empty_text"
        return

    assert 0 <= draft.confidence <= 0.9
    assert (draft.envelope is None) == bool(draft.problems)
