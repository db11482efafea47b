"""Whether an installed version satisfies a comma-joined specifier such as `>=1.2,<2`.

Versions are compared part by part: numbers as numbers, before words (`1.10` > `1.9`); a missing part is 0.
"""

import re

_CLAUSE = re.compile(r"\s*(>=|<=|==|!=|~=|>|<|=)?\s*v?([0-9A-Za-z][0-9A-Za-z._+\-]*?)(\.\*)?\s*$")
_PART = re.compile(r"\d+|[A-Za-z]+")

_Key = tuple[tuple[int, int, str], ...]


class UnreadableVersion(ValueError):
    """A version specifier that is not a list of comparisons."""


def satisfies(version: str, specifier: str) -> bool:
    """Return whether a version meets every clause.

    Raises:
        UnreadableVersion: a clause is not a comparison with a version.
    """
    return all(_meets(version, clause) for clause in specifier.split(",") if clause.strip())


def _meets(version: str, clause: str) -> bool:
    found = _CLAUSE.match(clause)
    if found is None:
        raise UnreadableVersion(clause)
    operator, wanted, wildcard = found.group(1) or "==", found.group(2), found.group(3)
    have, want = _key(version), _key(wanted)
    if wildcard:
        same = have[: len(want)] == want
        return same if operator in {"==", "=", "~="} else not same
    order = _compare(have, want)
    if operator == "~=":
        return order >= 0 and have[: max(len(want) - 1, 1)] == want[: max(len(want) - 1, 1)]
    verdicts = {
        ">=": order >= 0,
        "<=": order <= 0,
        ">": order > 0,
        "<": order < 0,
        "==": order == 0,
        "=": order == 0,
        "!=": order != 0,
    }
    return verdicts[operator]


def _key(version: str) -> _Key:
    parts = _PART.findall(version.removeprefix("v"))
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part.lower()) for part in parts)


def _compare(have: _Key, want: _Key) -> int:
    length = max(len(have), len(want))
    zero = ((1, 0, ""),)
    left, right = have + zero * (length - len(have)), want + zero * (length - len(want))
    return (left > right) - (left < right)
