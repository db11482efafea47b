"""The alert rules speak of figures that are served, and promtool finds that they fire when they should."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from portal.telemetry.sources import SOURCES

FOLDER = Path(__file__).resolve().parents[2] / "prometheus"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"] for rule in group["rules"]
]
SERVED = {f"facet_{name}" for source in SOURCES for name, _ in source.figures.values()} | {
    "facet_queue_depth",
    "facet_heard_age_seconds",
    "facet_scrape_ok",
    "facet_http_request_seconds_count",
    "facet_http_request_seconds_bucket",
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_asks_for_what_is_served_and_tells_a_person_what_to_do(rule: dict[str, Any]) -> None:
    asked = set(re.findall(r"\bfacet_\w+", rule["expr"]))

    assert asked <= SERVED
    assert asked or "up{" in rule["expr"]
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert set(rule["annotations"]) == {"summary", "description"}
    assert rule["alert"].startswith("Facet")


def test_no_two_rules_have_one_name() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


def test_the_scrape_goes_to_the_web_service_with_the_token_of_a_file() -> None:
    (job,) = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]

    assert (job["metrics_path"], job["static_configs"]) == ("/metrics", [{"targets": ["web:8000"]}])
    assert job["authorization"] == {"type": "Bearer", "credentials_file": "/run/secrets/metrics_token"}


def test_the_rules_fire_when_they_should_and_not_before() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool (Debian's package prometheus)")

    words = [promtool, "test", "rules", str(FOLDER / "rules.test.yml")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
