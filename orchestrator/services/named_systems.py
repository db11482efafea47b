"""Whether a policy names systems that this installation knows: a slip there must not pass for a rule."""

from collections.abc import Collection, Mapping
from typing import Any

from federation.models import System
from providers.errors import InvalidInput
from providers.reading import nearest


def known_systems(envelope: Mapping[str, Any] | None, *, pointer: str = "/envelope") -> None:
    """Refuse a policy that names a system this installation does not know.

    Raises:
        InvalidInput: naming the nearest known system.
    """
    policy = (envelope or {}).get("policy")
    if not isinstance(policy, dict):
        return
    known = set(System.objects.values_list("slug", flat=True))
    problems = []
    for field in ("allow_systems", "exclude_systems", "prefer"):
        words = policy.get(field)
        for number, word in enumerate(words if isinstance(words, list) else ()):
            if isinstance(word, str) and word not in known:
                where = f"{pointer}/policy/{field}/{number}"
                problems.append((where, "unknown_system", f"No system `{word}`." + nearest(word, known)))
    problems += _unknown_within(policy, known, pointer=f"{pointer}/policy")
    if problems:
        raise InvalidInput("The policy names unknown systems.", problems=tuple(problems))


def _unknown_within(
    policy: Mapping[str, Any], known: Collection[str], *, pointer: str
) -> list[tuple[str, str, str]]:
    """Return the unknown systems that a cap or a barred partition names: such a rule would bind nothing."""
    charges, partitions = policy.get("max_charge"), policy.get("exclude_partitions")
    named = [(f"max_charge/{slug}", slug) for slug in (charges if isinstance(charges, dict) else ())]
    for number, word in enumerate(partitions if isinstance(partitions, list) else ()):
        if isinstance(word, str) and "/" in word:
            named.append((f"exclude_partitions/{number}", word.partition("/")[0]))
    return [
        (f"{pointer}/{where}", "unknown_system", f"No system `{slug[:80]}`." + nearest(slug, known))
        for where, slug in named
        if slug not in known
    ]
