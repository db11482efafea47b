"""What callers may say of tasks and groups, and how each fault is named."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.group_input import GroupInput, children_of
from orchestrator.task_input import TaskInput, stored
from providers.errors import InvalidInput
from providers.reading import read


def faults(given_: object) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        read(TaskInput, given_, what="task")
    return {where: message for where, _, message in caught.value.problems}


@pytest.mark.parametrize(
    ("given_", "pointer", "words"),
    [
        ({}, "", "give `command` or `script`"),
        ({"command": "a", "script": "#!/bin/sh\n"}, "", "not both"),
        ({"command": []}, "/command", "must not be empty"),
        ({"command": "   "}, "/command", "must not be empty"),
        ({"script": " \n "}, "/script", "is empty"),
        ({"script": "a\0b"}, "/script", "NUL"),
        ({"command": "a", "comand": "b"}, "/comand", "Did you mean `command`?"),
        ({"command": "a", "retry": {"max_atempts": 2}}, "/retry/max_atempts", "Did you mean `max_attempts`?"),
        ({"command": "a", "retry": {"max_attempts": 0}}, "/retry/max_attempts", "greater than or equal to 1"),
        ({"command": "a", "retry": {"on": ["oom"]}}, "/retry/on/0", "out_of_memory"),
        ({"command": "a", "workdir": "data"}, "/workdir", "absolute path"),
        ({"command": "a", "name": "two\nlines"}, "/name", "one line"),
        ({"command": "a", "environment": {"variables": {"1X": "y"}}}, "/environment/variables", "`1X`"),
        ({"command": "a", "envelope": {}, "envelope_id": "env_1"}, "", "not both"),
        ({"command": "x" * 1_100_000}, "/command", "1 MiB"),
        ([], "", "must be a JSON object, not an array"),
    ],
)
def test_each_fault_names_its_field_and_the_fix(given_: object, pointer: str, words: str) -> None:
    found = faults(given_)

    assert pointer in found
    assert words in found[pointer]


def test_every_fault_is_told_at_once() -> None:
    found = faults({"command": "a", "nam": 1, "retry": {"max_attempts": 99}})

    assert set(found) == {"/nam", "/retry/max_attempts"}


def test_a_script_with_windows_line_ends_or_without_shebang_is_read() -> None:
    assert read(TaskInput, {"script": "#SBATCH -n 1\r\necho hi\r\n"}).script is not None


def test_the_name_defaults_to_the_first_word_of_the_command() -> None:
    assert read(TaskInput, {"command": "/usr/bin/python3 train.py"}).shown_name() == "python3"
    assert read(TaskInput, {"command": ["bash", "-c", "x"]}).shown_name() == "bash"
    assert read(TaskInput, {"script": "echo"}).shown_name() == "script"
    assert read(TaskInput, {"script": "echo"}).shown_name("train \x1b[2J\u202e now") == "train now"
    assert read(TaskInput, {"script": "echo", "name": "mine"}).shown_name("train") == "mine"
    assert "envelope" not in stored(read(TaskInput, {"command": "a", "envelope": {"gpus": 1}}))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(list(TaskInput.model_fields)), JUNK, max_size=5))
def test_junk_is_refused_in_words_and_never_crashes(given_: dict[str, Any]) -> None:
    said: list[str] = ["fine"]
    try:
        read(TaskInput, given_)
    except InvalidInput as error:
        said = [message for _, _, message in error.problems]

    assert said
    assert all(said)


def test_a_child_wins_over_what_the_group_shares_field_by_field() -> None:
    group = read(
        GroupInput,
        {
            "envelope": {"gpus": 1, "walltime_s": 60, "policy": {"prefer": ["a"]}},
            "policy": {"prefer": ["z"], "exclude_systems": ["b"]},
            "children": [{"command": "x", "envelope": {"gpus": 4}}, {"command": "y"}],
        },
    )

    first, second = children_of(group)

    assert first.task["envelope"] == {
        "gpus": 4,
        "walltime_s": 60,
        "policy": {"prefer": ["a"], "exclude_systems": ["b"]},
    }
    assert second.task["envelope"]["gpus"] == 1
    assert (first.key, second.key) == ("1", "2")


def test_a_sweep_fills_every_string_and_sets_variables() -> None:
    group = read(
        GroupInput,
        {
            "matrix": {
                "task": {"name": "lr {lr}", "command": ["train", "--lr={lr}", "--deep={deep}"]},
                "parameters": {"lr": [0.1, 1], "deep": [True]},
            }
        },
    )

    children = children_of(group)

    assert [child.task["name"] for child in children] == ["lr 0.1", "lr 1"]
    assert children[0].task["command"] == ["train", "--lr=0.1", "--deep=true"]
    assert children[1].task["environment"]["variables"] == {"FACET_LR": "1", "FACET_DEEP": "true"}
