"""What the bridge remembers: one file, replaced at once, so that cursor and queues always belong together."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from facet_cli.bridge.choosing import ONCE, is_told_with_its_group, takes
from facet_cli.bridge.payload import compact
from facet_cli.bridge.rules import Rule
from facet_cli.errors import CliError
from facet_cli.files import read_json, safe_name, state_dir, write_json

_REMEMBERED = 5000
_HOUR_S = 3600.0


@dataclass(frozen=True)
class Place:
    """Where the bridge of one profile keeps its things."""

    root: Path

    @classmethod
    def of(cls, profile: str) -> Place:
        """Return the place for a profile."""
        return cls(state_dir() / "bridge" / safe_name(profile))

    @property
    def state(self) -> Path:
        """The state."""
        return self.root / "state.json"

    @property
    def lock(self) -> Path:
        """Held by the one bridge that runs."""
        return self.root / "bridge.lock"

    @property
    def jobs(self) -> Path:
        """Wakes under way."""
        return self.root / "jobs"

    @property
    def dead(self) -> Path:
        """Wakes that could not be delivered."""
        return self.root / "dead"

    @property
    def inbox(self) -> Path:
        """Dead letters that somebody wants tried again."""
        return self.root / "inbox"


@dataclass
class Flight:
    """A wake under way: its events, and which try this is."""

    wake: str
    events: list[dict[str, Any]]
    members: dict[str, Any]
    number: int = 0
    """Counts every start, over replays too: it names the job's files."""
    tries: int = 0
    not_before: float = 0.0
    starts: int = 0


@dataclass
class RuleState:
    """What one rule has waiting, under way, and behind it. Times are seconds since 1970."""

    queue: list[dict[str, Any]] = field(default_factory=list)
    """`{event, at}`, oldest first."""
    flight: Flight | None = None
    replays: list[dict[str, Any]] = field(default_factory=list)
    wakes: list[float] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    once: list[str] = field(default_factory=list)
    members: dict[str, dict[str, int]] = field(default_factory=dict)
    subjects: list[str] = field(default_factory=list)
    """Tasks and groups named by the rule whose past has been looked at."""
    not_before: float = 0.0
    delivered: int = 0
    told_elsewhere: int = 0

    def accept(self, rule: Rule, event: dict[str, Any], *, now: float) -> bool:
        """Queue an event unless it is none of the rule's, or known; return whether anything changed."""
        if not takes(rule, event) or event["id"] in self.seen:
            return False
        _remember(self.seen, event["id"])
        if event["type"] in ONCE:
            what = f"{event['subject']} {event['type']}"
            if what in self.once:
                return True
            _remember(self.once, what)
        if is_told_with_its_group(rule, event):
            counts = self.members.setdefault(event["group"], {})
            word = str(event.get("state"))
            counts[word] = counts.get(word, 0) + 1
        else:
            self.queue.append({"event": compact(event), "at": now})
        return True

    def wakes_within_the_hour(self, now: float) -> int:
        """Return how many wakes were started in the last hour; older ones are forgotten."""
        self.wakes = [at for at in self.wakes if at > now - _HOUR_S]
        return len(self.wakes)


def _remember(known: list[str], word: str) -> None:
    known.append(word)
    del known[:-_REMEMBERED]


@dataclass
class State:
    """Everything: how far the log was read, and each rule's own."""

    cursor: int | None = None
    gaps: int = 0
    """How often the log had moved on before it was read."""
    rules: dict[str, RuleState] = field(default_factory=dict)

    def save(self, place: Place) -> None:
        """Write it down, on the disk before this returns."""
        write_json(place.state, asdict(self))


def load(place: Place) -> State:
    """Return what was remembered; a fresh start the first time.

    Raises:
        CliError: the file is not ours.
    """
    found = read_json(place.state)
    if found is None:
        return State()
    try:
        rules = {name: _rule_state(each) for name, each in found["rules"].items()}
        return State(cursor=found["cursor"], gaps=found["gaps"], rules=rules)
    except (KeyError, TypeError, AttributeError) as error:
        raise CliError(
            f"{place.state} is not the state of a bridge: {error!r}", hint="Move it away."
        ) from None


def _rule_state(found: dict[str, Any]) -> RuleState:
    flight = found.pop("flight")
    return RuleState(**found, flight=Flight(**flight) if flight else None)
