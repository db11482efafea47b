"""Admin pages that show and never change: history, and JSON drawn for reading."""

import json
from collections.abc import Callable
from typing import Any

from django.db.models import Model
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.paginator import InfinitePaginator

from federation.admin.scope import ScopedAdmin

_SHOWN_CHARS = 200_000


def as_json(field: str) -> Callable[[Model], SafeString]:
    """Return a column that draws a JSON field indented, cut where it is very long."""

    def drawn(row: Model) -> SafeString:
        text = json.dumps(getattr(row, field), indent=2, ensure_ascii=False, default=str)
        more = f"\n… {len(text) - _SHOWN_CHARS} characters more" if len(text) > _SHOWN_CHARS else ""
        return format_html('<pre class="facet-json" tabindex="0">{}{}</pre>', text[:_SHOWN_CHARS], more)

    drawn.__name__ = f"{field}_drawn"
    drawn.short_description = field.replace("_", " ")  # type: ignore[attr-defined]  # Django's convention
    return drawn


def state_label(field: str = "state") -> Callable[[Model], str]:
    """Return a column that draws a state as a coloured word."""
    colours = {
        **dict.fromkeys(("succeeded", "online", "running", "active", "settle", "available"), "success"),
        **dict.fromkeys(("failed", "offline", "unreachable", "scheduler_down", "unparsable"), "danger"),
        **dict.fromkeys(
            (
                *("degraded", "stale", "attention", "unknown", "unschedulable", "needs_sign_in"),
                *("pending_approval", "expired"),
            ),
            "warning",
        ),
        **dict.fromkeys(("pending", "submitted", "placing", "dispatching", "staging", "reserve"), "info"),
    }

    @display(description=field, label=colours, ordering=field)  # type: ignore[untyped-decorator]
    def drawn(row: Model) -> str:
        return str(getattr(row, field))

    return drawn  # type: ignore[no-any-return]


class ReadOnlyAdmin(ScopedAdmin):
    """Rows of history: staff with permission may look; nobody may add, change or delete."""

    actions: tuple[str, ...] | None = None
    ordering = ("-pk",)
    show_full_result_count = False
    paginator = InfinitePaginator
    list_per_page = 50
    json_fields: tuple[str, ...] = ()
    """Drawn for reading in place of their raw text."""
    shown: tuple[str, ...] = ()
    """The fields of one row's page, in order."""

    def has_add_permission(self, request: HttpRequest, *more: Any) -> bool:
        """Refuse."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse."""
        return False

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        """Return the fields of one row, JSON ones as drawn columns."""
        return [as_json(name) if name in self.json_fields else name for name in self.shown]

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        """Return all of them."""
        return self.get_fields(request, obj)
