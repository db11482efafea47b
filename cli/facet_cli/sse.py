"""Reading server-sent events: lines in, messages out. Pure.

Source: WHATWG HTML, section 9.2.6, "Interpreting an event stream".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """One message of a stream."""

    id: str
    event: str
    data: str


class Reader:
    """Collects lines into messages; keeps the last id and the pause the server asks for."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry_ms: int | None = None
        self._event = ""
        self._data: list[str] = []

    def feed(self, line: str) -> Message | None:
        """Take one line without its end; return the message that it completes, if any."""
        if not line:
            return self._complete()
        if line.startswith(":"):
            return None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self.last_id = value
        elif name == "retry" and value.isdigit():
            self.retry_ms = int(value)
        return None

    def _complete(self) -> Message | None:
        event, data = self._event, self._data
        self._event, self._data = "", []
        if not data:
            return None
        return Message(self.last_id, event or "message", "\n".join(data))
