"""The views: read the request, ask one skill, verb or selector, answer JSON."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from pydantic import BaseModel
from rest_framework.views import APIView

from orchestrator import selectors
from orchestrator.forecasts import show_calibration, show_run_calibration
from orchestrator.outcome_selectors import run_calibration
from orchestrator.outcomes import MEASURES
from orchestrator.services import tasks
from portal import idempotency, tokens
from portal.api import rates
from portal.api.paging import bad_parameter, refuse_unknown, words
from portal.api.parsing import read_body
from portal.api.problems import EditedMeanwhile
from portal.api.resources import RESOURCES
from portal.skills.every import SKILLS
from portal.skills.registry import (
    Answer,
    Call,
    Caller,
    Options,
    Scope,
    Skill,
    check_reach,
    describe,
    described,
    require,
    skill,
)
from providers.errors import InvalidInput, NotFound
from providers.reading import nearest, read

JSON = "application/json"
LONGEST_WAIT_S = 50.0


def as_json(value: object, *, status: int = 200) -> HttpResponse:
    """Return a value as a JSON response."""
    if isinstance(value, BaseModel):
        content = value.model_dump_json(by_alias=True)
    else:
        content = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    response = HttpResponse(content, status=status, content_type=JSON)
    response["Cache-Control"] = "no-store"
    return response


def etag_of(content: bytes) -> str:
    """Return the strong entity tag of a body."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


class ApiView(APIView):  # type: ignore[misc]  # no types
    """What every view shares: who calls, how often, and that nothing is passed over."""

    known: ClassVar[tuple[str, ...]] = ()
    """Query parameters that mean something."""

    def initial(self, request: Any, *args: Any, **kwargs: Any) -> None:
        """Authenticate, count the request, refuse unknown query parameters."""
        super().initial(request, *args, **kwargs)
        rates.take(request.user.pk)
        refuse_unknown(request.GET, self.parameters(**kwargs))

    def parameters(self, **_kwargs: str) -> tuple[str, ...]:
        """Return the query parameters of this route."""
        return self.known

    @property
    def caller(self) -> Caller:
        """Return who calls."""
        caller = self.request.auth
        assert isinstance(caller, Caller)  # noqa: S101  # both authentications give one
        return caller

    def body(self) -> dict[str, Any]:
        """Return the JSON object of the body."""
        return read_body(self.request._request)  # noqa: SLF001  # DRF's own reader ignores chunked bodies

    def once(
        self,
        route: str,
        body: Mapping[str, Any],
        work: Callable[[Options], HttpResponse],
        *,
        resume: Callable[[str, Call], Answer] | None = None,
        options: Options | None = None,
        is_secret: bool = False,
    ) -> HttpResponse:
        """Do what creates something, once for each Idempotency-Key."""
        options = options or Options()
        key = self.request.META.get("HTTP_IDEMPOTENCY_KEY")
        if key is None:
            return work(options)
        user = self.caller.user
        begun = idempotency.begin(user, key, route=route, body=body, now=timezone.now())
        if isinstance(begun, idempotency.Kept):
            return _replayed(begun)
        try:
            if begun.created and resume is not None:
                response = _answered(resume(begun.created, Call(self.caller, timezone.now(), options)))
            else:
                noting = Options(full=options.full, wait_s=options.wait_s, created=begun.note)
                response = work(noting)
        except BaseException:
            idempotency.abandon(begun)
            raise
        headers = {"Location": response["Location"]} if "Location" in response else {}
        kept = idempotency.Kept(response.status_code, json.loads(response.content), headers)
        idempotency.finish(begun, kept, is_secret=is_secret)
        return response

    def options_of(self, one: Skill) -> Options:
        """Return the options in the query.

        Raises:
            InvalidInput: one of them is out of bounds.
        """
        query = self.request.GET
        return Options(
            full=_flag(query.get("full"), "full"),
            wait_s=_wait_s(query.get("wait_s")) if one.waits else Options().wait_s,
        )

    def run(self, one: Skill, given: dict[str, Any], *, route: str | None = None) -> HttpResponse:
        """Call a skill and answer."""
        require(self.caller, *one.scopes)
        options = self.options_of(one)

        def work(options: Options) -> HttpResponse:
            return _answered(one.call(given, self.caller, now=timezone.now(), options=options))

        if not one.creates:
            return work(options)
        return self.once(route or f"skills/{one.name}", given, work, options=options, resume=one.resume)


def parameters_of(one: Skill) -> tuple[str, ...]:
    """Return the query parameters of a skill."""
    return ("full", "wait_s") if one.waits else ("full",)


