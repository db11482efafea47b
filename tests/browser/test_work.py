"""Work as people follow it in a browser: tasks, groups, agents, data, spending, the log, the account."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings

from orchestrator import moving
from orchestrator.models import Group, Subscription, Task, Transfer
from orchestrator.services.groups import advance_group, submit_group
from orchestrator.services.transfers import move_data
from tests.browser.conftest import Watched
from tests.browser.site import hand_out, make_site, work_until

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

LIMITS = {
    "scope": "project",
    "subject": "md",
    "name": "Campaign",
    "max_attempts": "20",
    "max_accelerator_hours": "60",
}


@pytest.fixture
def mira(tmp_path: Path) -> User:
    """A researcher with one system."""
    user = User.objects.create_user("mira", password="a-long-password")
    make_site(user, tmp_path / "anvil")
    return user


def campaign(user: User) -> Group:
    """Submit three children in two rounds and place what may begin."""
    child = {"command": ["sleep", "30"], "envelope": {"gpus": 1, "cpus": 1, "walltime_s": 600}}
    given = {
        "name": "docking",
        "objective": "Screen the ligands.",
        "diversity": "soft",
        "children": [
            {"key": "a", "name": "dock-a", **child},
            {"key": "b", "name": "dock-b", **child},
            {"key": "rank", "name": "rank", "round": 2, **child},
        ],
    }
    now = datetime.now(UTC)
    group = submit_group(user, given, actor="user:mira", now=now).group
    advance_group(group.pk, now=now)
    return group


def moved(user: User, folder: Path) -> Transfer:
    """Move one file of this machine, to its end."""
    home = folder / "home" / user.get_username()
    home.mkdir(parents=True)
    (home / "x").write_text("hello\n")
    given = {"source": f"file://{home}/x", "destination": f"file://{home}/y"}
    transfer = move_data(user, given, actor="user:mira", now=datetime.now(UTC))
    moving.watch_transfers(user.pk, now=datetime.now(UTC))
    transfer.refresh_from_db()
    assert (home / "y").read_text() == "hello\n"
    return transfer


def test_every_page_of_work_is_accessible_and_fits_a_phone(
    watched: Watched, mira: User, tmp_path: Path, settings: Settings
) -> None:
    settings.LOCAL_ROOTS = (str(tmp_path / "home" / "{user}"),)
    page = watched.page
    group = campaign(mira)
    hand_out()
    running = Task.objects.get(name="dock-a")
    work_until(running, "running")
    transfer = moved(mira, tmp_path)
    watched.sign_in("mira", "a-long-password")

    watched.goto("/agents/")
    page.get_by_label("Name").first.fill("lab-agent")
    page.get_by_label("read see systems").check()
    page.get_by_role("button", name="Make the token").click()
    page.get_by_text("shown this once").wait_for()
    faults = {f"made {rule}": where for rule, where in watched.violations().items()}
    page.get_by_text("New subscription").click()
    page.locator("#id_subscription_url").fill("https://hooks.example.org/facet")
    page.get_by_role("button", name="Subscribe", exact=True).click()
    page.get_by_role("heading", name="Signing secret").wait_for()
    subscription = page.url
    assert "/subscriptions/" in subscription
    watched.goto("/allocations/")
    page.get_by_text("Set a budget").click()
    page.locator("#id_budget_subject").fill(LIMITS["subject"])
    page.locator("#id_budget_name").fill(LIMITS["name"])
    page.locator("#id_budget_max_attempts").fill(LIMITS["max_attempts"])
    page.locator("#id_budget_max_accelerator_hours").fill(LIMITS["max_accelerator_hours"])
    page.get_by_role("button", name="Set it").click()
    page.get_by_text("The budget is set.").wait_for()

    wider: dict[str, int] = {}
    cut: dict[str, list[str]] = {}
    for name, path in {
        "work-tasks": "/tasks/",
        "work-task": f"/tasks/{running.handle}/",
        "work-groups": "/groups/",
        "work-group": f"/groups/{group.handle}/",
        "work-data": "/transfers/",
        "work-transfer": f"/transfers/{transfer.handle}/",
        "work-subscription": f"/subscriptions/{Subscription.objects.get().handle}/",
        "work-allocations": "/allocations/",
        "work-agents": "/agents/",
        "work-events": "/events/",
        "work-chain": "/events/verify/",
        "work-account": "/account/",
    }.items():
        watched.goto(path)
        watched.shoot(name)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            faults |= {f"{name} {scheme} {rule}": where for rule, where in watched.violations().items()}
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 390, "height": 844})
        wider[name] = watched.overflow()
        cut |= {f"{name} {width}": tables for width, tables in watched.cut().items()}
        page.set_viewport_size({"width": 1440, "height": 900})

    assert faults == {}
    assert wider == dict.fromkeys(wider, 0)
    assert cut == {}


def test_chosen_tasks_stay_chosen_while_the_list_lives_and_end_after_one_question(
    watched: Watched, mira: User
) -> None:
    page = watched.page
    campaign(mira)
    watched.sign_in("mira", "a-long-password")
    watched.goto("/tasks/")

    page.get_by_label("Choose dock-a").check()
    with page.expect_response(lambda response: "part=rows" in response.url):
        watched.changed()
    page.get_by_text("(1)").wait_for()
    assert page.get_by_label("Choose dock-a").is_checked()
    page.get_by_role("button", name="Cancel the chosen").click()
    page.get_by_role("heading", name="Cancel this task?").wait_for()
    page.get_by_role("button", name="Yes, cancel it").click()
    page.get_by_text("1 task is cancelled.").wait_for()

    assert set(Task.objects.filter(state="cancelled").values_list("name", flat=True)) == {"dock-a"}


def test_the_chain_is_checked_to_its_end_and_times_follow_the_chosen_zone(
    watched: Watched, mira: User
) -> None:
    page = watched.page
    campaign(mira)
    watched.sign_in("mira", "a-long-password")

    watched.goto("/events/verify/")
    page.get_by_text("are what was committed").wait_for()
    watched.goto("/account/")
    page.get_by_label("Tell times in").select_option("Asia/Tokyo")
    page.get_by_role("button", name="Keep it").click()
    page.get_by_text("Times are told in Asia/Tokyo.").wait_for()

    told = page.evaluate("new Date(document.querySelector('main time').dateTime).getUTCHours()")
    shown = page.locator("main time").inner_text()
    assert f"{(told + 9) % 24:02}:" in shown


def test_a_group_is_cancelled_without_scripts(plain: Watched, mira: User) -> None:
    page = plain.page
    group = campaign(mira)
    plain.sign_in("mira", "a-long-password")

    plain.goto(f"/groups/{group.handle}/")
    page.locator(".confirm summary").click()
    page.get_by_role("button", name="Yes, cancel the group").click()
    page.get_by_text("Cancelling:").first.wait_for()

    group.refresh_from_db()
    assert group.cancel_requested_at is not None
