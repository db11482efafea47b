"""The documentation says what the code says: made pages are current, links lead somewhere, names exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import get_commands

import run
from docs.generate import PAGES, stale
from portal import env

ROOT = Path(__file__).resolve().parents[2]
PAPERS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
DECISIONS = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
HEADINGS = ["## Context", "## Decision", "## Consequences", "## Revisit when"]
ADR_LINES = 60

every_paper = pytest.mark.parametrize("paper", PAPERS, ids=lambda path: str(path.relative_to(ROOT)))


def _prose(paper: Path) -> str:
    """Return a page without its fenced blocks, in which brackets and hashes mean other things."""
    return re.sub(r"^```.*?^```", "", paper.read_text(), flags=re.MULTILINE | re.DOTALL)


def _links(paper: Path) -> Iterator[tuple[Path, str]]:
    """Yield (file, anchor) of every relative link."""
    for target in re.findall(r"\]\(([^)\s]+)\)", _prose(paper)):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield (paper.parent / path).resolve() if path else paper, anchor


def _anchors(paper: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", _prose(paper), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_made_page_is_current() -> None:
    assert stale() == [], "run: .venv/bin/python -m docs.generate"


def test_every_made_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()

    assert [name for name in PAGES if f"(reference/{name}.md)" not in index] == []


@every_paper
def test_every_relative_link_leads_somewhere(paper: Path) -> None:
    dangling = [
        f"{path}#{anchor}"
        for path, anchor in _links(paper)
        if not path.exists() or (anchor and anchor not in _anchors(path))
    ]

    assert dangling == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        paper = waiting.pop()
        if paper not in reached:
            reached.add(paper)
            waiting += [path for path, _ in _links(paper) if path.suffix == ".md"]

    assert [str(paper) for paper in PAPERS if paper not in reached] == []


@every_paper
def test_every_command_named_exists(paper: Path) -> None:
    text = paper.read_text()
    ours = set(re.findall(r"\brun\.py ([a-z]\w*)", text))
    django = set(re.findall(r"\b(?:run\.py manage|manage\.py) ([a-z]\w*)", text))

    assert ours <= set(run.COMMANDS)
    assert django <= set(get_commands())


@every_paper
def test_every_variable_named_is_read(paper: Path) -> None:
    of_jobs = {"FACET_TASK", "FACET_ATTEMPT", "FACET_JOB_TOKEN"}  # set for jobs and sites, not read here
    of_milestones = {"FACET_MILESTONE", "FACET_MILESTONE_URL", "FACET_MILESTONE_DIR"}
    of_checkpoints = {"FACET_RESUME", "FACET_CHECKPOINT_DIR"}
    at_sites = {*of_jobs, *of_milestones, *of_checkpoints, "FACET_MACHINE_DIR"}
    read = {env.variable_of(name) for name in env.Env.model_fields}
    files = {f"{variable}_FILE" for variable in env.secret_variables()}

    assert set(re.findall(r"\bFACET_[A-Z_]*[A-Z]\b", paper.read_text())) - at_sites <= read | files


@every_paper
def test_every_file_named_exists(paper: Path) -> None:
    named = re.findall(r"`((?:[\w.]+/)+[\w.]*)`", _prose(paper))
    folders = (
        "portal/",
        "orchestrator/",
        "federation/",
        "providers/",
        "tests/",
        "docs/",
        "profiles/",
        ".ci/",
    )

    assert [path for path in named if path.startswith(folders) and not (ROOT / path).exists()] == []


@pytest.mark.parametrize("paper", DECISIONS, ids=lambda path: path.stem[:4])
def test_a_decision_has_its_four_parts_on_one_page(paper: Path) -> None:
    text = paper.read_text()

    assert len(text.splitlines()) <= ADR_LINES
    assert re.findall(r"^## .+$", text, flags=re.MULTILINE) == HEADINGS
    assert text.startswith(f"# {paper.stem[:4]} · ")


def test_decisions_are_numbered_without_gaps() -> None:
    assert [int(paper.stem[:4]) for paper in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_the_picture_follows_the_readers_colours_and_tells_what_it_shows() -> None:
    picture = (ROOT / "docs" / "picture.svg").read_text()

    assert "prefers-color-scheme: dark" in picture
    assert "<title" in picture
    assert "<desc" in picture