def _flag(text: str | None, name: str) -> bool:
    words = {None: False, "1": True, "true": True, "0": False, "false": False}
    if text not in words:
        raise bad_parameter(name, "not_a_flag", f"`{name}` must be 1 or 0.")
    return words[text]


def _wait_s(text: str | None) -> float:
    if text is None:
        return Options().wait_s
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= LONGEST_WAIT_S:
        raise bad_parameter("wait_s", "out_of_range", "`wait_s` must be seconds from 0 to 50.")
    return value


def _answered(answer: Answer) -> HttpResponse:
    response = as_json(answer.value, status=answer.status)
    if answer.location:
        response["Location"] = answer.location
    return response


def _replayed(kept: idempotency.Kept) -> HttpResponse:
    response = as_json(kept.body, status=kept.status)
    for name, value in kept.headers.items():
        response[name] = value
    response["Idempotency-Replayed"] = "true"
    return response


class SkillList(ApiView):
    """GET skills."""

    def get(self, _request: Any) -> HttpResponse:
        """Return the registry."""
        return as_json({"results": described(), "next": None})


class OneSkill(ApiView):
    """GET and POST skills/{name}."""

    def parameters(self, **kwargs: str) -> tuple[str, ...]:
        """Return the skill's own."""
        one = SKILLS.get(kwargs["name"])
        return parameters_of(one) if one else ()

    def get(self, _request: Any, name: str) -> HttpResponse:
        """Return one skill as data."""
        return as_json(describe(skill(name)))

    def post(self, _request: Any, name: str) -> HttpResponse:
        """Invoke it."""
        return self.run(skill(name), self.body())


class ResourceList(ApiView):
    """GET a kind of objects, page by page."""

    resource: ClassVar[str] = ""

    def parameters(self, **_kwargs: str) -> tuple[str, ...]:
        """Return filters and paging; with POST those of the skill behind it."""
        if self.request.method == "POST" and self.resource in CREATED_BY:
            return parameters_of(SKILLS[CREATED_BY[self.resource]])
        return RESOURCES[self.resource].parameters()

    def get(self, request: Any) -> HttpResponse:
        """Return one page."""
        require(self.caller, Scope.READ)
        found, following = RESOURCES[self.resource].page(self.caller, request.GET, now=timezone.now())
        listed = ",".join(each.model_dump_json(by_alias=True) for each in found)
        response = as_json(None)
        response.content = f'{{"results":[{listed}],"next":{json.dumps(following)}}}'
        return response


CREATED_BY = {
    "tasks": "submit_task",
    "groups": "submit_group",
    "envelopes": "draft_envelope",
    "transfers": "move_data",
    "budgets": "set_budget",
}
"""Which skill a POST to a list of objects is."""


class CreatingList(ResourceList):
    """A list whose POST is a skill."""

    def post(self, _request: Any) -> HttpResponse:
        """Create one."""
        name = CREATED_BY[self.resource]
        return self.run(SKILLS[name], self.body(), route=f"skills/{name}")


class OneObject(ApiView):
    """GET one object, with its entity tag."""

    resource: ClassVar[str] = ""

    def get(self, request: Any, handle: str) -> HttpResponse:
        """Return it; 304 when the caller has it already."""
        require(self.caller, Scope.READ)
        response = as_json(RESOURCES[self.resource].one(self.caller, handle, now=timezone.now()))
        tag = etag_of(response.content)
        if tag in _tags(request.META.get("HTTP_IF_NONE_MATCH", "")):
            response = HttpResponse(status=304)
        response["ETag"] = tag
        response["Cache-Control"] = "private, no-cache"
        return response


def _tags(header: str) -> set[str]:
    return {tag.strip().removeprefix("W/") for tag in header.split(",")}


class TokenList(ResourceList):
    """GET and POST tokens."""

    resource = "tokens"

    def parameters(self, **_kwargs: str) -> tuple[str, ...]:
        """Return none for POST."""
        return () if self.request.method == "POST" else super().parameters()

    def post(self, _request: Any) -> HttpResponse:
        """Make a token; its secret is in this answer and nowhere else."""
        require(self.caller, Scope.MANAGE)
        given = self.body()

        def work(_options: Options) -> HttpResponse:
            wanted = read(tokens.TokenInput, given, what="token")
            made = tokens.create_token(self.caller, wanted, now=timezone.now())
            return _answered(Answer(made, status=201, location=f"/api/v1/tokens/{made.id}"))

        return self.once("tokens", given, work, is_secret=True)


