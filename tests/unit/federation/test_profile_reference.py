"""The reference of the profile names every field of the schema, and no other."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from federation import profile
from federation.profile_yaml import read_profile
from federation.types import ChargeRule

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "profile.md"
MODELS: tuple[type[BaseModel], ...] = (
    profile.ProfileDocument,
    profile.NodeType,
    profile.PartitionProfile,
    profile.NodeCount,
    ChargeRule,
    profile.SchedulerSwitches,
    profile.ProbeRhythm,
    profile.SiteEnvironment,
    profile.MaintenanceWindow,
    profile.BalanceRule,
    profile.StoragePlace,
    profile.Policy,
)


def _sections() -> dict[str, dict[str, str]]:
    """Return the default that the reference gives each field, by section."""
    found: dict[str, dict[str, str]] = {}
    title = ""
    for line in REFERENCE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            title = line[3:]
            found[title] = {}
        elif row := re.match(r"\| `(\w+)` \| (.*?) \|", line):
            found[title][row[1]] = row[2]
    return found


def test_the_sections_are_the_parts_of_the_schema() -> None:
    assert list(_sections()) == [model.__name__ for model in MODELS]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_each_section_has_the_fields_in_the_order_of_the_schema(model: type[BaseModel]) -> None:
    assert list(_sections()[model.__name__]) == list(model.model_fields)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_what_must_be_given_and_plain_defaults_are_told_truly(model: type[BaseModel]) -> None:
    told = _sections()[model.__name__]

    for name, field in model.model_fields.items():
        assert (told[name] == "required") is field.is_required()
        if isinstance(field.default, bool):
            assert told[name] == f"`{str(field.default).lower()}`"
        elif isinstance(field.default, int | str) and field.default != "":
            assert told[name] == f"`{field.default}`"


def test_the_example_of_the_guide_is_a_profile() -> None:
    guide = (REFERENCE.parents[1] / "howto" / "add-a-system.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)

    assert read_profile(example).system == "mycluster"
