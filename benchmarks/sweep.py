"""How many requests a sweep costs its sites: one group of 1,000 children, submitted over HTTP.

    .venv/bin/python benchmarks/sweep.py [--children 1000] [--port 8393]

Starts its own demo in a temporary directory, submits one `matrix` by one call of `submit_group`, waits for
the group's end and counts, from the events, how many requests handed the children over: those of one request
say the same instant. Exits 1 where a child did not succeed, or one request took fewer than ten on average.
"""

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.chaos import Demo

_ENDED = {"succeeded", "partially_succeeded", "failed", "cancelled"}


def sweep(children: int) -> dict[str, object]:
    """Return one group of so many children, in one parameter."""
    task = {
        "name": "sweep {n}",
        "command": 'test "$FACET_N" = {n}',
        "envelope": {"gpus": 0, "cpus": 1, "walltime_s": 600},
    }
    return {"objective": "a sweep", "matrix": {"task": task, "parameters": {"n": list(range(children))}}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--children", type=int, default=1000)
    parser.add_argument("--port", type=int, default=8393)
    parser.add_argument("--within-s", type=float, default=3000, help="wait this long for the group's end")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="facet-sweep-") as folder:
        demo = Demo(Path(folder) / "data", given.port)
        demo.place.mkdir()
        try:
            demo.wait_ready()
            began = time.monotonic()
            key = {"Idempotency-Key": "sweep"}
            group = demo.call("POST", "/skills/submit_group", sweep(given.children), **key)["id"]
            answered_s = time.monotonic() - began
            while time.monotonic() - began < given.within_s:
                state = demo.call("GET", f"/groups/{group}")["state"]
                if state in _ENDED:
                    break
                time.sleep(2)
            return tell(demo, state, given.children, answered_s, time.monotonic() - began)
        finally:
            demo.stop()


def tell(demo: Demo, state: str, children: int, answered_s: float, took_s: float) -> int:
    """Print what it took; 1 when it took too much."""
    requests: dict[str, set[str]] = defaultdict(set)
    handed = 0
    for event in demo.everything("/events"):
        if event["type"] == "attempt.dispatched":
            requests[event["system"]].add(event["at"])
            handed += 1
    count = sum(map(len, requests.values()))
    print(f"{children} children in one call of {answered_s:.1f} s; the group {state} after {took_s:.0f} s")
    print(f"{handed} jobs in {count} requests:", {system: len(each) for system, each in requests.items()})
    return 0 if state == "succeeded" and handed >= children and count <= children / 10 else 1


if __name__ == "__main__":
    sys.exit(main())