class OneToken(OneObject):
    """GET, DELETE a token."""

    resource = "tokens"

    def delete(self, request: Any, handle: str) -> HttpResponse:
        """Revoke it; it stays in the list as revoked."""
        require(self.caller, Scope.MANAGE)
        return self._revoke(request, handle)

    def _revoke(self, request: HttpRequest, handle: str) -> HttpResponse:
        now = timezone.now()
        wanted = request.META.get("HTTP_IF_MATCH")
        if wanted is not None:
            held = as_json(RESOURCES["tokens"].one(self.caller, handle, now=now))
            if "*" not in _tags(wanted) and etag_of(held.content) not in _tags(wanted):
                raise EditedMeanwhile("The token is no longer what If-Match says.")
        return as_json(tokens.show_token(tokens.revoke_token(self.caller.user, handle, now=now), now=now))


class RevokeToken(OneToken):
    """POST tokens/{id}/revoke."""

    http_method_names: ClassVar[list[str]] = ["post"]

    def post(self, request: Any, handle: str) -> HttpResponse:
        """Revoke it."""
        require(self.caller, Scope.MANAGE)
        return self._revoke(request, handle)


class Calibration(ApiView):
    """GET calibration."""

    known: ClassVar[tuple[str, ...]] = ("measure", "system", "partition")

    def get(self, request: Any) -> HttpResponse:
        """Return how good the caller's own forecasts were; few rows, never paged."""
        require(self.caller, Scope.READ)
        wanted = {name: words(request.GET, name) for name in self.known}
        for word in wanted["measure"]:
            if word not in MEASURES:
                raise bad_parameter(
                    "measure", "unknown_measure", f"No measure `{word[:60]}`." + nearest(word[:60], MEASURES)
                )
        user = self.caller.user
        found = [
            *(show_calibration(each) for each in selectors.calibration(user)),
            *(show_run_calibration(each) for each in run_calibration(user)),
        ]
        shown = [
            each.model_dump(mode="json", by_alias=True)
            for each in found
            if self.caller.reaches(each.system)
            and all(getattr(each, name) in (asked or [getattr(each, name)]) for name, asked in wanted.items())
        ]
        return as_json({"results": shown, "next": None})


class TaskTimeline(ApiView):
    """GET tasks/{id}/timeline."""

    def get(self, _request: Any, handle: str) -> HttpResponse:
        """Return waiting and running of every attempt, and beside them what was expected."""
        require(self.caller, Scope.READ)
        task = owned_task(self.caller, handle)
        return as_json(selectors.timeline(task, now=timezone.now()))


def owned_task(caller: Caller, handle: str) -> Any:
    """Return a task of the caller.

    Raises:
        NotFound: there is none of that handle.
    """
    try:
        check_reach(caller, handle, name="task")
        return tasks.find_task(caller.user, handle)
    except NotFound:
        raise RESOURCES["tasks"].missing(handle) from None


@dataclass(frozen=True, slots=True)
class ObjectVerb:
    """What can be done with an object by its path: a skill, what names the object there, what it says."""

    skill: str
    names: str
    says: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    """Members of the skill's input that the path rules out."""


OBJECT_VERBS: Mapping[tuple[str, str], ObjectVerb] = {
    ("tasks", "cancel"): ObjectVerb("cancel", "task", hidden=("group", "transfer")),
    ("tasks", "replan"): ObjectVerb("replan", "task"),
    ("budgets", "close"): ObjectVerb("close_budget", "budget"),
    ("approvals", "approve"): ObjectVerb("decide_approval", "approval", {"decision": "approve"}),
    ("approvals", "reject"): ObjectVerb("decide_approval", "approval", {"decision": "reject"}),
}


class VerbOnObject(ApiView):
    """POST tasks/{id}/cancel and the like: the skills behind these paths."""

    resource: ClassVar[str] = ""
    verb: ClassVar[str] = ""

    def parameters(self, **_kwargs: str) -> tuple[str, ...]:
        """Return the skill's own."""
        return parameters_of(SKILLS[self._verb.skill])

    @property
    def _verb(self) -> ObjectVerb:
        return OBJECT_VERBS[self.resource, self.verb]

    def post(self, _request: Any, handle: str) -> HttpResponse:
        """Do it."""
        verb, given = self._verb, self.body()
        says = {**verb.says, verb.names: handle}
        for word, value in says.items():
            if given.get(word, value) != value:
                message = f"`{word}` contradicts the path."
                raise InvalidInput(message, problems=((f"/{word}", "contradiction", message),))
        route = f"{self.resource}/{handle}/{self.verb}"
        return self.run(SKILLS[verb.skill], {**given, **says}, route=route)
