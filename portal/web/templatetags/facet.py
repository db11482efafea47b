"""Small pieces that every page repeats: icons, states, instants, systems, handles to copy."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django import template
from django.contrib.messages.storage.base import Message
from django.templatetags.static import static
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from portal.web import navigation, terminal, told
from portal.web.presenters.shared import SystemRef, said

register = template.Library()

SHEETS = ("tokens", "base", "layout", "components", "forms", "shell", "figures", "pages", "work")
NOT_KNOWN = mark_safe("–")


@register.simple_tag
def style_sheets() -> SafeString:
    """Link every style sheet of the pages; tokens.css comes first because it orders the layers."""
    return format_html_join(
        "\n", '<link rel="stylesheet" href="{}">', ((static(f"css/{name}.css"),) for name in SHEETS)
    )


@register.simple_tag
def icon(name: str, extra: str = "") -> SafeString:
    """Draw one icon of static/icons.svg; decoration only: words must stand beside it or label its button."""
    return format_html(
        '<svg class="icon {}" aria-hidden="true"><use href="{}#{}"/></svg>', extra, static("icons.svg"), name
    )


@register.simple_tag
def state(value: str, kind: str = "task") -> SafeString:
    """Say a state of a task, attempt or system's health as word, icon and colour."""
    words = said(value, kind)
    return format_html(
        '<span class="tag {}{}">{}{}</span>',
        words.look,
        " turning" if words.turning else "",
        icon(words.icon),
        words.word,
    )


@register.simple_tag
def moment(at: datetime | None, style: str = "full") -> SafeString:
    """Write an instant: UTC in the page, the viewer's zone once scripts run, UTC on hover.

    Styles: `full` (date and time), `clock` (hours, minutes, seconds), `hm`, `ago` (ticks).
    """
    if at is None:
        return NOT_KNOWN
    utc = at.astimezone(UTC)
    written = {"clock": "%H:%M:%S", "hm": "%H:%M"}.get(style, "%Y-%m-%d %H:%M:%S UTC")
    return format_html(
        '<time datetime="{}" data-moment="{}" title="{}">{}</time>',
        utc.strftime("%Y-%m-%dT%H:%M:%SZ"),
        style,
        utc.strftime("%Y-%m-%d %H:%M:%S UTC"),
        utc.strftime(written),
    )


@register.simple_tag
def system(ref: SystemRef | None, partition: str = "") -> SafeString:
    """Name a system with its colour, and a partition of it where given."""
    if ref is None:
        return NOT_KNOWN
    small = format_html(" <small>{}</small>", partition) if partition else ""
    return format_html('<span class="sys t{}"><span>{}{}</span></span>', ref.tone, ref.name, small)


@register.simple_tag
def copy(text: str, label: str = "") -> SafeString:
    """Draw a button that copies the text; it appears only where scripts run."""
    return format_html(
        '<button type="button" class="btn bare tiny square" data-copy="{}" aria-label="{}" hidden>'
        "{}</button>",
        text,
        label or _("Copy %(text)s") % {"text": text},
        icon("copy"),
    )


@register.simple_tag
def state_word(value: str, kind: str = "task") -> str:
    """Return only the word of a state, where no mark-up may stand."""
    return str(said(value, kind).word)


@register.simple_tag
def places() -> tuple[navigation.Place, ...]:
    """Return the places of the portal that exist: `{% places as rail %}`."""
    return navigation.places()


@register.filter
def is_at(place: navigation.Place, here: str) -> bool:
    """Return whether a page that calls itself `here` lies in this place."""
    return here == place.here or (place.here == "account" and here == "connections")


@register.filter
def undo_url(message: Message) -> str:
    """Return where the way back of a message is; "" = none."""
    return told.undo_of(message)


@register.inclusion_tag("components/terminal.html", takes_context=True)
def show_as(
    context: template.Context, skill: str, body: Mapping[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    """Offer a call of a skill for a terminal: `{% show_as "cancel" task=page.handle %}`.

    The input is `body`, or the keyword arguments; both together are merged.
    """
    return {"call": terminal.skill_call(skill, {**(body or {}), **fields}, base_url=_base(context))}


@register.inclusion_tag("components/terminal.html", takes_context=True)
def show_read(context: template.Context, path: str) -> dict[str, Any]:
    """Offer a read of the API for a terminal: `{% show_read "/api/v1/tasks?state=running" %}`."""
    return {"call": terminal.read_call(path, base_url=_base(context))}


@register.filter
def as_api(path: str) -> str:
    """Return where the API has what a page's address shows: pages mirror its paths."""
    return f"/api/v1{path.rstrip('/')}"


@register.inclusion_tag("components/terminal.html", takes_context=True)
def show_rest(
    context: template.Context, method: str, path: str, body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Offer a write of the API that is no skill: `{% show_rest "POST" "/api/v1/tokens" body %}`."""
    return {"call": terminal.rest_call(method, path, body, base_url=_base(context))}


def _base(context: template.Context) -> str:
    return str(context["request"].build_absolute_uri("/")).rstrip("/")


@register.inclusion_tag("components/confirm.html", takes_context=True)
def confirm(
    context: template.Context,
    url: str,
    label: str,
    question: str,
    yes: str,
    *,
    icon: str = "x",
    form: str = "",
    small: bool = False,
    **hidden: str,
) -> dict[str, Any]:
    """Ask before what destroys; a disclosure that needs no script, and closes on Escape where one runs.

    `{% confirm url _("Delete") _("Delete it for good?") _("Yes, delete it") %}`. Further keyword arguments
    become hidden fields; with `form` the button belongs to that form (bulk actions) and no own one is made.
    """
    return {
        "csrf_token": context.get("csrf_token"),
        "url": url,
        "label": label,
        "question": question,
        "yes": yes,
        "icon_name": icon,
        "form": form,
        "small": small,
        "hidden": hidden,
    }
