"""POST skills/wait_for_events: begun like every skill, then waited for in the event loop."""

from collections.abc import AsyncGenerator
from typing import Any, ClassVar

from django.core.handlers.asgi import ASGIRequest
from django.db import Error
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from pydantic import BaseModel

from portal.api.problems import respond, translated
from portal.api.views import JSON, ApiView, as_json, parameters_of
from portal.lent import Lent
from portal.skills.events import answer_of, begin
from portal.skills.every import SKILLS
from portal.skills.registry import Call, Options, describe
from portal.waiting import Found, Wait

NAME = "wait_for_events"
LENT = Lent(8, "poll")


class Begun(HttpResponse):
    """Not an answer yet: the poll that gives it."""

    def __init__(self, wait: Wait, options: Options) -> None:
        super().__init__()
        self.wait, self.options = wait, options


class BeginPoll(ApiView):
    """GET and POST of the skill; a POST begins the poll."""

    known: ClassVar[tuple[str, ...]] = parameters_of(SKILLS[NAME])

    def get(self, _request: Any) -> HttpResponse:
        """Return the skill as data."""
        return as_json(describe(SKILLS[NAME]))

    def post(self, _request: Any) -> HttpResponse:
        """Check who asks for what."""
        one = SKILLS[NAME]
        options = self.options_of(one)
        call = Call(self.caller, timezone.now(), options)
        return Begun(begin(one.taken(self.body(), self.caller), call), options)


_BEGIN = BeginPoll.as_view()


@csrf_exempt  # the view behind it asks sessions for their token
async def poll(request: HttpRequest) -> HttpResponseBase:
    """Begin in a thread, wait in the loop, answer."""
    response: HttpResponse = await LENT.borrow(lambda: _BEGIN(request))
    if not isinstance(response, Begun):
        return response
    try:
        found = await response.wait.at_once(LENT.borrow)
        if isinstance(request, ASGIRequest) and not response.wait.is_over(found):
            return _later(response, found)
        found = await response.wait.in_loop(LENT.borrow, found)
    except Exception as error:  # noqa: BLE001  # every failure is answered as a problem
        return respond(translated(error))
    return as_json(_body(response, found))


def _body(begun: Begun, found: Found) -> BaseModel:
    return answer_of(begun.wait, found, options=begun.options).value


def _later(begun: Begun, found: Found) -> StreamingHttpResponse:
    """Send the head now and the body when there is one.

    Every layer has then had its say before the wait: what an event costs a waiting reader is its body alone.
    """

    async def body() -> AsyncGenerator[bytes]:
        try:
            last = await begun.wait.in_loop(LENT.borrow, found)
        except Error:
            last = Found([], begun.wait.after)  # nothing is lost: the next poll begins here, and is told why
        yield _body(begun, last).model_dump_json(by_alias=True).encode()

    response = StreamingHttpResponse(body(), content_type=JSON)
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response
