"""The submit form: what people type becomes the task input, faults are named by field."""

from typing import Any

import pytest

from portal.web.forms import TaskForm, field_of


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


@pytest.mark.parametrize(
    ("typed", "field", "sentence"),
    [
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
        ("/wibble", None),
        ("/names", None),
    ],
)
def test_a_pointer_finds_its_field(pointer: str, field: str | None) -> None:
    assert field_of(pointer) == field
