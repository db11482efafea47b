"""The API described: its schema, a page to browse it, what each error means, and a word to models."""

import json
from functools import cache

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from portal.api.openapi.document import document
from portal.api.problems import catalogue, not_found
from portal.skills.every import SKILLS
from portal.skills.registry import Scope
from providers.errors import NotFound

# Swagger UI writes style elements of its own; scripts stay ours alone.
_POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


@cache
def _document() -> str:
    return json.dumps(document())


@require_safe
def schema(_request: HttpRequest) -> HttpResponse:
    """Return the OpenAPI document."""
    return HttpResponse(_document(), content_type="application/json")


@require_safe
def browse(request: HttpRequest) -> HttpResponse:
    """Show the API in Swagger UI, served from here."""
    response = render(request, "api/docs.html")
    response["Content-Security-Policy"] = _POLICY
    return response


@require_safe
def errors(request: HttpRequest) -> HttpResponse:
    """Show every error code with what to do about it; each is an anchor."""
    known = [
        {"code": code, "title": title, "remedy": remedy} for code, (title, remedy) in catalogue().items()
    ]
    return render(request, "api/errors.html", {"codes": known})


@require_safe
def for_models(request: HttpRequest) -> HttpResponse:
    """Tell a model in a page what this is and how it is used."""
    context = {"skills": list(SKILLS.values()), "url": request.build_absolute_uri("/").rstrip("/")}
    return render(request, "api/llms.txt", context, content_type="text/plain; charset=utf-8")


@require_safe
def protected_resource(_request: HttpRequest) -> HttpResponse:
    """Say how /mcp is authorized (RFC 9728): by bearer tokens that people make here."""
    told = {
        "resource": f"{settings.PUBLIC_URL}/mcp",
        "resource_name": "Facet",
        "bearer_methods_supported": ["header"],
        "scopes_supported": [scope.value for scope in Scope],
        "resource_documentation": f"{settings.PUBLIC_URL}/api/v1/docs",
    }
    return HttpResponse(json.dumps(told), content_type="application/json")


@csrf_exempt
def nowhere(request: HttpRequest) -> HttpResponse:
    """Answer a path under /api that no route has."""
    response = not_found(request, NotFound(""))
    assert isinstance(response, HttpResponse)  # noqa: S101  # problems never stream
    return response
