"""GET bundle: the skill bundle as a zip file, for anybody; it holds no secret."""

from functools import cache

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from portal.api.views import etag_of
from portal.bundle import NAME, archive
from portal.skills.every import SKILLS
from portal.skills.registry import describe


@cache
def _bundle() -> bytes:
    return archive([describe(each) for each in SKILLS.values()])


@require_safe
def download(request: HttpRequest) -> HttpResponse:
    """Return the bundle; 304 when the caller has it already."""
    content = _bundle()
    tag = etag_of(content)
    if request.META.get("HTTP_IF_NONE_MATCH") == tag:
        response = HttpResponse(status=304)
    else:
        response = HttpResponse(content, content_type="application/zip")
        response["Content-Disposition"] = f'attachment; filename="{NAME}-skill.zip"'
    response["ETag"] = tag
    response["Cache-Control"] = "no-cache"
    return response
