"""Which events a rule takes, and which are told with their group instead. Pure."""

from __future__ import annotations

from typing import Any

from facet_cli.bridge.rules import Rule

ENDS = {"task.succeeded", "task.failed", "task.cancelled"}
GROUP_ENDS = ("group.succeeded", "group.partially_succeeded", "group.failed", "group.cancelled")
ONCE = {*ENDS, *GROUP_ENDS, "transfer.succeeded", "transfer.failed", "transfer.cancelled"}
"""What happens to a subject at most once: a second event of the kind is never told."""


def takes(rule: Rule, event: dict[str, Any]) -> bool:
    """Return whether an event is one that a rule is about."""
    return _is_of_type(rule, str(event["type"]), str(event.get("wake"))) and _is_about(rule, event)


def _is_of_type(rule: Rule, word: str, wake: str) -> bool:
    if not rule.types:
        return wake in {"milestone", "exception"}
    return any(word == each or (each.endswith(".*") and word.startswith(each[:-1])) for each in rule.types)


def _is_about(rule: Rule, event: dict[str, Any]) -> bool:
    if rule.systems and event.get("system") not in rule.systems:
        return False
    if not (rule.tasks or rule.groups):
        return True
    return event.get("task") in rule.tasks or event.get("group") in rule.groups


def is_told_with_its_group(rule: Rule, event: dict[str, Any]) -> bool:
    """Return whether this is the end of a group's member, and the rule hears of the group's own end."""
    return (
        event["type"] in ENDS
        and bool(event.get("group"))
        and event.get("task") not in rule.tasks
        and all(_is_of_type(rule, word, "milestone") for word in GROUP_ENDS)
    )
