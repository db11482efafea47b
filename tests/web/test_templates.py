"""Every template draws its sample values, names nothing its context lacks, and keeps to plain mark-up."""

from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.template import engines
from django.template.backends.django import DjangoTemplates
from django.test import RequestFactory

from portal.web.budget_form import BudgetForm
from portal.web.forms import TaskForm, WhereForm
from portal.web.transfers import MoveForm
from tests.web import samples, samples_agents, samples_data, samples_groups, samples_spending, samples_tasks

MISSING = "«missing»"
VOID = frozenset({"meta", "link", "input", "br", "img", "hr"})
SHOWN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("federation/overview.html", {"page": samples.FEDERATION}),
    ("federation/overview.html", {"page": samples.EMPTY_FEDERATION}),
    ("federation/system.html", {"page": samples.SYSTEM}),
    (
        "tasks/submit.html",
        {
            "form": TaskForm(),
            "preview": samples_tasks.PREVIEW,
            "draft": samples_tasks.DRAFT,
            "asked": {"command": ["true"]},
            "templates": samples_tasks.TEMPLATES,
            "projects": ["bdem-delta-gpu"],
        },
    ),
    (
        "tasks/submit.html",
        {
            "form": TaskForm(),
            "preview": samples_tasks.PROBLEMS,
            "draft": None,
            "asked": None,
            "templates": (),
            "projects": [],
        },
    ),
    ("tasks/templates.html", {"templates": samples_tasks.TEMPLATES}),
    ("tasks/templates.html", {"templates": ()}),
    ("tasks/list.html", {"page": samples_tasks.TASK_LIST}),
    ("tasks/list.html", {"page": samples_tasks.NO_TASKS}),
    ("tasks/detail.html", {"page": samples_tasks.TASK}),
    ("tasks/detail.html", {"page": samples_tasks.DONE}),
    ("tasks/cancel.html", {"page": samples_tasks.TO_CANCEL}),
    ("groups/list.html", {"page": samples_groups.GROUP_LIST}),
    ("groups/list.html", {"page": samples_groups.NO_GROUP}),
    ("groups/detail.html", {"page": samples_groups.GROUP}),
    ("events/list.html", {"page": samples_tasks.EVENT_LIST}),
    ("events/detail.html", {"page": samples_agents.EVENT}),
    *(
        ("events/verify.html", {"page": each})
        for each in (samples_agents.CHECKING, samples_agents.BROKEN, samples_agents.WHOLE)
    ),
    *(
        (
            "agents/list.html",
            {
                "page": each,
                "token_form": samples_agents.TOKEN_FORM,
                "subscription_form": samples_agents.SUBSCRIPTION_FORM,
                "is_refused": False,
            },
        )
        for each in (samples_agents.AGENTS, samples_agents.NO_AGENTS)
    ),
    *(
        (
            "agents/subscription.html",
            {"page": each, "form": samples_agents.SUBSCRIPTION_FORM, "is_refused": False},
        )
        for each in (samples_agents.ONE_SUBSCRIPTION, samples_agents.ONE_BRIDGE)
    ),
    *(
        ("data/list.html", {"page": each, "form": MoveForm(), "is_open": True})
        for each in (samples_data.TRANSFERS, samples_data.NO_TRANSFER)
    ),
    *(
        ("allocations/list.html", {"page": each, "form": BudgetForm(), "is_open": True})
        for each in (samples_spending.SPENDING, samples_spending.NOTHING)
    ),
    *(("data/detail.html", {"page": each}) for each in (samples_data.TRANSFER, samples_data.ENDED)),
    ("account/show.html", {"form": None, "zone": "UTC", "zones": ("UTC",), "identity": None}),
    ("where.html", {"form": WhereForm(), "answer": None, "query": "", "words": "", "words_problem": ""}),
    (
        "where.html",
        {
            "form": WhereForm(),
            "answer": samples_tasks.ANSWER,
            "query": "a=1",
            "words": "",
            "words_problem": "x",
        },
    ),
    ("find.html", {"found": samples.FOUND, "words": "an"}),
    ("find.html", {"found": (), "words": "zz"}),
    ("404.html", {}),
    ("403.html", {}),
    ("500.html", {}),
)


@pytest.fixture
def strict_engine(monkeypatch: pytest.MonkeyPatch) -> DjangoTemplates:
    """The project's own engine, in which a name that the context lacks leaves a mark."""
    engine = engines["django"]
    assert isinstance(engine, DjangoTemplates)
    monkeypatch.setattr(engine.engine, "string_if_invalid", MISSING)
    return engine


class Balance(HTMLParser):
    """Notes tags that do not close in order, ids used twice, and images of words without words."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.faults: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in given:
            self.ids.append(given["id"] or "")
        if given.get("role") == "img" and not given.get("aria-label"):
            self.faults.append(f"{tag} drawn without words")
        if any(name.startswith("on") for name in given):
            self.faults.append(f"{tag} carries a script")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()}")


@pytest.mark.parametrize(("template", "context"), SHOWN)
def test_a_page_draws_its_values_whole(
    strict_engine: DjangoTemplates, template: str, context: dict[str, Any]
) -> None:
    request = RequestFactory().get("/")
    request.user = User(username="mira")

    html = strict_engine.get_template(template).render(
        {"here": "tasks", "still": False, "form": None, "messages": [], "LANGUAGE_CODE": "en", **context},
        request,
    )

    assert MISSING not in html
    balance = Balance()
    balance.feed(html)
    assert (balance.open, balance.faults) == ([], [])
    assert sorted(balance.ids) == sorted(set(balance.ids))
