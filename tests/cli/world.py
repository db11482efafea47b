"""`python -m tests.cli.world DIR`: a database of its own with people and one emulated cluster at work.

It prints one JSON line when ready, keeps the control cycle going, and does what each line on its standard
input asks, answering with one line.
"""

# ruff: noqa: E402  # Django must be set up before its models are imported
import json
import os
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

import django

django.setup()

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction

from federation.collector import refresh
from federation.ledger import Happening, record
from federation.models import Connection, System
from federation.profile import ProfileDocument
from federation.services import connect, store_profile
from orchestrator import control, moving
from orchestrator.dispatch import dispatch
from orchestrator.models import Attempt, Task
from orchestrator.services import groups, tasks
from portal.skills.registry import Scope
from portal.tokens import issue_token
from providers.sandbox.slurm.setup import DELTA, create, env
from tests.state.conftest import PROFILES
from tests.stepping import silence_the_bells

SITE = Path(sys.argv[1] if __name__ == "__main__" else ".")
ALL = ("read", "draft", "submit", "manage")
STEP_S = 0.3
FRESH_FOR_S = 60.0
"""Placement refuses figures that are too old."""
working = threading.Lock()
"""Held while a step is made, or while nothing is to happen."""


def now() -> datetime:
    return datetime.now(UTC)


def token(user: User, *scopes: str, days: int = 1) -> str:
    wanted = [Scope(word) for word in scopes or ALL]
    return issue_token(user, name="test", scopes=wanted, now=now(), expires_at=now() + timedelta(days=days))[
        1
    ]


def step() -> None:
    """Do once what the workers do."""
    for pk in Attempt.objects.filter(state="planned").values_list("pk", flat=True):
        dispatch(pk, now=now())
    Attempt.objects.filter(due_at__isnull=False).update(due_at=now())
    for pk in System.objects.values_list("pk", flat=True):
        control.control_system(pk, now=now())
    for task in control.tasks_with_work(now=now()):
        tasks.advance_task(task, now=now())
    for user in moving.users_with_work(now=now()):
        moving.watch_transfers(user, now=now())
    for group in groups.groups_with_work(now=now()):
        while groups.advance_group(group, now=now()):
            pass


def work() -> None:
    looked_at = time.monotonic()
    while True:
        with working:
            step()
        if time.monotonic() - looked_at > FRESH_FOR_S:
            looked_at = time.monotonic()
            for pk in System.objects.values_list("pk", flat=True):
                refresh(pk, now=now())
        connection.close()
        time.sleep(STEP_S)


def happen(asked: dict[str, Any]) -> dict[str, Any]:
    """Write events; each in a transaction of its own, or all in one."""
    user = User.objects.get(username=asked["user"])
    made = []
    if asked.get("at_once"):
        happenings = [Happening(**{"summary": "", **each, "user_id": user.pk}) for each in asked["events"]]
        with transaction.atomic():
            return {"events": [row.handle for row in record(happenings, now=now())]}
    for each in asked["events"]:
        with transaction.atomic():
            happening = Happening(**{"summary": "", **each, "user_id": user.pk})
            made.append(record([happening], now=now())[0].handle)
    return {"events": made}


def make_tasks(asked: dict[str, Any]) -> dict[str, Any]:
    """Make tasks by submitting them while nothing is worked on."""
    user = User.objects.get(username=asked["user"])
    made = []
    for number in range(asked["count"]):
        given = {"name": f"made {number}", "command": ["true"], "envelope": {"cpus": 1, "walltime_s": 60}}
        made.append(tasks.submit_task(user, given, actor="test", now=now()).task.handle)
    return {"tasks": made}


def set_state(asked: dict[str, Any]) -> dict[str, Any]:
    """Move a task as the control cycle would, its event with it."""
    task = Task.objects.get(handle=asked["task"])
    with transaction.atomic():
        Task.objects.filter(pk=task.pk).update(state=asked["state"])
        happening = Happening(
            asked.get("type", f"task.{asked['state']}"),
            asked.get("subject", task.handle),
            asked.get("summary", ""),
            user_id=task.user_id,
            task=task.handle,
            state=asked["state"],
        )
        record([happening], now=now())
    return {}


def pause(asked: dict[str, Any]) -> dict[str, Any]:
    if asked["on"]:
        working.acquire()
    else:
        working.release()
    return {}


def person(asked: dict[str, Any]) -> dict[str, Any]:
    """Make somebody who may use the cluster, and tokens for them."""
    user = User.objects.create_user(asked["name"], password="a-long-password")
    system = System.objects.get()
    settings = {"env": env(SITE / "delta", user="alice"), "home": str(SITE / "home")}
    connect(user, system, kind="local", settings=settings, remote_user="alice", now=now())
    refresh(system.pk, now=now(), force_full=True)
    # One connection is probed for all; what it found its remote user may do holds for all of ours.
    facts = Connection.objects.order_by("pk").values_list("facts", flat=True)[0]
    Connection.objects.filter(user=user).update(facts={**facts, "home": str(SITE / "home")})
    return {"full": token(user), "reader": token(user, "read"), "expired": token(user, days=-1)}


def make_site(root: Path) -> None:
    """Make a quiet emulated cluster."""
    create(root / "delta", DELTA.quiet(), seed=7)
    store_profile(ProfileDocument.model_validate(PROFILES["delta"]), str(PROFILES["delta"]), now=now())


def say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main(root: Path) -> None:
    call_command("migrate", verbosity=0)
    silence_the_bells()
    make_site(root)
    bob = User.objects.create_user("bob", password="a-long-password")
    threading.Thread(target=work, daemon=True).start()
    say({"bob": token(bob)})
    does = {"happen": happen, "tasks": make_tasks, "state": set_state, "pause": pause, "person": person}
    for line in sys.stdin:
        asked = json.loads(line)
        say(does[asked.pop("do")](asked))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
