"""The menu leads to everything that there is, and shows nobody what they may not open."""

from datetime import datetime

import pytest
from django.contrib.admin.sites import site
from django.contrib.auth.models import User
from django.test import Client, RequestFactory

from federation.managers import appoint
from federation.models import System
from portal.admin_menu import listed, menu
from tests.state.admin.asking import text_of

pytestmark = pytest.mark.django_db


def test_every_table_of_the_admin_is_in_the_menu() -> None:
    assert listed() == {model._meta.label_lower for model in site._registry}


def test_a_site_manager_is_offered_what_they_look_after(delta: System, alice: User, now: datetime) -> None:
    appoint(delta, alice, now=now, actor="user:root")
    request = RequestFactory().get("/admin/")
    request.user = User.objects.get(pk=alice.pk)

    offered = {section["title"]: [item["title"] for item in section["items"]] for section in menu(request)}

    assert offered == {
        "Sites": ["Systems and profiles", "Connections", "Probes"],
        "Work": ["Attempts"],
        "Spending": ["Allocations", "Charges"],
        "Events": ["Event log"],
    }


def test_the_page_draws_the_menu_and_facets_mark(admin: Client) -> None:
    page = text_of(admin.get("/admin/"))

    for title in ("Systems and profiles", "Globus delegations", "Deliveries"):
        assert title in page
    assert "/static/brand/mark.svg" in page
