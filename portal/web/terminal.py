"""Any action of a page as the same call for a terminal: curl, and the `facet` command. Pure.

The token is never written: the calls read it from `$FACET_TOKEN`.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import portal.skills.every  # noqa: F401  # registers every skill
from portal.skills import registry

AUTH = '-H "Authorization: Bearer $FACET_TOKEN"'
JSON = "-H 'Content-Type: application/json'"
ONCE = '-H "Idempotency-Key: $(uuidgen)"'


@dataclass(frozen=True, slots=True)
class TerminalCall:
    """One action for a terminal: method and path as documented, the two commands ready to paste."""

    method: str
    path: str
    curl: str
    cli: str
    """The same with `facet`; "" = there is no such command."""


def skill_call(name: str, body: Mapping[str, Any], *, base_url: str) -> TerminalCall:
    """Return a call of one skill.

    Raises:
        NotFound: no such skill.
    """
    skill = registry.skill(name)
    path = f"/api/v1/skills/{name}"
    once = ONCE if skill.creates else ""
    curl = _curl("POST", f"{base_url}{path}", body, once)
    command = _COMMANDS.get(name)
    cli = command(body) if command else f"facet skills {name} --input {shlex.quote(_short(body))}"
    return TerminalCall("POST", path, curl, cli)


def read_call(path: str, *, base_url: str) -> TerminalCall:
    """Return a read of the API; `path` begins with a slash."""
    return TerminalCall("GET", path, f"curl {AUTH} {shlex.quote(base_url + path)}", "")


def rest_call(method: str, path: str, body: Mapping[str, Any] | None, *, base_url: str) -> TerminalCall:
    """Return a write of the API that is no skill (tokens, subscriptions, templates)."""
    return TerminalCall(method, path, _curl(method, f"{base_url}{path}", body, ""), "")


def _curl(method: str, url: str, body: Mapping[str, Any] | None, once: str) -> str:
    lines = [f"curl -X {method} {AUTH}"]
    if once:
        lines.append(once)
    if body is not None:
        lines += [JSON, f"-d {shlex.quote(json.dumps(body, indent=2, ensure_ascii=False))}"]
    return " \\\n  ".join([*lines, shlex.quote(url)])


def _short(body: Mapping[str, Any]) -> str:
    return json.dumps(body, ensure_ascii=False)


def _from_file(verb: str, *options: str) -> Callable[[Mapping[str, Any]], str]:
    """Return how a command that reads a JSON file is given one on the spot."""

    def written(body: Mapping[str, Any]) -> str:
        text = json.dumps(body, indent=2, ensure_ascii=False)
        return f"cat > {verb}.json <<'JSON'\n{text}\nJSON\n" + " ".join(
            ["facet", verb, *options, f"{verb}.json"]
        )

    return written


def _log(body: Mapping[str, Any]) -> str:
    stream = " --stderr" if body.get("stream") == "stderr" else ""
    return f"facet log {body['task']}{stream}"


def _draft(body: Mapping[str, Any]) -> str:
    if "text" in body:
        return f"facet draft --text {shlex.quote(body['text'])}"
    script = str(body.get("script", "")).rstrip("\n")
    return f"facet draft - <<'SCRIPT'\n{script}\nSCRIPT"


def _handle(body: Mapping[str, Any]) -> str:
    return str(next(body[kind] for kind in ("task", "group", "transfer") if kind in body))


def _replan(body: Mapping[str, Any]) -> str:
    without = "".join(f" --without {shlex.quote(slug)}" for slug in body.get("exclude_systems") or ())
    return f"facet replan {body['task']}{without}"


def _systems(body: Mapping[str, Any]) -> str:
    words = ["facet", "systems", *(shlex.quote(slug) for slug in body.get("systems") or ())]
    return " ".join([*words, *(["--history"] if body.get("include_history") else [])])


_COMMANDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "submit_task": _from_file("submit", "--task-file"),
    "preview_placement": _from_file("preview", "--task-file"),
    "submit_group": _from_file("group"),
    "draft_envelope": _draft,
    "cancel": lambda body: f"facet cancel {_handle(body)}",
    "get_result": lambda body: f"facet result {_handle(body)}",
    "read_log": _log,
    "replan": _replan,
    "inspect_federation": _systems,
    "move_data": lambda body: (
        "facet move " + " ".join(shlex.quote(str(body[end])) for end in ("source", "destination"))
    ),
}
"""Skills that have a command of their own; every other goes by `facet skills NAME --input`."""
