"""Stand-ins for the programs a bridge starts: they write down how they were called."""

import json
import stat
import sys
from pathlib import Path
from typing import Any

from tests.cli.conftest import Facet

_FAKE = """#!{python}
import json, os, sys, time
said = {{"argv": sys.argv, "stdin": sys.stdin.read(), "cwd": os.getcwd(),
        "wake": os.environ.get("FACET_WAKE"), "session": os.environ.get("FACET_SESSION")}}
with open({record!r}, "a") as file:
    file.write(json.dumps(said) + "\\n")
    file.flush()
time.sleep({sleeps_s})
print("could not resume")
sys.exit({code})
"""


class Agent:
    """A fake `claude` or `codex` on the PATH of one machine."""

    def __init__(self, facet: Facet, name: str) -> None:
        self.program = facet.home / "bin" / name
        self.record = facet.home / f"{name}.calls"
        self.behave()

    def behave(self, *, code: int = 0, sleeps_s: float = 0.0) -> None:
        """Be there, and end like this from now on."""
        text = _FAKE.format(python=sys.executable, record=str(self.record), code=code, sleeps_s=sleeps_s)
        self.program.write_text(text)
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    @property
    def calls(self) -> list[dict[str, Any]]:
        """How it was called, in order."""
        if not self.record.exists():
            return []
        return [json.loads(line) for line in self.record.read_text().splitlines()]

    @property
    def told(self) -> list[str]:
        """The event ids of every wake, in order."""
        return [event["id"] for call in self.calls for event in json.loads(call["stdin"])["events"]]


def rules(facet: Facet, *given: dict[str, Any], **more: Any) -> Path:
    """Write the rules of a machine."""
    path = facet.home / "config" / "facet" / "bridge.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"rules": list(given), **more}))
    return path


def rule(
    name: str = "all", *, kind: str = "claude", session: str = "session-1", **more: Any
) -> dict[str, Any]:
    """Return a rule that wakes soon."""
    return {"name": name, "wake": {"kind": kind, "session": session}, "coalesce_s": 0, "retry_s": 0, **more}


def ended(task: str, state: str = "succeeded", **more: Any) -> dict[str, Any]:
    """Return the event of a task's end, to be written."""
    return {"type": f"task.{state}", "subject": task, "task": task, "state": state, **more}


def status(facet: Facet) -> Any:
    """Return what the bridge says of itself."""
    return facet("bridge", "status", "--json").json
