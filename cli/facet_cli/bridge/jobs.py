"""A wake as a job: the command or request it is, written down before it is started."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from facet_cli.bridge.payload import payload, prompt
from facet_cli.bridge.rules import Rule

_HOLES = re.compile(r"\{(prompt|payload|wake)\}")


def wake_id(rule: str, events: Sequence[dict[str, Any]]) -> str:
    """Return the name of a wake: the same events of the same rule always give the same."""
    said = "\n".join([rule, *(str(event["id"]) for event in events)])
    return "wake_" + hashlib.sha256(said.encode()).hexdigest()[:24]


def job(rule: Rule, wake: str, events: Sequence[dict[str, Any]], children: dict[str, Any]) -> dict[str, Any]:
    """Return everything that carrying a wake out needs."""
    document = payload(wake, rule.name, events, children)
    return {
        "wake": wake,
        "rule": rule.name,
        "session": rule.wake.session,
        "cwd": rule.wake.cwd,
        "timeout_s": rule.timeout_s,
        "payload": document,
        "argv": argv(rule, wake, document, prompt(wake, document, events)),
        "url": rule.wake.url,
        "secret_file": rule.wake.secret_file,
    }


def argv(rule: Rule, wake: str, document: str, text: str) -> list[str]:
    """Return the command of a wake; empty for a webhook. No shell ever reads it."""
    how = rule.wake
    if how.kind == "claude":
        return [how.program or "claude", "-p", "--resume", str(how.session), *how.args, text]
    if how.kind == "codex":
        return [how.program or "codex", "exec", "resume", str(how.session), *how.args, text]
    holes = {"prompt": text, "payload": document, "wake": wake}
    return [_HOLES.sub(lambda hole: holes[hole.group(1)], word) for word in how.argv]
