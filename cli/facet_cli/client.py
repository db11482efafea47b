"""Talking to the server: one request at a time, tried again only where that cannot do anything twice."""

from __future__ import annotations

import http.client
import json
import random
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from dataclasses import dataclass
from typing import IO, Any

from facet_cli.config import Account
from facet_cli.errors import CliError, Gone, Problem, Unreachable
from facet_cli.exits import Exit
from facet_cli.version import version

TRIES = 5
FIRST_PAUSE_S = 0.4
LONGEST_PAUSE_S = 8.0
LONGEST_ASKED_S = 60.0
_MAX_BYTES = 64 * 1024 * 1024


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to wherever it points."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        """Follow none."""


@dataclass(frozen=True)
class Answer:
    """What the server said."""

    status: int
    body: Any
    headers: dict[str, str]


def pause_s(turn: int, *, longest_s: float = LONGEST_PAUSE_S) -> float:
    """Return a jittered pause before the next try, doubling from one to the next."""
    return random.uniform(0.5, 1.0) * min(longest_s, FIRST_PAUSE_S * 2.0**turn)


class Client:
    """One account's way to the server."""

    def __init__(self, account: Account, *, timeout_s: float = 75.0) -> None:
        self.account = account
        self.timeout_s = timeout_s
        self._opener = urllib.request.build_opener(NoRedirect())
        self._skills: list[dict[str, Any]] | None = None

    def get(self, path: str, **query: Any) -> Any:
        """Return the body of a GET under /api/v1."""
        return self.ask("GET", path, query=query).body

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: dict[str, Any] | None = None,
        key: str | None = None,
        tries: int = TRIES,
    ) -> Answer:
        """Send a request and return its answer.

        Raises:
            Problem: the server refused.
            Unreachable: no answer after every try.
        """
        is_safe = method == "GET" or key is not None
        turn = 0
        while True:
            try:
                return self._ask_once(method, path, body=body, query=query, key=key)
            except (Problem, Unreachable) as error:
                asked = error.retry_after_s if isinstance(error, Problem) else None
                again = not isinstance(error, Problem) or error.may_be_tried_again
                if not (is_safe and again) or turn + 1 >= tries or (asked or 0) > LONGEST_ASKED_S:
                    raise
                time.sleep(pause_s(turn) if asked is None else asked + random.uniform(0, 0.5))
                turn += 1

    def _ask_once(
        self, method: str, path: str, *, body: object, query: dict[str, Any] | None, key: str | None
    ) -> Answer:
        headers = {"Accept": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        content = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = json.dumps(body).encode()
        with self.open(method, path, content=content, query=query, headers=headers) as response:
            raw = _read(response)
            told = {name.lower(): value for name, value in response.headers.items()}
            kind = told.get("content-type", "")
            return Answer(response.status, _decoded(raw, kind) if "json" in kind else raw, told)

    def open(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        query: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Send a request and return the open response.

        Raises:
            Problem: the server refused.
            Unreachable: no connection, or no answer.
        """
        url = self.account.url + "/api/v1/" + path.lstrip("/")
        said = {name: value for name, value in (query or {}).items() if value is not None}
        if said:
            url += "?" + urllib.parse.urlencode(said, doseq=True)
        try:
            return self._sent(method, url, content, headers or {}, timeout_s)
        except urllib.error.HTTPError as error:
            with error:
                raise _problem(error, self.account.url) from None

    def call(self, path: str, content: bytes, *, headers: dict[str, str], timeout_s: float) -> Any:
        """POST to a path of the server and return the open response, whatever its status.

        Raises:
            Unreachable: no connection, or no answer.
        """
        try:
            return self._sent("POST", self.account.url + path, content, headers, timeout_s)
        except urllib.error.HTTPError as error:
            return error

    def _sent(
        self, method: str, url: str, content: bytes | None, headers: dict[str, str], timeout_s: float | None
    ) -> Any:
        request = urllib.request.Request(url, data=content, method=method)
        agent = {"User-Agent": f"facet-cli/{version()}", "Authorization": f"Bearer {self.account.token}"}
        for name, value in {**agent, **headers}.items():
            request.add_unredirected_header(name, value)
        try:
            return self._opener.open(request, timeout=timeout_s or self.timeout_s)
        except urllib.error.HTTPError:
            raise
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise Unreachable(f"{self.account.url} cannot be reached: {reason}") from None

    def skills(self) -> list[dict[str, Any]]:
        """Return what the server offers, asked once."""
        if self._skills is None:
            self._skills = list(self.get("skills")["results"])
        return self._skills

    def offers(self, name: str) -> bool:
        """Return whether the server has a skill."""
        return any(each["name"] == name for each in self.skills())

    def require(self, name: str) -> None:
        """Do nothing when the server has a skill.

        Raises:
            CliError: it has not.
        """
        if not self.offers(name):
            raise CliError(
                f"This server has no skill {name}.",
                exit_code=Exit.NO_SKILL,
                hint="facet skills lists what it has.",
                code="no_skill",
            )

    def skill(self, name: str, arguments: dict[str, Any], *, key: str | None = None, **query: Any) -> Any:
        """Call a skill and return what it answers. With a key it is done once, however often it is sent.

        Raises:
            CliError: the server lacks the skill, refuses, or cannot be reached.
        """
        try:
            return self.ask("POST", f"skills/{name}", body=arguments, query=query, key=key).body
        except Problem as error:
            if error.status == 404:
                self.require(name)
            raise

    def once(self, name: str, arguments: dict[str, Any], *, key: str | None = None, **query: Any) -> Any:
        """Call a skill that creates something, under a fresh key where none is given."""
        return self.skill(name, arguments, key=key or fresh_key(), **query)

    def asked(self, name: str, arguments: dict[str, Any], **query: Any) -> Any:
        """Call a skill that changes nothing: it may be tried again without a key the server would keep."""
        turn = 0
        while True:
            try:
                return self.skill(name, arguments, **query)
            except (Problem, Unreachable) as error:
                again = not isinstance(error, Problem) or error.may_be_tried_again
                if not again or turn + 1 >= TRIES:
                    raise
                wanted = error.retry_after_s if isinstance(error, Problem) else None
                time.sleep(pause_s(turn) if wanted is None else min(wanted, LONGEST_ASKED_S))
                turn += 1

    def head(self) -> int:
        """Return the cursor of the newest event."""
        return int(self.asked("wait_for_events", {"timeout_s": 0})["next"])


def fresh_key() -> str:
    """Return a key that nobody has used."""
    return f"facet-cli-{uuid.uuid4()}"


def _read(response: IO[bytes]) -> bytes:
    try:
        raw = response.read(_MAX_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"The answer broke off: {error}") from None
    if len(raw) > _MAX_BYTES:
        raise Unreachable("The answer is longer than 64 MiB.")
    return raw


def _decoded(raw: bytes, kind: str) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        raise Unreachable(
            f"The answer is not JSON though it says {kind}.", hint="Is this a Facet server?"
        ) from None


def _problem(error: urllib.error.HTTPError, url: str) -> CliError:
    told = {name.lower(): value for name, value in error.headers.items()}
    if 300 <= error.code < 400:
        where = told.get("location", "elsewhere")
        return CliError(
            f"{url} sends us to {where}.",
            exit_code=Exit.USAGE,
            hint="Log in with that address.",
            code="redirected",
        )
    try:
        body = json.loads(_read(error))
    except (ValueError, Unreachable):
        body = None
    if not isinstance(body, dict) or "code" not in body:
        body = {
            "title": f"HTTP {error.code}",
            "status": error.code,
            "detail": f"{url} answered {error.code} without a reason that can be read.",
            "code": f"http_{error.code}",
            "errors": [],
            "remediation": "Is this the address of a Facet server?",
            "next_actions": [],
        }
    return (Gone if error.code == 410 else Problem)(error.code, body, told)
