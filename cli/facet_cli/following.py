"""Following events without polling: the stream, resumed where it broke off, or else the long poll."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from facet_cli.client import Client, pause_s
from facet_cli.errors import CliError, Gone, Problem, TimedOut, Unreachable
from facet_cli.sse import Reader

SILENT_AFTER_S = 40.0
"""The server says something every 12 s; after three silences the connection is dead."""
POLL_S = 45
POLL_FOR_S = 300.0
PATIENCE_S = 3600.0
"""How long a server may be away before we give up."""

Event = dict[str, Any]


class _NoStream(Exception):
    """Streams do not get through here."""


@dataclass
class Follower:
    """Where we are in the log, and what we look for there. `after` moves with every event yielded."""

    client: Client
    after: int
    types: tuple[str, ...] = ()
    subject: str | None = None
    deadline: float | None = None
    """Monotonic; None: for ever."""
    only_poll: bool = False
    patience_s: float = PATIENCE_S
    _failures: int = 0
    _silences: int = 0
    _poll_until: float = 0.0
    _heard_at: float = field(default_factory=time.monotonic)

    def events(self) -> Iterator[Event]:
        """Yield every event after `after`, each once, in commit order, over any number of reconnections.

        Raises:
            TimedOut: the deadline has passed.
            Gone: the events after our cursor are kept no longer.
            Problem: the server refuses.
            Unreachable: it was away for longer than our patience.
        """
        while True:
            self._check_time()
            try:
                polls = self.only_poll or time.monotonic() < self._poll_until
                for event in self._poll() if polls else self._stream():
                    self._hear()
                    if event["cursor"] > self.after:  # what is sent again is known already
                        self.after = event["cursor"]
                        yield event
            except _NoStream:
                self._poll_until = time.monotonic() + POLL_FOR_S
            except Gone:
                raise
            except (Problem, Unreachable) as error:
                if isinstance(error, Problem) and not error.may_be_tried_again and error.status < 500:
                    raise
                self._pause(error)

    def _hear(self) -> None:
        self._failures = self._silences = 0
        self._heard_at = time.monotonic()

    def _left_s(self) -> float:
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()

    def _check_time(self) -> None:
        if self._left_s() <= 0:
            raise TimedOut("The time is over.")

    def _pause(self, error: CliError) -> None:
        if time.monotonic() - self._heard_at > self.patience_s:
            raise error
        asked = error.retry_after_s if isinstance(error, Problem) else None
        wait_s = pause_s(self._failures, longest_s=30.0) if asked is None else asked
        self._failures += 1
        time.sleep(max(0.0, min(wait_s, self._left_s())))

    def _stream(self) -> Iterator[Event]:
        query = {"types": ",".join(self.types) or None, "subject": self.subject}
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(self.after)}
        silent_s = max(0.05, min(SILENT_AFTER_S, self._left_s()))
        try:
            response = self.client.open(
                "GET", "events/stream", query=query, headers=headers, timeout_s=silent_s
            )
        except Problem as error:
            if error.status in {405, 406, 501}:
                raise _NoStream from None
            raise
        with response:
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                raise _NoStream
            yield from self._messages(response)

    def _messages(self, response: Any) -> Iterator[Event]:
        reader, is_silent = Reader(), True
        try:
            for raw in response:
                if is_silent:
                    is_silent = False
                    self._hear()
                self._heard_at = time.monotonic()
                message = reader.feed(raw.decode("utf-8", "replace").rstrip("\r\n"))
                if message is not None:
                    yield _decoded(message.data)
                self._check_time()
        except (OSError, http.client.HTTPException) as error:
            if is_silent:
                self._note_silence()
            raise Unreachable(f"The stream broke off: {error}") from None
        raise Unreachable("The server closed the stream.")

    def _note_silence(self) -> None:
        """After two connections that never said a word something on the way holds streams back."""
        self._silences += 1
        if self._silences >= 2 and self._left_s() > 0:
            raise _NoStream

    def _poll(self) -> Iterator[Event]:
        asked: dict[str, Any] = {"after": self.after, "limit": 200}
        asked["timeout_s"] = max(0, min(POLL_S, int(self._left_s()))) if self._left_s() < POLL_S else POLL_S
        if self.types:
            asked["types"] = list(self.types)
        if self.subject:
            asked["subject"] = self.subject
        answer = self.client.skill("wait_for_events", asked)
        self._hear()
        yield from answer["events"]
        self.after = max(self.after, int(answer["next"]))


def _decoded(text: str) -> Event:
    try:
        event = json.loads(text)
    except ValueError:
        raise Unreachable("The stream holds something that is not JSON.") from None
    if not isinstance(event, dict) or not isinstance(event.get("cursor"), int):
        raise Unreachable("The stream holds something that is not an event.")
    return event
