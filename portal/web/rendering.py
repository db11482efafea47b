"""How every page is answered: whole, or the one part that a live page asked for, under the pages' policy."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from portal.middleware import STRICT

POLICY = f"{STRICT}; style-src 'self'; style-src-attr 'unsafe-inline'"
"""Bars and time axes carry their measures in style attributes; sheets and scripts are our files only."""


def page(
    request: HttpRequest,
    template: str,
    context: Mapping[str, Any],
    *,
    parts: tuple[str, ...] = (),
    status: int = 200,
) -> HttpResponse:
    """Render the page, or with `?part=NAME` that partial of it where `parts` lists the name."""
    part = request.GET.get("part", "")
    name = f"{template}#{part}" if part in parts else template
    response = render(request, name, dict(context), status=status)
    response["Content-Security-Policy"] = POLICY
    response["Cache-Control"] = "no-store"
    return response
