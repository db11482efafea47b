"""Shortening a decision: what goes first is what helps least."""

from typing import Any

from portal.skills.bounds import ASK_FOR_ALL, LIMIT_BYTES, shortened, size


def _rejection(code: str, observed: int) -> dict[str, Any]:
    remedy = f"it has {observed} {code} on nodes that are up; lower {code}.min to {observed} or less."
    return {"rule": "capacity", "code": code, "required": 100_000, "observed": observed, "remedy": remedy}


def _decision(count: int) -> dict[str, Any]:
    """Return a decision where every second candidate has one reason against it, every other three."""
    several = [_rejection("gpus", 80), _rejection("cpus", 640), _rejection("nodes", 20)]
    one = {
        "system": "delta",
        "partition": "gpuA100x4",
        "qos": None,
        "feasible": False,
        "sizing": None,
        "shape": None,
        "estimates": None,
        "rank": None,
        "tie_break": None,
    }
    candidates = [
        {**one, "account": f"acct-{n}", "rejections": several[: 1 if n % 2 else 3]} for n in range(count)
    ]
    return {"warnings": [], "candidates": candidates}


def _reasons(body: dict[str, Any], *names: str) -> list[list[tuple[Any, ...]]]:
    return [
        [tuple(each.get(name) for name in names) for each in candidate["rejections"]]
        for candidate in body["candidates"]
    ]


def test_remedies_go_before_what_was_required_and_observed() -> None:
    whole = _decision(48)

    short = shortened(whole, LIMIT_BYTES)

    assert size(short) <= LIMIT_BYTES < size(whole)
    said = ("rule", "code", "required", "observed")
    assert _reasons(short, *said) == _reasons(whole, *said)
    assert short["warnings"] == [ASK_FOR_ALL]


def test_the_nearest_candidates_keep_their_remedies_longest() -> None:
    whole = _decision(48)

    told = [
        [bool(remedy) for (remedy,) in reasons]
        for reasons in _reasons(shortened(whole, LIMIT_BYTES), "remedy")
    ]

    assert [place for place, reasons in enumerate(told) if all(reasons)] == list(range(1, 20, 2))
    assert not any(any(reasons) for place, reasons in enumerate(told) if place % 2 == 0)


def test_in_little_room_the_nearest_still_say_what_they_have() -> None:
    whole = _decision(48)

    short = shortened(whole, 9_000)

    assert size(short) <= 9_000
    kept = [place for place, [first, *_] in enumerate(_reasons(short, "observed")) if first != (None,)]
    assert kept == list(range(1, 20, 2))
    assert _reasons(short, "code") == _reasons(whole, "code")
