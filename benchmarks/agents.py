"""What agents cost: wakes by the bridge, webhooks, sizes of what they read, and calls that ask for a state.

    .venv/bin/python -m benchmarks.agents [--wakes 30] [--webhooks 2000]

A real server with an emulated cluster, the real `facet` command and bridge, and a stand-in for a coding agent
that is resumed twice: it submits, ends its turn, is woken, reads the result, submits again. Prints the wake
latency (commit to the agent's start), webhooks per second, bytes and tokens of each answer (tokens estimated
from words and digits as byte-pair encoders split them), and how often the model asked for a state.
"""

import argparse
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

os.environ |= {"FACET_RATE_PER_MINUTE": "0", "FACET_LOG_LEVEL": "warning"}

from benchmarks import _services  # noqa: F401  # starts the servers before Django reads its settings

# isort: split
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import transaction
from django.utils import timezone

from federation.ledger import Happening, record
from orchestrator.models import Delivery
from portal.skills.registry import Caller, Scope
from portal.subscriptions import SubscriptionInput, create
from portal.webhooks.deliver import deliver
from tests.cli import installed
from tests.cli.agents import ended, rule, rules
from tests.cli.conftest import Facet, Server, World

ROOT = Path(settings.ROOT)
PIECE = re.compile(r"[A-Za-z]+|[0-9]{1,3}|[^\sA-Za-z0-9]+|\s+")

AGENT = """#!{python}
import json, os, subprocess, sys, time
started = time.time()
state = {state!r}
calls = json.load(open(state)) if os.path.exists(state) else []
def facet(*words):
    calls.append(words[0])
    argv = [{python!r}, "-m", "facet_cli", words[0], "--json", *words[1:]]
    done = subprocess.run(argv, capture_output=True, text=True)
    return json.loads(done.stdout)
told = json.loads(sys.stdin.read())
with open({record!r}, "a") as file:
    file.write(json.dumps({{"at": started, "events": told["events"], "prompt": sys.argv[-1]}}) + "\\n")
if {works}:
    for event in told["events"]:
        facet("result", event["task"])
    if calls.count("submit") < 2:
        made = facet("submit", "--cpus", "1", "--walltime", "10m", "--name", "second", "--", "sleep", "2")
        facet("bridge", "watch", made["id"], "--claude", "session-1")
    json.dump(calls, open(state, "w"))
"""


