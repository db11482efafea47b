"""Sending: one request after the other over one connection, each bounded in time, redirects refused."""

import http.client
import random
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from portal.webhooks.address import Allowed, ForbiddenAddress, Place, resolve

DEADLINE_S = 10.0
"""For one request, from looking the name up to the end of the answer's head."""
_READ_BYTES = 2048
_FAULTS = (
    (socket.gaierror, "its name was not found"),
    (ConnectionRefusedError, "it refused the connection: nothing listens there"),
    (http.client.RemoteDisconnected, "it hung up without an answer"),
    ((ConnectionResetError, BrokenPipeError), "it broke the connection off"),
    (http.client.HTTPException, "what it answered is not HTTP"),
)
"""Kinds of faults and what they are in words, the first that fits."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What came back of one request."""

    ms: int
    status: int | None = None
    error: str = ""
    asked_s: int | None = None
    chance: float = 0.5


class _Pinned(http.client.HTTPConnection):
    """A connection to an address that was judged; the certificate is still the name's."""

    def __init__(self, place: Place, address: str, *, timeout_s: float) -> None:
        super().__init__(place.host, place.port, timeout=timeout_s)
        self._place, self._address = place, address

    def connect(self) -> None:
        """Connect to the judged address, whatever the name means by now."""
        plain = socket.create_connection((self._address, self._place.port), self.timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = plain
        if self._place.is_tls:
            self.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=self._place.host)


class Sender:
    """Sends to one receiver; keeps its connection while that is wanted."""

    def __init__(self, place: Place, allowed: Allowed, *, deadline_s: float = DEADLINE_S) -> None:
        self._place, self._allowed, self._deadline_s = place, allowed, deadline_s
        self._link: _Pinned | None = None

    def close(self) -> None:
        """Hang up."""
        if self._link is not None:
            self._link.close()
        self._link = None

    def send(self, body: bytes, headers: Mapping[str, str]) -> Heard:
        """Send one request and return what came of it; never raises for what a receiver does."""
        began = time.monotonic()
        try:
            status, asked_s = self._once(body, headers)
        except ForbiddenAddress as error:
            return self._failed(began, error.message)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return self._failed(began, _in_words(error, spent_s=time.monotonic() - began))
        fault = _judged(status)
        if fault:
            self.close()
        return Heard(_ms(began), status, fault, asked_s, random.random())  # noqa: S311  # jitter

    def _failed(self, began: float, error: str) -> Heard:
        self.close()
        return Heard(_ms(began), None, error, None, random.random())  # noqa: S311  # jitter

    def _once(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, int | None]:
        is_fresh = self._link is None
        try:
            return self._ask(body, headers)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            if is_fresh:
                raise
            self.close()  # the receiver let the idle connection go: a fresh one, the same id
            return self._ask(body, headers)

    def _ask(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, int | None]:
        if self._link is None:
            self._link = _Pinned(self._place, resolve(self._place, self._allowed), timeout_s=self._deadline_s)
        link = self._link
        with _cut_off(link, self._deadline_s):
            link.request("POST", self._place.path, body, {"host": self._place.authority, **headers})
            answer = link.getresponse()
            answer.read(_READ_BYTES)
            if not answer.isclosed():
                self.close()  # what it goes on to say is of no use
        return answer.status, _seconds(answer.getheader("Retry-After"))


@contextmanager
def _cut_off(link: _Pinned, after_s: float) -> Iterator[None]:
    """Shut a connection down when the time is over: a receiver that drips would outlast every read's own."""
    over = threading.Event()

    def cut() -> None:
        over.set()
        if link.sock is not None:
            try:
                link.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it is closed already

    timer = threading.Timer(after_s, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException, ValueError):
        if over.is_set():
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()


def _judged(status: int) -> str:
    if 200 <= status < 300:
        return ""
    if 300 <= status < 400:
        return f"answered {status}: redirects are not followed"
    return f"answered {status}"


def _in_words(error: Exception, *, spent_s: float) -> str:
    said = next((text for kind, text in _FAULTS if isinstance(error, kind)), "")
    if isinstance(error, TimeoutError):
        said = f"no answer within {spent_s:.0f} s"
    elif isinstance(error, ssl.SSLCertVerificationError):
        said = f"its certificate is not valid: {error.verify_message}"
    elif isinstance(error, ssl.SSLError):
        said = f"TLS failed: {error.reason or error}"
    elif isinstance(error, OSError) and not said:
        said = f"it cannot be reached: {error.strerror or error}"
    return (said or f"{type(error).__name__}: {error}")[:200]


def _seconds(text: str | None) -> int | None:
    """Return a Retry-After given in seconds; dates are passed over."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 9 else None


def _ms(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
