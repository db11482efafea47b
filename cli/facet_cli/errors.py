"""What can go wrong on this side: each failure carries its exit code.

CliError
├── Problem          the server answered with a problem document
│   └── Gone         the events after a cursor are kept no longer
├── Unreachable      no answer, or none that makes sense
└── TimedOut         our own time is over
"""

from __future__ import annotations

from typing import Any

from facet_cli.exits import Exit

_OF_STATUS = {401: Exit.NOT_AUTHORIZED, 403: Exit.NOT_AUTHORIZED, 404: Exit.NOT_FOUND, 429: Exit.UNREACHABLE}
_BUSY = (502, 503, 504)


class CliError(Exception):
    """A failure to be told in a sentence; `hint` says what to do about it."""

    def __init__(
        self, message: str, *, exit_code: Exit = Exit.USAGE, hint: str = "", code: str = "usage"
    ) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.hint = hint
        self.code = code

    def document(self) -> dict[str, Any]:
        """Return the failure as a problem document."""
        return {
            "title": self.message,
            "status": None,
            "detail": self.message,
            "code": self.code,
            "errors": [],
            "remediation": self.hint,
            "next_actions": [],
        }


class Problem(CliError):
    """The server refused; its whole document is kept."""

    def __init__(self, status: int, body: dict[str, Any], headers: dict[str, str]) -> None:
        code = _OF_STATUS.get(status, Exit.REJECTED if status < 500 else Exit.SERVER_FAILED)
        if status in _BUSY:
            code = Exit.UNREACHABLE
        super().__init__(
            str(body.get("detail") or body.get("title") or f"The server answered {status}."),
            exit_code=code,
            hint=str(body.get("remediation") or ""),
            code=str(body.get("code") or f"http_{status}"),
        )
        self.status = status
        self.body = body
        self.headers = headers

    def document(self) -> dict[str, Any]:
        """Return the server's own document."""
        return self.body

    @property
    def may_be_tried_again(self) -> bool:
        """Whether the same request may help a moment later."""
        return self.status in {429, *_BUSY} or self.code == "idempotency_in_flight"

    @property
    def retry_after_s(self) -> float | None:
        """How long the server asks to wait; None when it does not say."""
        text = self.headers.get("retry-after", "")
        return float(text) if text.isdigit() else None


class Gone(Problem):
    """The events after a cursor are kept no longer; `oldest` is where reading can go on."""

    @property
    def oldest(self) -> int:
        """The first cursor that can still be read from."""
        facts = self.body.get("facts") or {}
        return int(facts.get("oldest") or 0)


class Unreachable(CliError):
    """No answer in time, or one that is not Facet's."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, exit_code=Exit.UNREACHABLE, hint=hint, code="unreachable")


class TimedOut(CliError):
    """The time given is over; nothing was stopped."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message,
            exit_code=Exit.TIMED_OUT,
            hint="The work goes on; wait again when you like.",
            code="timed_out",
        )