def tokens(text: str) -> int:
    """Estimate how many tokens a text is; for JSON a tenth more than cl100k_base makes of it."""
    return sum(-(-len(piece) // 6) if piece[0].isalpha() else 1 for piece in PIECE.findall(text))


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def agent(facet: Facet, *, works: bool) -> tuple[Path, Path]:
    """Put a `claude` on the path; return where it notes its wakes and its calls."""
    record_, state = facet.home / "wakes.jsonl", facet.home / "calls.json"
    text = AGENT.format(python=installed.python(), record=str(record_), state=str(state), works=works)
    program = facet.home / "bin" / "claude"
    program.write_text(text)
    program.chmod(0o755)
    return record_, state


def wakes_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def until(holds: Any, within_s: float = 180, told: Any = lambda: "") -> None:
    end = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"it took too long {told()}")
        time.sleep(0.05)


def wake_latency(facet: Facet, world: World, count: int) -> None:
    """Print how long after its commit an event has started the agent."""
    record_, _ = agent(facet, works=False)
    rules(facet, rule(max_wakes_per_hour=10_000), max_wakes_per_hour=10_000)
    facet("bridge", "once")
    bridge = facet.start("bridge", "run")
    time.sleep(5)
    late = []
    for number in range(count):
        world.happen(ended(f"task_{number}"))
        at = time.time()
        until(lambda number=number: len(wakes_of(record_)) > number)
        late.append(wakes_of(record_)[-1]["at"] - at)
    bridge.terminate()
    bridge.communicate()
    print(f"wake by the bridge, {count}: p50 {quantile(late, 0.5):.2f} s   p99 {quantile(late, 0.99):.2f} s")
    record_.unlink()


def workflow(facet: Facet) -> None:
    """Print which calls a model made over two tasks one after the other, without ever asking for a state."""
    record_, state = agent(facet, works=True)
    rules(facet)
    facet("bridge", "once")
    bridge = facet.start("bridge", "run")
    first = facet(
        "submit", "--cpus", "1", "--walltime", "10m", "--name", "first", "--json", "--", "sleep", "2"
    )
    state.write_text(json.dumps(["submit"]))
    facet("bridge", "watch", first.json["id"], "--claude", "session-1")
    began = time.monotonic()
    until(
        lambda: json.loads(state.read_text()).count("result") >= 2,
        told=lambda: facet("bridge", "status", "--json").out + state.read_text(),
    )
    took_s = time.monotonic() - began
    bridge.terminate()
    bridge.communicate()
    calls = [word for word in json.loads(state.read_text()) if word != "bridge"]
    asked = sum(word in {"status", "wait", "events"} for word in calls)
    print(f"two tasks, {took_s:.0f} s, woken {len(wakes_of(record_))} times: calls {calls}")
    print(f"model-side calls for a state: {asked}   (published: 0; 8 and 17 by polling every five minutes)")
    wake = wakes_of(record_)[0]
    size("prompt of a wake", wake["prompt"])


def size(name: str, text: str) -> None:
    print(f"{name:32} {len(text.encode()):6} bytes   {tokens(text):5} tokens")


def sizes(facet: Facet) -> None:
    """Print how long the answers are that a model reads."""
    envelope = json.dumps({"gpus": 1, "memory_mib": "4G"})
    made = facet("submit", "--cpus", "1", "--walltime", "10m", "--json", "--", "true")
    task = made.json["id"]
    facet("wait", task)
    for name, words in {
        "inspect_federation": ("skills", "inspect_federation", "--input", "{}", "--json"),
        "preview_placement": ("skills", "preview_placement", "--input", envelope, "--json"),
        "get_result": ("result", task, "--json"),
        "wait_for_events (one task)": ("events", "--subject", task, "--json"),
    }.items():
        size(name, compact(facet(*words).out))
    size("submit_task", compact(made.out))


def compact(text: str) -> str:
    """Return JSON as it is sent, without what makes it readable."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))
    except ValueError:
        return text


class _Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def webhooks(count: int, receivers: int = 4) -> None:
    """Print how many signed webhooks a second one worker delivers."""
    user = User.objects.create_user("hooks")
    caller = Caller(user, "user:hooks", frozenset(Scope))
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), _Sink) for _ in range(receivers)]
    settings.WEBHOOK_ALLOW = tuple(f"127.0.0.1:{each.server_port}" for each in servers)
    for each in servers:
        threading.Thread(target=each.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{each.server_port}/"
        given = SubscriptionInput.model_validate({"target": "webhook", "url": url, "types": ["task.*"]})
        create(caller, given, now=timezone.now())
    for batch in range(count // receivers // 100):
        happenings = [
            Happening(type="task.succeeded", subject=f"task_{batch}x{n}", summary="done", user_id=user.pk)
            for n in range(100)
        ]
        with transaction.atomic():
            record(happenings, now=timezone.now())
    began = time.monotonic()
    deliver(turn_s=300)
    took_s = time.monotonic() - began
    done = Delivery.objects.filter(state="delivered").count()
    size("body of a webhook", Delivery.objects.order_by("pk")[0].body)
    print(f"webhooks, {receivers} receivers: {done} in {took_s:.1f} s = {done / took_s:.0f} a second")
    for each in servers:
        each.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--wakes", type=int, default=30)
    parser.add_argument("--webhooks", type=int, default=2000)
    given = parser.parse_args()
    call_command("migrate", verbosity=0)
    webhooks(given.webhooks)
    with tempfile.TemporaryDirectory(prefix="facet-agents-") as folder:
        root = Path(folder)
        server = Server({**os.environ, "FACET_TESTING": "1"}, root / "server.log")
        argv = [sys.executable, "-m", "tests.cli.world", str(root)]
        with (root / "world.log").open("wb") as log:
            process = subprocess.Popen(
                argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise SystemExit((root / "world.log").read_text()[-2000:])
            server.start()
            world = World(server, {}, process)
            for work in (lambda f: wake_latency(f, world, given.wakes), workflow, sizes):
                world.person = f"person-{secrets.token_hex(4)}"
                token = world.ask("person", name=world.person)["full"]
                home = root / world.person
                (home / "bin").mkdir(parents=True)
                facet = Facet(home, server.url, token)
                work(facet)
        finally:
            server.stop()
            process.kill()


if __name__ == "__main__":
    main()
