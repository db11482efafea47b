"""From an API call to the scheduler's acceptance, beside a bare sbatch, and what each process weighs.

    .venv/bin/python -m benchmarks.submit [--calls 40]

Starts its own demo, submits through the API to one emulated cluster, and runs the same cluster's sbatch by
hand, in turn, in one run. Prints p50 and p95, their ratio (aim < 10), and the resident memory of each process.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.chaos import PARTS, Demo

ROOT = Path(__file__).resolve().parent.parent


def bare_sbatch(place: Path) -> float:
    """Return the seconds that one sbatch by hand takes."""
    env = {**os.environ, "FACET_SANDBOX": str(place), "FACET_SANDBOX_USER": "alice"}
    argv = [str(place / "bin" / "sbatch"), "--parsable", "-A", "bbka-delta-cpu", "-p", "cpu"]
    began = time.perf_counter()
    subprocess.run(
        argv, input="#!/bin/sh\ntrue\n", env=env, cwd="/tmp", text=True, check=True, capture_output=True
    )
    return time.perf_counter() - began


def through_facet(demo: Demo, number: int) -> tuple[float, str]:
    """Return the seconds that one submission by the API takes, and the state it reached."""
    body = {
        "name": f"bench {number}",
        "command": "true",
        "envelope": {"cpus": 1, "walltime_s": 60, "policy": {"allow_systems": ["delta"]}},
    }
    began = time.perf_counter()
    answer = demo.call("POST", "/skills/submit_task", body)
    return time.perf_counter() - began, answer["state"]


def p(times: list[float], share: float) -> float:
    """Return a quantile in milliseconds."""
    return sorted(times)[min(len(times) - 1, int(len(times) * share))] * 1000


def resident_mib(pid: int) -> int:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--port", type=int, default=8392)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="facet-submit-") as folder:
        demo = Demo(Path(folder) / "data", given.port)
        demo.place.mkdir()
        try:
            demo.wait_ready()
            time.sleep(10)
            place = demo.place / "sandbox" / "delta"
            hand, facet, states = [], [], []
            for number in range(given.calls):
                hand.append(bare_sbatch(place))
                took, state = through_facet(demo, number)
                facet.append(took)
                states.append(state)
            ratio = statistics.median(facet) / statistics.median(hand)
            print(
                f"accepted by the scheduler in time: {sum(s != 'placing' for s in states)} of {len(states)}"
            )
            print(f"bare sbatch   p50 {p(hand, 0.5):6.0f} ms   p95 {p(hand, 0.95):6.0f} ms")
            print(
                f"API call      p50 {p(facet, 0.5):6.0f} ms   p95 {p(facet, 0.95):6.0f} ms   ratio {ratio:.1f} (aim < 10)"
            )
            for part, words in PARTS.items():
                weights = [resident_mib(pid) for pid in demo.pids(words)]
                print(f"memory {part:16} {json.dumps(weights)} MiB resident")
        finally:
            demo.stop()


if __name__ == "__main__":
    main()
