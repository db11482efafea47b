"""The bridge: reads events once, starts wakes by the rules, and knows after a crash what became of them."""

from __future__ import annotations

import queue
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from facet_cli import files, told
from facet_cli.bridge import rules as rulebook
from facet_cli.bridge import runner
from facet_cli.bridge.jobs import job, wake_id
from facet_cli.bridge.payload import fitting
from facet_cli.bridge.rules import Rule, Rules
from facet_cli.bridge.state import Flight, Place, RuleState, State, load
from facet_cli.client import Client
from facet_cli.errors import CliError, Gone, Problem
from facet_cli.following import Event, Follower

_SAVE_EVERY_S = 1.0
_LOOK_S = 0.2
"""Pause between looks while a wake is under way or waits for its moment."""
_IDLE_S = 2.0
_LONGEST_RETRY_S = 900.0
_LIVE_AGAIN_S = 2.0
_MOST_STARTS = 5
_BATCH = 500


class Bridge:
    """One profile's bridge. `now` is seconds since 1970 wherever it is an argument."""

    def __init__(self, client: Client, place: Place, rules_file: Path) -> None:
        self.client = client
        self.place = place
        self.rules_file = rules_file
        self.rules = Rules()
        self.state: State = load(place)
        self.stopping = threading.Event()
        self._runners: dict[str, subprocess.Popen[bytes]] = {}
        self._rules_at: float | None = None
        self._dirty = False
        self._saved_at = 0.0
        self._arrived: queue.Queue[Event | CliError] = queue.Queue(maxsize=2 * _BATCH)

    # Reading.

    def begin(self) -> None:
        """Find our place in the log and read the rules."""
        if self.state.cursor is None:
            self.state.cursor = self.client.head()
            self.save()
        self.reread_rules()

    def reread_rules(self) -> None:
        """Take changed rules up; the past of tasks and groups that are newly named is looked at.

        Raises:
            CliError: the file is wrong.
        """
        changed_at = self.rules_file.stat().st_mtime if self.rules_file.exists() else 0.0
        if changed_at == self._rules_at:
            return
        rules = rulebook.load(self.rules_file)
        named = sorted({word for rule in rules.rules for word in rule.types})
        if named:
            self.client.asked("wait_for_events", {"types": named, "timeout_s": 0})  # refuses unknown ones
        self.rules, self._rules_at = rules, changed_at
        for rule in rules.rules:
            kept = self.state.rules.setdefault(rule.name, RuleState())
            for subject in (*rule.tasks, *rule.groups):
                if subject not in kept.subjects:
                    self._look_back(rule, kept, subject)
                    kept.subjects.append(subject)
        self.save()

    def _look_back(self, rule: Rule, kept: RuleState, subject: str) -> None:
        """Hand a rule what happened to a subject before the rule was there."""
        after, cursor = 0, self.state.cursor or 0
        while True:
            asked = {"subject": subject, "after": after, "timeout_s": 0, "limit": 200}
            try:
                page = self.client.asked("wait_for_events", asked)
            except Gone as error:
                after = error.oldest
                continue
            except Problem as error:
                if error.status != 404:
                    raise
                # One rule's mistake must not keep the others' agents asleep.
                sys.stderr.write(f"facet: rule `{rule.name}` names {subject}, which is none of yours\n")
                return
            for event in page["events"]:
                if event["cursor"] <= cursor:
                    kept.accept(rule, event, now=time.time())
            after = int(page["next"])
            if page["timed_out"] or after >= cursor:
                return

    def take(self, event: Event) -> None:
        """Give an event to every rule, unless it is behind us."""
        if event["cursor"] <= (self.state.cursor or 0):
            return
        now = time.time()
        for rule in self.rules.rules:
            self.state.rules[rule.name].accept(rule, event, now=now)
        self.state.cursor = event["cursor"]
        self._dirty = True

    def note_gap(self, error: Gone) -> None:
        """Go on where the log begins now."""
        self.state.cursor = max(self.state.cursor or 0, error.oldest)
        self.state.gaps += 1
        self.save()

    def save(self) -> None:
        """Write the state down."""
        self.state.save(self.place)
        self._dirty, self._saved_at = False, time.monotonic()

    # Waking.

    def tick(self, *, at_once: bool = False) -> None:
        """Do what is due: replays, outcomes of wakes, new wakes. `at_once`: do not wait for more events."""
        self._take_inbox()
        for rule in self.rules.rules:
            kept = self.state.rules[rule.name]
            self._look_after(rule, kept)
            now = time.time()
            if kept.flight is None and self._is_free(rule, kept, now=now):
                self._prepare(rule, kept, now=now, at_once=at_once)
            flight = kept.flight
            is_due = flight is not None and flight.starts == 0 and now >= flight.not_before
            if is_due and self._is_free(rule, kept, now=now):
                self._start(rule, kept)
        if self._dirty and time.monotonic() - self._saved_at > _SAVE_EVERY_S:
            self.save()

    def _take_inbox(self) -> None:
        for path in sorted(self.place.inbox.glob("*.json")) if self.place.inbox.is_dir() else ():
            letter = files.read_json(path)
            kept = self.state.rules.get(letter["rule"])
            if kept is None:
                path.replace(self.place.dead / path.name)
                continue
            known = {each["wake"] for each in kept.replays} | ({kept.flight.wake} if kept.flight else set())
            if letter["wake"] not in known:
                kept.replays.append(letter)
                self.save()
            path.unlink()

    def _prepare(self, rule: Rule, kept: RuleState, *, now: float, at_once: bool) -> None:
        """Make the next wake of a rule, where there is something to tell and nobody has told it."""
        if kept.replays:
            letter = kept.replays.pop(0)
            kept.flight = Flight(letter["wake"], letter["events"], letter["members"], number=letter["number"])
            self.save()
            return
        events = self._untold(rule, kept)
        if not events or now < kept.not_before:
            return
        if not at_once and now < kept.queue[0]["at"] + rule.coalesce_s:
            return
        events = events[: fitting(events)]
        ids = {event["id"] for event in events}
        members = {str(event.get("group")): kept.members.get(str(event.get("group"))) for event in events}
        kept.queue = [each for each in kept.queue if each["event"]["id"] not in ids]
        kept.flight = Flight(wake_id(rule.name, events), events, {g: m for g, m in members.items() if m})
        self.save()

    def _untold(self, rule: Rule, kept: RuleState) -> list[Event]:
        """Return what the rule's agent does not know yet and nobody is waiting for just now."""
        if not kept.queue:
            return []
        session = rule.wake.session
        waiting = [each for each in kept.queue if not told.was_told(session, each["event"])]
        if len(waiting) < len(kept.queue):
            kept.told_elsewhere += len(kept.queue) - len(waiting)
            kept.queue, self._dirty = waiting, True
        return [
            each["event"]
            for each in waiting
            if not files.is_held(files.lock_path("subject", each["event"]["subject"]))
        ]

    def _is_free(self, rule: Rule, kept: RuleState, *, now: float) -> bool:
        """Return whether a wake may be started: nobody lives in the session, and the hour has room."""
        session = rule.wake.session
        if session and files.is_held(files.lock_path("session", session)):
            return False
        over_all = sum(each.wakes_within_the_hour(now) for each in self.state.rules.values())
        is_full = over_all >= self.rules.max_wakes_per_hour
        return not is_full and kept.wakes_within_the_hour(now) < rule.max_wakes_per_hour

    def _give_back(self, kept: RuleState, *, now: float) -> None:
        """Put a wake that was not started back into the queue: its session may hear of it by itself."""
        flight = kept.flight
        if flight is None or flight.number:
            return  # a later try: its events stay together
        kept.queue = [{"event": event, "at": 0.0} for event in flight.events] + kept.queue
        kept.flight, kept.not_before = None, now + _LIVE_AGAIN_S

    def _path(self, flight: Flight) -> Path:
        return self.place.jobs / f"{flight.wake}-{flight.number}.json"

    def _start(self, rule: Rule, kept: RuleState) -> None:
        """Write the intent down, then start the runner."""
        flight = kept.flight
        if flight is None:
            return
        flight.starts += 1
        if flight.starts == 1:
            kept.wakes.append(time.time())
        self.save()
        path = self._path(flight)
        if not path.exists():
            files.write_json(path, job(rule, flight.wake, flight.events, flight.members))
        self._runners[path.name] = runner.spawn(path)

    def _look_after(self, rule: Rule, kept: RuleState) -> None:
        """Find out what became of a wake that was started."""
        flight = kept.flight
        if flight is None or flight.starts == 0:
            return
        path = self._path(flight)
        ours = self._runners.get(path.name)
        is_ours = ours is not None and ours.poll() is None
        if is_ours or files.is_held(runner.beside(path, "run")):
            return
        done = files.read_json(runner.beside(path, "done"))
        if done is None and not runner.beside(path, "started").exists():
            if flight.starts >= _MOST_STARTS:
                self._bury(rule, kept, "the runner could not be started")
            else:
                self._start(rule, kept)
            return
        self._runners.pop(path.name, None)
        self._settle(rule, kept, done or {"outcome": "interrupted"})
        for ending in ("json", "run", "started", "done"):
            runner.beside(path, ending).unlink(missing_ok=True)

    def _settle(self, rule: Rule, kept: RuleState, done: dict[str, Any]) -> None:
        flight, outcome, now = kept.flight, done["outcome"], time.time()
        if flight is None:
            return
        flight.starts = 0
        if outcome == "done":
            kept.delivered += len(flight.events)
            kept.flight = None
        elif outcome == "live":
            kept.wakes = kept.wakes[:-1]
            flight.not_before = now + _LIVE_AGAIN_S
            self._give_back(kept, now=now)
        elif outcome == "interrupted":
            self._bury(rule, kept, "stopped while it was being delivered; it may have arrived")
        elif outcome == "refused" or flight.tries + 1 >= rule.max_tries:
            self._bury(rule, kept, str(done.get("why")))
        else:
            flight.tries += 1
            flight.number += 1
            pause_s = min(_LONGEST_RETRY_S, rule.retry_s * 2.0 ** (flight.tries - 1))
            flight.not_before = now + random.uniform(0.5, 1.0) * pause_s
        self.save()

    def _bury(self, rule: Rule, kept: RuleState, why: str) -> None:
        """Keep what could not be delivered where a person finds it."""
        flight = kept.flight
        if flight is None:
            return
        letter = {
            "wake": flight.wake,
            "rule": rule.name,
            "why": why,
            "at": time.time(),
            "events": flight.events,
            "members": flight.members,
            "number": flight.number + 1,
        }
        files.write_json(self.place.dead / f"{flight.wake}.json", letter)
        kept.flight = None
        self.save()

    # Running.

    def run(self) -> None:
        """Go on until told to stop.

        Raises:
            CliError: the server refuses us for good.
        """
        self.begin()
        self._read_on()
        while not self.stopping.is_set():
            try:
                self._arrive(self._arrived.get(timeout=self._pause_s()))
                for _ in range(_BATCH):
                    self._arrive(self._arrived.get_nowait())
            except queue.Empty:
                pass
            self.reread_rules()
            self.tick()
        self.save()

    def _pause_s(self) -> float:
        is_busy = any(each.flight or each.queue for each in self.state.rules.values())
        return _LOOK_S if is_busy else _IDLE_S

    def _arrive(self, item: Event | CliError) -> None:
        if isinstance(item, Gone):
            self.note_gap(item)
            self._read_on()
        elif isinstance(item, CliError):
            raise item
        else:
            self.take(item)

    def _read_on(self) -> None:
        """Follow the log in a thread; what ends it arrives as well."""
        follower = Follower(self.client, self.state.cursor or 0, patience_s=float("inf"))

        def follow() -> None:
            try:
                for event in follower.events():
                    self._arrived.put(event)
            except CliError as error:
                self._arrived.put(error)

        threading.Thread(target=follow, name="events", daemon=True).start()

    def once(self) -> None:
        """Tell what there is to tell now, and end; what must wait stays for the next time."""
        self.begin()
        while True:
            asked = {"after": self.state.cursor, "timeout_s": 0, "limit": 200}
            try:
                page = self.client.asked("wait_for_events", asked)
            except Gone as error:
                self.note_gap(error)
                continue
            for event in page["events"]:
                self.take(event)
            if page["timed_out"]:
                break
        while not self.stopping.is_set():
            self.tick(at_once=True)
            if not any(each.flight and each.flight.starts for each in self.state.rules.values()):
                break
            time.sleep(_LOOK_S)
        self.save()
