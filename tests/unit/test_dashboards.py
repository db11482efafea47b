"""The dashboards are what Grafana itself would write: its own types read them without losing a field."""

import json
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

FILES = sorted((Path(__file__).resolve().parents[2] / "grafana/dashboards").glob("*.json"))
LATER = {"definition"}
"""Fields of later versions than these types: a variable's query as the editor shows it."""


@pytest.fixture(scope="module", autouse=True)
def _panels_known() -> None:
    plugins.register_default_plugins()


def _lost(given: Any, read: Any, where: str = "") -> list[str]:
    """Return where a document lost or changed something by being read and written."""
    if isinstance(given, dict):
        if not isinstance(read, dict):
            return [where]
        names = [name for name in given if name not in LATER]
        return [place for name in names for place in _lost(given[name], read.get(name), f"{where}/{name}")]
    if isinstance(given, list):
        if not isinstance(read, list) or len(given) != len(read):
            return [where]
        return [place for n, each in enumerate(given) for place in _lost(each, read[n], f"{where}/{n}")]
    return [] if given == read else [where]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_field_is_unknown_to_grafanas_own_types(file: Path) -> None:
    given = json.loads(file.read_text())

    read = json.loads(JSONEncoder().encode(Dashboard.from_json(given)))

    assert _lost(given, read) == []


def test_a_field_that_there_is_not_would_be_found() -> None:
    given = json.loads(FILES[0].read_text())
    given["panels"][0]["options"]["colourMode"] = "value"

    assert _lost(given, json.loads(JSONEncoder().encode(Dashboard.from_json(given)))) == [
        "/panels/0/options/colourMode"
    ]
