"""POST milestones: a running job says where it is. Its token is good for this and for nothing else."""

from typing import Any, ClassVar

from django.http import HttpResponse
from django.utils import timezone
from pydantic import Field
from rest_framework.views import APIView

from orchestrator.services.milestones import reach_milestone
from portal.api.authentication import bearer
from portal.api.paging import refuse_unknown
from portal.api.parsing import decode
from portal.api.problems import BodyTooLarge
from portal.api.views import as_json
from portal.tokens import Unauthenticated
from providers.reading import read
from providers.types import Frozen

_MAX_BYTES = 4096


class MilestoneInput(Frozen):
    """What is reported; `text/plain` may say it without JSON."""

    text: str = Field(min_length=1, max_length=2000, description="One line; 200 characters of it are kept.")


class MilestoneNoted(Frozen):
    """The event it became."""

    event: str
    number: int = Field(description="How many this attempt has reported; at most 200.")


class Milestones(APIView):  # type: ignore[misc]  # no types
    """POST milestones, by a job token alone."""

    authentication_classes: ClassVar[list[Any]] = []
    permission_classes: ClassVar[list[Any]] = []

    def post(self, request: Any) -> HttpResponse:
        """Note it; 202 because whoever subscribes is told afterwards."""
        refuse_unknown(request.GET, ())
        token = bearer(request.META.get("HTTP_AUTHORIZATION", ""))
        if token is None:
            raise Unauthenticated("This needs a job token.", reason="no_token")
        event = reach_milestone(token, _text(request._request), now=timezone.now())  # noqa: SLF001  # as in views
        return as_json(MilestoneNoted(event=event.handle, number=event.data["number"]), status=202)


def _text(request: Any) -> str:
    body: bytes = request.read(_MAX_BYTES + 1)
    if len(body) > _MAX_BYTES:
        raise BodyTooLarge(f"A milestone is at most {_MAX_BYTES} bytes.", limit_bytes=_MAX_BYTES)
    if (request.content_type or "").strip().lower() == "text/plain":
        return body.decode("utf-8", "replace")
    return read(MilestoneInput, decode(body), what="milestone").text
