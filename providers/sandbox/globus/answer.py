"""A request as the stand-in's services read it, and what they answer."""

import base64
import binascii
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        """The fields of a form, the last value of each."""
        return {name: values[-1] for name, values in self.form_lists.items()}

    @property
    def form_lists(self) -> dict[str, list[str]]:
        """The fields of a form with all their values."""
        if "form" not in self.headers.get("Content-Type", ""):
            return {}
        return parse_qs(self.body.decode("utf-8", "replace"), keep_blank_values=True)

    @property
    def bearer(self) -> str:
        """The bearer token; "" = none."""
        said = self.headers.get("Authorization", "")
        return said.removeprefix("Bearer ").strip() if said.startswith("Bearer ") else ""

    @property
    def basic(self) -> tuple[str, str] | None:
        """User and password of basic authentication."""
        said = self.headers.get("Authorization", "")
        if not said.startswith("Basic "):
            return None
        try:
            name, _, secret = base64.b64decode(said[6:]).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        return name, secret

    def json(self) -> dict[str, Any]:
        """Return the body as an object; {} when it is none."""
        try:
            found = json.loads(self.body or b"{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer."""

    status: int
    content: bytes = b""
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


def ok(content: object) -> Answer:
    """Answer 200 with JSON."""
    return Answer(200, json.dumps(content).encode())


def redirect(url: str) -> Answer:
    """Send the browser elsewhere."""
    return Answer(302, headers={"Location": url})


def auth_refusal(status: int, code: str, said: str) -> Answer:
    """Refuse as Globus Auth does."""
    error = {
        "id": str(uuid.uuid4()),
        "status": str(status),
        "code": code.upper(),
        "title": said,
        "detail": said,
    }
    content = {"error": code, "errors": [error], "error_description": said}
    return Answer(status, json.dumps(content).encode())


def compute_refusal(status: int, code: str, said: str, **more: object) -> Answer:
    """Refuse as Globus Compute does."""
    content = {
        "status": "Failed",
        "code": code,
        "message": said,
        "reason": said,
        "http_status_code": status,
        **more,
    }
    return Answer(status, json.dumps(content).encode())
