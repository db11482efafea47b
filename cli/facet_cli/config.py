"""Which server, and with which token: `~/.config/facet/config.json`, or FACET_URL and FACET_TOKEN."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from facet_cli.errors import CliError
from facet_cli.exits import Exit
from facet_cli.files import config_dir, write_private

_PROFILE = re.compile(r"^[A-Za-z0-9._-]{1,64}$")
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True)
class Account:
    """One server and the token for it; the token never shows in a repr."""

    profile: str
    url: str
    token: str = field(repr=False)


def path() -> Path:
    """Return the configuration file."""
    return config_dir() / "config.json"


def load() -> dict[str, Any]:
    """Return the whole configuration; an empty one the first time.

    Raises:
        CliError: it is not ours, or not JSON.
    """
    where = path()
    try:
        mode = stat.S_IMODE(where.stat().st_mode)
        if mode & 0o077:
            where.chmod(0o600)
            sys.stderr.write(f"facet: {where} could be read by others (mode {mode:o}); it is 600 now\n")
        found = json.loads(where.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"current": "default", "profiles": {}}
    except (OSError, ValueError) as error:
        raise CliError(f"{where} cannot be read: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("profiles"), dict):
        raise CliError(f"{where} is not a configuration of facet.", hint="Move it away and log in again.")
    return found


def save(config: dict[str, Any]) -> None:
    """Replace the configuration."""
    write_private(path(), json.dumps(config, indent=2) + "\n")


def check_profile(name: str) -> str:
    """Return a profile's name.

    Raises:
        CliError: it is no name.
    """
    if not _PROFILE.match(name):
        raise CliError(f"`{name}` is no name for a profile: letters, digits, dot, dash, underscore.")
    return name


def check_url(url: str) -> str:
    """Return a server's address without its last slash.

    Raises:
        CliError: it is none, or would send the token in the clear.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.username:
        raise CliError(
            f"`{url}` is not the address of a server.", hint="For example https://facet.example.org"
        )
    if (
        parts.scheme == "http"
        and parts.hostname not in _LOOPBACK
        and os.environ.get("FACET_ALLOW_HTTP") != "1"
    ):
        raise CliError(
            f"{url} would send your token unencrypted.",
            hint="Use https, or set FACET_ALLOW_HTTP=1 when the way there is safe.",
        )
    return url.rstrip("/")


def check_token(token: str) -> str:
    """Return a token.

    Raises:
        CliError: it cannot be sent as one.
    """
    if not token or not token.isascii() or any(char.isspace() or not char.isprintable() for char in token):
        raise CliError(
            "This is no token: visible ASCII characters without spaces.", exit_code=Exit.NOT_AUTHORIZED
        )
    return token


def account(at: str | None) -> Account:
    """Return the account to use: of the profile named, of the environment, or the current one.

    Raises:
        CliError: nobody has logged in there.
    """
    url, token = os.environ.get("FACET_URL"), os.environ.get("FACET_TOKEN")
    if at is None and url and token:
        return Account("environment", check_url(url), check_token(token.strip()))
    config = load()
    name = check_profile(at or str(config.get("current") or "default"))
    kept = config["profiles"].get(name) or {}
    if at is None:
        kept = {"url": url or kept.get("url"), "token": token or kept.get("token")}
    if not kept.get("url") or not kept.get("token"):
        known = ", ".join(sorted(config["profiles"])) or "none"
        raise CliError(
            f"Nobody has logged in as `{name}` (profiles: {known}).",
            exit_code=Exit.NOT_AUTHORIZED,
            hint="facet login URL, or set FACET_URL and FACET_TOKEN.",
            code="not_logged_in",
        )
    return Account(name, check_url(str(kept["url"])), check_token(str(kept["token"])))
