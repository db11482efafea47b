"""Whatever is written, reading a profile ends in a value or in faults with places."""

import json
import string

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.profile import ProfileDocument
from federation.profile_yaml import read_profile
from providers.errors import ProfileInvalid

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,12}", fullmatch=True)
texts = st.text(string.ascii_letters + " -:#é", max_size=20)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, object]:
    """Draw a profile that should be right."""
    kinds = draw(st.dictionaries(names, st.just({"cpus": 4, "memory_mib": "16G"}), max_size=3))
    groups = st.lists(
        st.fixed_dictionaries({"type": st.sampled_from(sorted(kinds)), "count": st.integers(0, 9)}),
        max_size=2,
    )
    entry = st.fixed_dictionaries(
        {},
        optional={
            "max_walltime_s": st.integers(0, 10**6),
            "exclusive": st.booleans(),
            "accounts": st.lists(names, max_size=2),
            "nodes": groups if kinds else st.just([]),
            "charge": st.fixed_dictionaries({"unit": names, "per_gpu": st.integers(0, 9)}),
        },
    )
    return {
        "system": draw(st.from_regex(r"[a-z][a-z0-9-]{1,10}", fullmatch=True)),
        "name": draw(texts.filter(str.strip)),
        "architecture": draw(st.sampled_from(["x86_64", "aarch64"])),
        "node_types": kinds,
        "partitions": draw(st.dictionaries(names, entry, min_size=1, max_size=4)),
        "software": draw(st.none() | st.dictionaries(names, st.lists(names, max_size=2), max_size=2)),
    }


def _written(document: dict[str, object]) -> str:
    """Return the YAML, every part an object of its own (shared ones would be written as aliases)."""
    return yaml.safe_dump(json.loads(json.dumps(document)), allow_unicode=True)


@settings(max_examples=40, deadline=None)
@given(documents())
def test_what_is_written_is_what_is_read(document: dict[str, object]) -> None:
    read = read_profile(_written(document))

    assert read == ProfileDocument.model_validate(document)
    assert ProfileDocument.model_validate(read.model_dump(mode="json")) == read
    assert ProfileDocument.model_validate_json(read.model_dump_json()) == read


def _faults(text: str) -> ProfileInvalid | None:
    try:
        read_profile(text)
    except ProfileInvalid as fault:
        return fault
    return None


def _faults_have_places(text: str) -> None:
    fault = _faults(text)
    if fault is None:
        return
    assert fault.problems != ()
    for _, code, message in fault.problems:
        line, column = (int(word.split()[1]) for word in message.split(":", 1)[0].split(", "))
        assert code != ""
        assert 1 <= line <= text.count("\n") + 2
        assert column >= 1
    assert (fault.facts["line"], fault.facts["column"]) >= (1, 1)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=80))
def test_any_text_at_all_is_a_value_or_faults_with_places(text: str) -> None:
    _faults_have_places(text)


@settings(max_examples=40, deadline=None)
@given(documents(), st.data())
def test_a_profile_with_a_cut_or_a_foreign_line_is_a_value_or_faults_with_places(
    document: dict[str, object], data: st.DataObject
) -> None:
    lines = _written(document).splitlines()
    at = data.draw(st.integers(0, len(lines) - 1))
    put = data.draw(st.sampled_from([[], ["  extra: 1"], ["- x"], ["\tx: 1"], ["system: [1"], ["? {a: b}"]]))

    _faults_have_places("\n".join([*lines[:at], *put, *lines[at + 1 :]]))
