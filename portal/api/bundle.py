"""GET bundle and cli: the skill bundle and the command line, for anybody; neither holds a secret."""

from functools import cache

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from portal import cli_wheel
from portal.api.problems import respond
from portal.api.views import etag_of
from portal.bundle import NAME, archive
from portal.skills.every import SKILLS
from portal.skills.registry import describe
from providers.errors import NotFound


@cache
def _bundle() -> bytes:
    return archive([describe(each) for each in SKILLS.values()])


@require_safe
def download(request: HttpRequest) -> HttpResponse:
    """Return the bundle; 304 when the caller has it already."""
    return _file(request, _bundle(), f"{NAME}-skill.zip")


@require_safe
def command_line(_request: HttpRequest) -> HttpResponse:
    """Return the page that `pip --find-links` reads: a link to the wheel, with its digest."""
    link = f'<a href="{cli_wheel.name()}#sha256={cli_wheel.digest()}">{cli_wheel.name()}</a>'
    return HttpResponse(f"<!doctype html><title>facet</title>{link}\n")


@require_safe
def wheel(request: HttpRequest, name: str) -> HttpResponse:
    """Return the command line as a wheel."""
    if name != cli_wheel.name():
        return respond(NotFound(f"There is no {name[:80]!r} here; there is {cli_wheel.name()}."))
    return _file(request, cli_wheel.content(), name)


def _file(request: HttpRequest, content: bytes, name: str) -> HttpResponse:
    tag = etag_of(content)
    if request.META.get("HTTP_IF_NONE_MATCH") == tag:
        response = HttpResponse(status=304)
    else:
        response = HttpResponse(content, content_type="application/zip")
        response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["ETag"] = tag
    response["Cache-Control"] = "no-cache"
    return response
