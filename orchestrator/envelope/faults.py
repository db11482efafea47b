"""Faults of an input, gathered so that the caller sees all of them at once."""

import difflib
from collections.abc import Iterable

from providers.errors import InvalidInput

MAX_FAULTS = 100


class Faults:
    """A list of (JSON pointer, code, message); the messages name the field and the fix."""

    def __init__(self) -> None:
        self.problems: list[tuple[str, str, str]] = []

    def add(self, pointer: str, code: str, message: str) -> None:
        """Record one fault; beyond a hundred nobody reads on."""
        if len(self.problems) < MAX_FAULTS:
            self.problems.append((pointer, code, message))

    def raise_if_any(self) -> None:
        """Raise `InvalidInput` with all faults, if there are any."""
        if self.problems:
            count = len(self.problems)
            head = self.problems[0][2]
            message = head if count == 1 else f"{head} (and {count - 1} more)"
            raise InvalidInput(message, problems=tuple(self.problems), remediation="Mend the named fields.")


def step(pointer: str, key: object) -> str:
    """Return the JSON pointer of a member (RFC 6901)."""
    return f"{pointer}/{shown(key).replace('~', '~0').replace('/', '~1')}"


def shown(value: object, limit: int = 60) -> str:
    """Return a value as short, printable text for a message."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**40:
        return "a huge number"
    if isinstance(value, dict | list | tuple | set):
        return f"a {type(value).__name__} of {len(value)}"
    text = value if isinstance(value, str) else repr(value)
    clean = text[:limit].encode("utf-8", "backslashreplace").decode("utf-8")
    return clean + ("..." if len(text) > limit else "")


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint naming the known words nearest to one, or all of them when none is near and few exist."""
    words = sorted(known)
    close = difflib.get_close_matches(word[:80], words, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(repr(name) for name in close)}?"
    return f"known are {', '.join(words)}" if len(words) <= 30 else ""
