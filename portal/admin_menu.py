"""The admin's menu: what belongs together stands together, and nobody sees an entry they may not open."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse

SECTIONS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "Sites",
        (
            ("Systems and profiles", "federation.system", "dns"),
            ("Connections", "federation.connection", "cable"),
            ("Probes", "federation.snapshot", "radar"),
        ),
    ),
    (
        "Work",
        (
            ("Tasks", "orchestrator.task", "task_alt"),
            ("Groups", "orchestrator.group", "workspaces"),
            ("Attempts", "orchestrator.attempt", "restart_alt"),
            ("Decisions", "orchestrator.decision", "alt_route"),
            ("Envelopes", "orchestrator.envelope", "mail"),
            ("Transfers", "orchestrator.transfer", "sync_alt"),
            ("Manifests", "orchestrator.manifest", "inventory_2"),
        ),
    ),
    (
        "Spending",
        (
            ("Allocations", "federation.allocation", "account_balance_wallet"),
            ("Charges", "federation.charge", "receipt_long"),
            ("Budgets", "orchestrator.budget", "savings"),
            ("Budget lines", "orchestrator.budgetline", "list_alt"),
            ("Approvals", "orchestrator.approval", "approval"),
        ),
    ),
    (
        "Events",
        (
            ("Event log", "federation.event", "history"),
            ("Subscriptions", "orchestrator.subscription", "notifications"),
            ("Deliveries", "orchestrator.delivery", "outgoing_mail"),
        ),
    ),
    (
        "People",
        (
            ("Users", "auth.user", "person"),
            ("Groups of people", "auth.group", "group"),
            ("API tokens", "portal.apitoken", "key"),
            ("Globus identities", "portal.globusidentity", "badge"),
            ("Globus delegations", "portal.globustoken", "vpn_key"),
            ("Idempotency keys", "portal.idempotencyrecord", "repeat_one"),
        ),
    ),
)
"""Section, and its entries: title, model, icon (Material Symbols)."""


def mark(_request: HttpRequest) -> str:
    """Return the address of Facet's mark."""
    return static("brand/mark.svg")


def style(_request: HttpRequest) -> str:
    """Return the address of what the admin's pages need beyond their theme."""
    return static("css/admin.css")


def script(_request: HttpRequest) -> str:
    """Return the address of what names the theme's nameless widgets."""
    return static("js/admin.js")


def listed() -> set[str]:
    """Return the models that have an entry."""
    return {model for _, entries in SECTIONS for _, model, _ in entries}


def menu(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the sections for this person, empty ones left out."""
    by_label = {model._meta.label_lower: each for model, each in admin.site._registry.items()}  # noqa: SLF001  # its only names
    found = []
    for section, entries in SECTIONS:
        items = [
            {"title": title, "icon": icon, "link": reverse(f"admin:{model.replace('.', '_')}_changelist")}
            for title, model, icon in entries
            if by_label[model].has_view_permission(request)
        ]
        if items:
            found.append({"title": section, "separator": True, "collapsible": False, "items": items})
    return found
