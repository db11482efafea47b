"""The submit form: what people type becomes the task input, faults are named by field."""

from typing import Any

import pytest

from portal.web.forms import TaskForm, WhereForm, field_of


def task_input(**typed: str) -> dict[str, Any]:
    form = TaskForm({"work": "command", "command": "true", **typed})
    assert form.is_valid(), form.errors
    return form.task_input


def test_a_command_with_ranges_becomes_a_task_input() -> None:
    assert task_input(
        name="a",
        gpus_min="2",
        gpus_max="4",
        memory_min="64G",
        walltime_min="1:00:00",
        accelerator_types="a100, h100",
    ) == {
        "name": "a",
        "command": "true",
        "envelope": {
            "gpus": {"min": 2, "max": 4},
            "memory_mib": "64G",
            "walltime_s": "1:00:00",
            "accelerator": {"types": ["a100", "h100"]},
        },
    }


def test_a_script_keeps_its_lines_and_empty_fields_say_nothing() -> None:
    form = TaskForm({"work": "script", "script": "#!/bin/bash\r\necho hi\r\n", "command": "ignored"})

    assert form.is_valid()
    assert form.task_input == {"script": "#!/bin/bash\necho hi\n"}


def test_environment_policy_and_retry_are_read() -> None:
    given = task_input(
        modules="cuda/12 openmpi",
        variables="A=1\n\nB = two words",
        setup="ulimit -s unlimited\n",
        allow_systems="anvil delta",
        software="gromacs>=2024, cuda",
        max_attempts="3",
        container_runtime="apptainer",
        runtime="40:00",
    )

    assert given["environment"] == {
        "modules": ["cuda/12", "openmpi"],
        "variables": {"A": "1", "B": "two words"},
        "setup": ["ulimit -s unlimited"],
    }
    assert given["retry"] == {"max_attempts": 3}
    assert given["envelope"] == {
        "container": {"runtime": ["apptainer"]},
        "policy": {"allow_systems": ["anvil", "delta"]},
        "software": [{"name": "gromacs", "version": ">=2024"}, {"name": "cuda"}],
        "runtime": {"estimate_s": "40:00"},
    }


def test_checkpoint_and_hedge_are_read_and_silent_details_stay_with_their_defaults() -> None:
    given = task_input(
        checkpoint_signal="TERM",
        checkpoint_before="5:00",
        checkpoint_resume="./go --on",
        hedge="on",
        hedge_wait="1h",
    )

    assert given["checkpoint"] == {"signal": "TERM", "before_s": 300, "resume": "./go --on"}
    assert given["hedge"] == {"enabled": True, "min_wait_s": 3600}
    short = task_input(checkpoint_signal="USR1", hedge="on", hedge_wait="0")
    assert (short["checkpoint"], short["hedge"]) == ({"signal": "USR1"}, {"enabled": True, "min_wait_s": 0})
    assert not {"checkpoint", "hedge"} & task_input().keys()


def test_what_is_folded_away_opens_where_it_says_something_or_is_at_fault() -> None:
    assert not TaskForm({"command": "true", "gpus_min": "1"}).more_open
    assert TaskForm({"command": "true", "hedge": "on"}).more_open
    assert TaskForm({"command": "true", "hedge_wait": "soon"}).more_open
    assert not WhereForm({"hedge": "on"}).more_open
    assert WhereForm({"nodes_min": "2"}).more_open


@pytest.mark.parametrize(
    ("typed", "field", "sentence"),
    [
        (
            {"checkpoint_before": "5:00"},
            "checkpoint_signal",
            "Choose the signal on which the work saves itself, too.",
        ),
        (
            {"checkpoint_resume": "go"},
            "checkpoint_signal",
            "Choose the signal on which the work saves itself, too.",
        ),
        ({"hedge_wait": "5:00"}, "hedge", "Choose to wait at two systems, or leave their wait empty."),
        ({"gpus_min": "four"}, "gpus_min", "A whole number, please; “four” is not one."),
        ({"gpus_min": "-1"}, "gpus_min", "A whole number, please; “-1” is not one."),
        ({"cpus_max": "8"}, "cpus_min", "Say the least that would do, too."),
        ({"variables": "no sign"}, "variables", "“no sign” is not NAME=value."),
        ({"max_attempts": "many"}, "max_attempts", "A whole number, please; “many” is not one."),
    ],
)
def test_a_fault_is_named_by_its_field(typed: dict[str, str], field: str, sentence: str) -> None:
    form = TaskForm({"work": "command", "command": "true", **typed})

    assert not form.is_valid()
    assert form.errors == {field: [sentence]}


@pytest.mark.parametrize(
    ("pointer", "field"),
    [
        ("/envelope/gpus", "gpus_min"),
        ("/envelope/gpus/max", "gpus_max"),
        ("/envelope/memory_mib/min", "memory_min"),
        ("/envelope/walltime_s", "walltime_min"),
        ("/envelope/policy/allow_systems/0", "allow_systems"),
        ("/script", "script"),
        ("/environment/variables/A", "variables"),
        ("/checkpoint/before_s", "checkpoint_before"),
        ("/checkpoint/signal", "checkpoint_signal"),
        ("/hedge/min_wait_s", "hedge_wait"),
        ("/hedge/enabled", "hedge"),
        ("/wibble", None),
        ("/names", None),
    ],
)
def test_a_pointer_finds_its_field(pointer: str, field: str | None) -> None:
    assert field_of(pointer) == field
