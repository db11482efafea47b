"""Balances, budgets and approvals on pages: read, set, closed and decided."""

import re
from datetime import datetime
from decimal import Decimal
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from orchestrator.models import Approval, Budget, Task
from tests.web.test_task_pages import submit

pytestmark = pytest.mark.django_db


@pytest.fixture
def asking(federation: User, browser: Client, now: datetime) -> Task:
    """A task that waits for its person: its project asks above a tenth of a unit."""
    given = {"scope": "project", "subject": "md", "ask_charge": "anvil=0.1, delta=0.1", "max_attempts": "3"}
    assert browser.post("/budgets/", given).status_code == 302
    task = submit(federation, "costly-run", now, project="md")
    assert task.state == "pending_approval", task.reason
    return task


def words(page: str) -> str:
    """Return a page without its mark-up."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", page)))


def test_balances_stand_by_account_in_the_sites_own_unit(
    federation: User, browser: Client, now: datetime
) -> None:
    submit(federation, "a", now)

    page = browser.get("/allocations/").text

    assert "1 000 SU 0 1 999 SU not told" in words(page.partition(">science<")[2].partition("</tr>")[0])
    assert "not told" in page
    assert "No budget binds your work." in page


def test_without_allocations_the_page_says_who_enters_them(browser: Client) -> None:
    assert "An administrator enters what each site granted you" in browser.get("/allocations/").text


def test_a_budget_is_set_with_what_was_typed(federation: User, browser: Client) -> None:
    given = {
        "scope": "project",
        "subject": "md",
        "name": "Campaign",
        "max_charge": "anvil=100, delta=40.5",
        "max_accelerator_hours": "200",
        "deadline": "2031-01-02T03:04",
        "thresholds": "50 %, 80",
        "on_exhaustion": "cancel",
    }

    told = browser.post("/budgets/", given, follow=True).text

    budget = Budget.objects.get()
    assert "The budget is set." in told
    assert (budget.scope, budget.subject, budget.name) == ("project", "md", "Campaign")
    assert budget.thresholds == [0.5, 0.8]
    assert budget.deadline_at is not None
    assert budget.deadline_at.isoformat() == "2031-01-02T03:04:00+00:00"
    limits = {(m.measure, m.system): m.limit for m in budget.meters.all()}
    assert limits == {
        ("charge", "anvil"): Decimal(100),
        ("charge", "delta"): Decimal("40.5"),
        ("accelerator_hours", ""): Decimal(200),
    }
    assert "0 / 100 SU" in words(told)


@pytest.mark.parametrize(
    ("given", "field", "sentence"),
    [
        ({"subject": ""}, "subject", "Say which"),
        ({"subject": "md", "max_charge": "anvil:3"}, "max_charge", "is not system=amount"),
        ({"subject": "md", "max_charge": "anvli=3"}, "max_charge", "anvil"),
        ({"subject": "md", "max_node_hours": "many"}, "max_node_hours", "is not an amount"),
        ({"subject": "md", "thresholds": "120"}, "thresholds", "is not a share of 100"),
        ({"subject": "task_nobodys", "scope": "task", "max_attempts": "1"}, "", "task_nobodys"),
        ({"subject": "md"}, "", "name at least one limit"),
        ({"subject": "md", "max_attempts": "1", "deadline": "2001-01-01T00:00"}, "deadline", "passed"),
    ],
)
def test_a_budget_that_cannot_be_says_why(
    federation: User, browser: Client, given: dict[str, str], field: str, sentence: str
) -> None:
    answer = browser.post("/budgets/", {"scope": "project", **given})

    assert answer.status_code == 422
    page = unescape(answer.text)
    told = page.partition(f'id="id_budget_{field}_error"')[2].partition("</p>")[0] if field else page
    assert sentence in told
    assert not Budget.objects.exists()


def test_a_closed_budget_binds_nothing_and_is_shown_on_wish(federation: User, browser: Client) -> None:
    browser.post("/budgets/", {"scope": "project", "subject": "md", "max_attempts": "3"})
    handle = Budget.objects.get().handle

    told = browser.post(f"/budgets/{handle}/close/", follow=True).text

    assert "it binds nothing any more" in told
    assert handle not in told
    assert handle in browser.get("/allocations/?closed=1").text


def test_what_waits_for_approval_says_what_it_would_hold(browser: Client, asking: Task) -> None:
    approval = Approval.objects.get()

    for address in ("/allocations/", f"/tasks/{asking.handle}/"):
        page = browser.get(address).text
        assert f"/approvals/{approval.handle}/decide/" in page
        assert "1 SU, where more than 0.1 SU is asked about (project md)" in words(page)


@pytest.mark.parametrize(("decision", "state"), [("approve", "placing"), ("reject", "cancelled")])
def test_a_person_decides_from_the_tasks_page(
    browser: Client, asking: Task, decision: str, state: str
) -> None:
    approval = Approval.objects.get()
    back = f"/tasks/{asking.handle}/"

    answer = browser.post(
        f"/approvals/{approval.handle}/decide/", {"decision": decision, "note": "fine", "back": back}
    )

    assert answer.headers["Location"] == back
    approval.refresh_from_db()
    asking.refresh_from_db()
    assert (approval.state, approval.decided_via, approval.note) == (
        {"approve": "approved", "reject": "rejected"}[decision],
        "page",
        "fine",
    )
    assert asking.state == state


def test_an_answer_leads_nowhere_else(browser: Client, asking: Task) -> None:
    approval = Approval.objects.get()

    answer = browser.post(f"/approvals/{approval.handle}/decide/", {"back": "//evil.example/"})

    assert answer.headers["Location"] == "/allocations/"


def test_another_users_budget_and_approval_are_not_found(browser: Client, asking: Task, kofi: User) -> None:
    browser.force_login(kofi)

    budget, approval = Budget.objects.get(), Approval.objects.get()
    assert browser.post(f"/budgets/{budget.handle}/close/").status_code == 404
    assert browser.post(f"/approvals/{approval.handle}/decide/", {"decision": "approve"}).status_code == 404
    page = browser.get("/allocations/?closed=1").text
    assert budget.handle not in page
    assert "costly-run" not in page
    approval.refresh_from_db()
    assert approval.state == "pending"


def test_spending_asks_a_bounded_number_of_questions(
    browser: Client, asking: Task, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_max_num_queries(10):
        browser.get("/allocations/")
