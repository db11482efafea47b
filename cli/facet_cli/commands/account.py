"""login, logout, whoami, skills, version."""

from __future__ import annotations

import getpass
import json
import platform
import sys
from pathlib import Path
from typing import Any

from facet_cli import config
from facet_cli.client import Client
from facet_cli.commands.context import Context
from facet_cli.errors import CliError
from facet_cli.exits import Exit
from facet_cli.output import one_line
from facet_cli.version import version
from facet_cli.work_input import words


def login(context: Context) -> Exit:
    """Keep a token after the server has taken it."""
    args = context.args
    name = config.check_profile(args.at or "default")
    url = config.check_url(args.url)
    account = config.Account(name, url, config.check_token(_token(args.token_file)))
    mine = _token_shown(Client(account))
    kept = config.load()
    kept["profiles"][name] = {"url": url, "token": account.token}
    kept["current"] = name
    config.save(kept)
    if context.output.as_json:
        context.output.document({"profile": name, "url": url, "token": mine, "kept_in": str(config.path())})
    else:
        context.output.line(f"Logged in at {url} as profile `{name}`; the token is kept in {config.path()}.")
    return Exit.OK


def _token(file: str | None) -> str:
    """Return the token from a file, the terminal, or standard input; never from the command line."""
    if file:
        try:
            return Path(file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise CliError(f"{file} cannot be read: {error.strerror}.") from None
    if sys.stdin.isatty():
        return getpass.getpass("Token (made on the account page): ").strip()
    return sys.stdin.readline().strip()


def logout(context: Context) -> Exit:
    """Forget a profile's token; with --revoke end it at the server too."""
    name = context.args.at or str(config.load().get("current") or "default")
    if context.args.revoke:
        client = Client(config.account(name))
        mine = _token_shown(client)
        if not mine or not mine.get("id"):
            raise CliError("The token cannot be found in your list of tokens.", exit_code=Exit.NOT_FOUND)
        client.ask("DELETE", f"tokens/{mine['id']}")
    kept = config.load()
    if kept["profiles"].pop(config.check_profile(name), None) is None:
        raise CliError(f"There is no profile `{name}`.", exit_code=Exit.NOT_FOUND)
    kept["current"] = min(kept["profiles"], default="default")
    config.save(kept)
    if context.output.as_json:
        context.output.document({"profile": name, "revoked": bool(context.args.revoke)})
    else:
        context.output.line(f"Forgot profile `{name}`.")
    return Exit.OK


def _token_shown(client: Client) -> dict[str, Any]:
    """Return our own token as the server lists it, by how its secret begins; empty where it lists none."""
    cursor = None
    while True:
        page = client.get("tokens", limit=200, cursor=cursor)
        for token in page["results"]:
            if token["state"] == "active" and client.account.token.startswith(token["prefix"]):
                return dict(token)
        cursor = page["next"]
        if cursor is None:
            return {}


def whoami(context: Context) -> Exit:
    """Say which server and token are used, and what the token may do."""
    account = context.client.account
    mine = _token_shown(context.client)
    told = {"profile": account.profile, "url": account.url, "token": mine or None}
    if context.output.as_json:
        context.output.document(told)
        return Exit.OK
    context.output.line(f"{account.url} (profile {account.profile})")
    if mine:
        until = f"until {mine['expires_at']}" if mine["expires_at"] else "never expires"
        scopes = ", ".join(mine["scopes"])
        only = f" · only {', '.join(mine['systems'])}" if mine.get("systems") else ""
        name = one_line(mine["name"])
        context.output.line(f"token `{name}` · scopes {scopes}{only} · {until}")
    return Exit.OK


def skills(context: Context) -> Exit:
    """List what the server offers, show one skill, or call it with --input."""
    args, output, client = context.args, context.output, context.client
    if args.name is None:
        offered = client.skills()
        if output.as_json:
            output.document(offered)
        else:
            output.table(
                ("SKILL", "SCOPES", "CHANGES", "WHAT IT DOES"),
                [
                    (s["name"], " or ".join(s["scopes"]), "yes" if s["side_effects"] else "no", s["summary"])
                    for s in offered
                ],
            )
        return Exit.OK
    client.require(args.name)
    one = next(each for each in client.skills() if each["name"] == args.name)
    if args.input is None:
        output.document(one)
        return Exit.OK
    try:
        given = json.loads(sys.stdin.read() if args.input == "-" else args.input)
    except ValueError as error:
        raise CliError(f"--input is not JSON: {error}") from None
    call = client.once if one["side_effects"] else client.asked
    output.document(call(args.name, given))
    return Exit.OK


def show_version(context: Context) -> Exit:
    """Say which version this is and where it keeps things."""
    told = {"facet_cli": version(), "python": platform.python_version(), "config": str(config.path())}
    if context.output.as_json:
        context.output.document(told)
    else:
        context.output.line(f"facet {told['facet_cli']} (Python {told['python']})")
    return Exit.OK


def systems(context: Context) -> Exit:
    """Show the federation: what is free where, how long the queues are, how old the figures."""
    output = context.output
    asked: dict[str, Any] = {"include_history": context.args.history}
    named = words(context.args.systems)
    if named:
        asked["systems"] = named
    view = context.client.asked("inspect_federation", asked, full=1 if context.args.full else None)
    if output.as_json:
        output.document(view)
        return Exit.OK
    rows = []
    for each in view["systems"]:
        figures, queue = each["figures"], each["queue"]
        gpus = ", ".join(f"{kind} {n['free']}/{n['total']}" for kind, n in figures["gpus_by_type"].items())
        cpus = f"{figures['cpus_free']}/{figures['cpus_total']}"
        age = "?" if each["age_s"] is None else f"{each['age_s']}s"
        mine = "yes" if each["is_connected"] else "no"
        rows.append(
            (each["id"], each["state"], gpus or "none", cpus, queue["running"], queue["pending"], age, mine)
        )
    output.table(("SYSTEM", "STATE", "GPUS FREE", "CPUS FREE", "RUNNING", "PENDING", "AGE", "YOURS"), rows)
    return Exit.OK
