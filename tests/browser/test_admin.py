"""The administrator in a real browser: mends a profile, tries it, stores it, takes it back, appoints."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User

from federation.models import Connection, System
from federation.profile_yaml import read_profile
from federation.services import store_profile
from portal.models import ApiToken
from portal.skills.registry import Scope
from portal.tokens import issue_token
from tests.browser.conftest import Watched
from tests.browser.site import make_site, now

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

PASSWORD = "a-long-password"
TEXT = """# by hand
system: anvil
name: Anvil
architecture: x86_64
node_types:
  g: {cpus: 128, memory_mib: 500G, gpus: 4, gpu: a100, gpu_memory_mib: 40G}
partitions:
  gpu: {nodes: [{type: g, count: 8}]}
  shared: {}
"""


@pytest.fixture
def anvil(tmp_path: Path) -> System:
    alice = User.objects.create_user("alice", password=PASSWORD)
    system = make_site(alice, tmp_path / "anvil")
    store_profile(read_profile(TEXT), TEXT, now=now())
    return system


def _sign_in(watched: Watched, name: str) -> None:
    watched.goto("/admin/login/?next=/admin/")
    watched.page.get_by_label("Username").fill(name)
    watched.page.get_by_label("Password").fill(PASSWORD)
    watched.page.get_by_role("button", name="Log in").click()
    watched.page.get_by_role("link", name="Systems and profiles").first.wait_for()


def test_a_profile_is_mended_tried_stored_and_taken_back(watched: Watched, anvil: System) -> None:
    User.objects.create_superuser("root", password=PASSWORD)
    page = watched.page
    _sign_in(watched, "root")
    watched.goto(f"/admin/federation/system/{anvil.pk}/change/")
    text = page.locator("textarea[name=text]")

    text.fill(TEXT.replace("shared: {}", "shared: {max_nodes: 0}"))
    page.get_by_role("button", name="Validate and review").click()
    page.get_by_text("line 9, column 12").click()
    assert page.evaluate("document.activeElement.name") == "text"
    assert page.locator(".facet-gutter .faulty").inner_text() == "9"

    text.fill(TEXT.replace("shared: {}", "shared: {max_nodes: 2}"))
    page.get_by_role("button", name="Dry run against the site").click()
    page.get_by_text("Nothing is stored.").wait_for()
    row = page.locator("#dry-run tr", has_text="shared").first
    assert "at most 2 nodes a job" in row.inner_text()
    watched.shoot("admin-dry-run")
    assert watched.overflow() <= 0
    page.get_by_role("button", name="Store as revision 3").click()
    page.get_by_text("Anvil: revision 3 is in force.").wait_for()

    page.get_by_role("link", name="Revisions").click()
    page.get_by_role("link", name="Roll back to this").first.click()
    page.get_by_role("button", name="Roll back to revision 2").click()
    page.get_by_text("Anvil: revision 2 is in force again.").wait_for()
    anvil.refresh_from_db()
    assert anvil.profile is not None
    assert anvil.profile.revision == 2


def test_an_appointed_person_finds_their_system_and_no_other(watched: Watched, anvil: System) -> None:
    User.objects.create_superuser("root", password=PASSWORD)
    other = TEXT.replace("anvil", "vista").replace("Anvil", "Vista")
    store_profile(read_profile(other), other, now=now())
    page = watched.page
    _sign_in(watched, "root")
    watched.goto(f"/admin/federation/system/{anvil.pk}/managers/")
    page.get_by_label("User name").fill("alice")
    page.get_by_role("button", name="Appoint").click()
    page.get_by_text("alice looks after Anvil.").wait_for()
    watched.shoot("admin-managers")

    page.context.clear_cookies()
    _sign_in(watched, "alice")
    page.get_by_role("link", name="Systems and profiles").first.click()
    page.get_by_role("link", name="anvil").first.wait_for()
    assert page.get_by_text("Vista").count() == 0
    assert page.get_by_role("link", name="API tokens").count() == 0
    watched.shoot("admin-site-manager")


def test_the_admins_main_pages_are_accessible(watched: Watched, anvil: System) -> None:
    root = User.objects.create_superuser("root", password=PASSWORD)
    link = Connection.objects.get(system=anvil)
    issue_token(link.user, name="laptop", scopes=(Scope.READ,), now=now())
    profile = anvil.revisions.order_by("revision").first()
    assert profile is not None
    assert anvil.snapshot is not None
    watched.goto("/admin/login/")
    faults = {f"login {rule}": where for rule, where in watched.violations().items()}
    _sign_in(watched, "root")
    faults |= {f"index {rule}": where for rule, where in watched.violations().items()}
    system = f"/admin/federation/system/{anvil.pk}"

    both = {
        "profile": f"{system}/change/",
        "probe": f"{system}/probe/{anvil.snapshot.handle}/",
        "user": f"/admin/auth/user/{root.pk}/change/",
        "users": "/admin/auth/user/",
        "connections": "/admin/federation/connection/",
        "tokens": "/admin/portal/apitoken/",
        "roll-back": f"{system}/history/{profile.revision}/roll-back/",
    }
    more = {
        "systems": "/admin/federation/system/",
        "revisions": f"{system}/history/",
        "downtime": f"{system}/maintenance/",
        "managers": f"{system}/managers/",
        "allocation": "/admin/federation/allocation/add/",
        "events": "/admin/federation/event/",
        "revision": f"{system}/history/{profile.revision}/",
        "connection": f"/admin/federation/connection/{link.pk}/change/",
        "token": f"/admin/portal/apitoken/{ApiToken.objects.get().pk}/change/",
        "disable": f"{system}/disable/",
        "new-user": "/admin/auth/user/add/",
        "new-system": "/admin/federation/system/add/",
        "group": "/admin/auth/group/add/",
        "tasks": "/admin/orchestrator/task/",
        "budgets": "/admin/orchestrator/budget/",
    }
    # The theme reads the colour scheme as a page loads.
    for scheme, pages in {"light": both | more, "dark": both}.items():
        watched.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # one of its literals
        for name, path in pages.items():
            watched.goto(path)
            faults |= {f"{name} {scheme} {rule}": where for rule, where in watched.violations().items()}

    assert faults == {}
