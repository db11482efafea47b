"""Where a webhook may go: public addresses only, unless an operator allows more.

A name is resolved once and the connection goes to the very address that was judged, so a name that changes
between judging and connecting gains nothing.
"""

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

from providers.errors import FacetError, InvalidInput

_MAX_URL_CHARS = 1000
_MAX_LABEL_CHARS = 63
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class ForbiddenAddress(FacetError):
    """The receiver's address is private, or of this machine, and nobody allowed it."""

    code = "forbidden_address"
    http_status = 422


@dataclass(frozen=True, slots=True)
class Place:
    """A receiver: what its URL says."""

    is_tls: bool
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """Return the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"


def place_of(url: str) -> Place:
    """Return where a URL leads.

    Raises:
        InvalidInput: it is no http(s) URL, or holds a password.
    """
    fault = _fault_of(url)
    if fault:
        raise InvalidInput(fault, problems=(("/url", "bad_url", fault),))
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Place(is_tls, parts.hostname or "", parts.port or (443 if is_tls else 80), path)


def _fault_of(url: str) -> str:
    if len(url) > _MAX_URL_CHARS or not url.isascii() or any(ord(c) <= 32 or ord(c) == 127 for c in url):
        return f"The URL must be at most {_MAX_URL_CHARS} visible ASCII characters."
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"The URL cannot be read: {error}."
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "The URL must begin with https:// and a host."
    if port == 0:
        return "The URL's port must be from 1 to 65535."
    if parts.username is not None or parts.password is not None:
        return "The URL must not hold a user or password; check the signature instead."
    return "The URL must not hold a fragment." if parts.fragment else _fault_of_host(parts.hostname)


def _fault_of_host(host: str) -> str:
    """Return what no name server would take; it is known before anything is asked."""
    if all(0 < len(label) <= _MAX_LABEL_CHARS for label in host.rstrip(".").split(".")):
        return ""
    return f"Each part of the URL's host must have 1 to {_MAX_LABEL_CHARS} characters."


@dataclass(frozen=True, slots=True)
class Allowed:
    """What an operator allows besides public addresses: hosts, `host:port`, addresses and networks."""

    words: Sequence[str] = ()

    def has(self, place: Place, address: IPv4Address | IPv6Address | None = None) -> bool:
        """Return whether a receiver is allowed by its name, or by its address."""
        names = {place.host.lower(), f"{place.host.lower()}:{place.port}"}
        return any(word.lower() in names or _is_in(address, word) for word in self.words)


def _is_in(address: IPv4Address | IPv6Address | None, word: str) -> bool:
    try:
        network = ipaddress.ip_network(word, strict=False)
    except ValueError:
        return False
    return address is not None and address.version == network.version and address in network


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is one of the public internet, whatever it is wrapped in."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if inner is None and address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None and not is_public(inner):
            return False
        if address.ipv4_mapped:
            return True
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def check(place: Place, allowed: Allowed) -> None:
    """Refuse what can be refused without asking for the name's address.

    Raises:
        ForbiddenAddress: a private address as such, or plain http to a host that nobody allowed.
    """
    literal = _literal(place.host)
    if allowed.has(place, literal):
        return
    if not place.is_tls:
        raise ForbiddenAddress(
            f"{place.host} is not on the list of hosts that may be told without TLS.",
            remediation="Use https://, or have the operator add the host to FACET_WEBHOOK_ALLOW.",
            pointer="/url",
        )
    if place.host.lower().rstrip(".") in ("localhost", "") or place.host.lower().endswith(".localhost"):
        raise _forbidden(place, "this machine")
    if literal is not None and not is_public(literal):
        raise _forbidden(place, str(literal))


def resolve(place: Place, allowed: Allowed) -> str:
    """Return the one address to connect to.

    Raises:
        ForbiddenAddress: any address of the name is neither public nor allowed.
        OSError: the name has no address.
    """
    check(place, allowed)
    found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    addresses = [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
    for address in addresses:
        if not (is_public(address) or allowed.has(place, address)):
            raise _forbidden(place, str(address))
    return str(addresses[0])


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address a host spells; resolvers also read `127.1`, `0x7f.1` and `2130706433` as one."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host.rstrip(".")))
    except OSError:
        return None


def _forbidden(place: Place, what: str) -> ForbiddenAddress:
    return ForbiddenAddress(
        f"{place.host} is {what}, which is not a public address.",
        remediation="Use a public receiver, or have the operator add it to FACET_WEBHOOK_ALLOW.",
        pointer="/url",
    )
