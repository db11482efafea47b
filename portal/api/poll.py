"""POST skills/wait_for_events: begun like every skill, then waited for in the event loop."""

from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from portal.api.problems import respond, translated
from portal.api.views import ApiView, as_json, parameters_of
from portal.lent import Lent
from portal.skills.events import answer_of, begin
from portal.skills.every import SKILLS
from portal.skills.registry import Call, Options, describe
from portal.waiting import Wait

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
async def poll(request: HttpRequest) -> HttpResponse:
    """Begin in a thread, wait in the loop, answer."""
    response: HttpResponse = await LENT.borrow(lambda: _BEGIN(request))
    if not isinstance(response, Begun):
        return response
    try:
        found = await response.wait.in_loop(LENT.borrow)
    except Exception as error:  # noqa: BLE001  # every failure is answered as a problem
        return respond(translated(error))
    return as_json(answer_of(response.wait, found, options=response.options).value)
