"""Everything the stand-in remembers, in one SQLite file: it survives a restart and can be armed from outside.

Tokens and codes are kept as SHA-256, like a service that means it would.
"""

import hashlib
import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from providers.sandbox.globus.spec import (
    Application,
    Collection,
    Endpoint,
    EndpointState,
    Fault,
    MoveFault,
    Person,
    ResultFault,
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS thing (kind TEXT, id TEXT, doc TEXT NOT NULL, PRIMARY KEY (kind, id));
CREATE TABLE IF NOT EXISTS token (
  digest TEXT PRIMARY KEY, kind TEXT, sub TEXT, client TEXT, scope TEXT, server TEXT,
  issued_at REAL, expires_at REAL, active INTEGER DEFAULT 1);
CREATE TABLE IF NOT EXISTS code (
  digest TEXT PRIMARY KEY, doc TEXT NOT NULL, expires_at REAL, used INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS task (
  id TEXT PRIMARY KEY, owner TEXT, endpoint TEXT, doc TEXT NOT NULL, status TEXT, result TEXT, exception TEXT,
  completion_t TEXT, details TEXT);
CREATE TABLE IF NOT EXISTS fault (n INTEGER PRIMARY KEY AUTOINCREMENT, doc TEXT NOT NULL, times INTEGER);
CREATE TABLE IF NOT EXISTS result_fault (n INTEGER PRIMARY KEY AUTOINCREMENT, word TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS move_fault (n INTEGER PRIMARY KEY AUTOINCREMENT, word TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS request (n INTEGER PRIMARY KEY AUTOINCREMENT, at REAL, sub TEXT, route TEXT);
"""


def digest(secret: str) -> str:
    """Return what is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


class State:
    """The stand-in's memory; any number of threads and processes may open the same file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.lock = threading.RLock()
        self._db = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.executescript(_SCHEMA)
        path.chmod(0o600)

    def close(self) -> None:
        """Close the file."""
        with self.lock:
            self._db.close()

    def run(self, sql: str, *values: object) -> list[sqlite3.Row]:
        """Run one statement and return its rows."""
        with self.lock:
            return self._db.execute(sql, values).fetchall()

    def changed(self, sql: str, *values: object) -> int:
        """Run one statement and return how many rows it changed."""
        with self.lock:
            return self._db.execute(sql, values).rowcount

    # --- things: applications, people, endpoints, functions, settings ---------------------------

    def put(self, kind: str, key: str, doc: Mapping[str, Any]) -> None:
        """Keep a document."""
        self.run("INSERT OR REPLACE INTO thing VALUES (?, ?, ?)", kind, key, json.dumps(doc))

    def get(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return a document; None = there is none."""
        rows = self.run("SELECT doc FROM thing WHERE kind = ? AND id = ?", kind, key)
        return json.loads(rows[0]["doc"]) if rows else None

    def every(self, kind: str) -> list[dict[str, Any]]:
        """Return all documents of a kind by id."""
        return [
            json.loads(row["doc"])
            for row in self.run("SELECT doc FROM thing WHERE kind = ? ORDER BY id", kind)
        ]

    def drop(self, kind: str, key: str) -> None:
        """Forget a document."""
        self.run("DELETE FROM thing WHERE kind = ? AND id = ?", kind, key)

    def know(
        self,
        *,
        applications: Sequence[Application] = (),
        people: Sequence[Person] = (),
        endpoints: Sequence[Endpoint] = (),
        collections: Sequence[Collection] = (),
    ) -> None:
        """Add or replace what the stand-in knows."""
        for application in applications:
            kept = application.model_dump(mode="json") | {"secret": digest(application.secret)}
            self.put("application", application.id, kept)
        for person in people:
            self.put("person", person.sub, person.model_dump(mode="json"))
        for endpoint in endpoints:
            self.put("endpoint", endpoint.id, endpoint.model_dump(mode="json"))
        for collection in collections:
            self.put("collection", collection.id, collection.model_dump(mode="json"))

    def endpoint(self, key: str) -> Endpoint | None:
        """Return an endpoint; None = there is none."""
        doc = self.get("endpoint", key)
        return None if doc is None else Endpoint.model_validate(doc)

    def set_endpoint(self, key: str, state: EndpointState) -> None:
        """Start, stop, send to sleep or wake an endpoint."""
        doc = self.get("endpoint", key)
        if doc is None:
            raise KeyError(key)
        self.put("endpoint", key, doc | {"state": state.value})

    def setting(self, name: str, default: float) -> float:
        """Return a number that governs it: access_ttl_s, limit_per_10s (0: none), rotates_refresh."""
        doc = self.get("setting", name)
        return default if doc is None else float(doc["value"])

    def set(self, name: str, value: float) -> None:
        """Change such a number."""
        self.put("setting", name, {"value": value})

    # --- tokens -----------------------------------------------------------------------------------

    def mint(self, kind: str, *, sub: str, client: str, scope: str, server: str, ttl_s: float) -> str:
        """Make a token and return its secret."""
        secret = ("Ag" if kind == "access" else "Agr") + secrets.token_urlsafe(40)
        now = time.time()
        self.run(
            "INSERT INTO token VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1)",
            *(digest(secret), kind, sub, client, scope, server, now, now + ttl_s),
        )
        return secret

    def token(self, secret: str, *, kind: str) -> sqlite3.Row | None:
        """Return a token that is good now; None = unknown, revoked or expired."""
        rows = self.run(
            "SELECT * FROM token WHERE digest = ? AND kind = ? AND active AND expires_at > ?",
            *(digest(secret), kind, time.time()),
        )
        return rows[0] if rows else None

    def revoke(self, secret: str, *, client: str) -> None:
        """End a token of an application."""
        self.run("UPDATE token SET active = 0 WHERE digest = ? AND client = ?", digest(secret), client)

    def expire(self, *, kind: str = "access", sub: str | None = None) -> int:
        """Let every token of a kind (of one person) expire now; return how many there were."""
        return self.changed(
            "UPDATE token SET expires_at = 0 WHERE kind = ? AND active AND (? IS NULL OR sub = ?)",
            kind,
            sub,
            sub,
        )

    def active_tokens(self, sub: str) -> int:
        """Return how many good tokens a person's grants have."""
        rows = self.run(
            "SELECT count(*) AS n FROM token WHERE sub = ? AND active AND expires_at > ?", sub, time.time()
        )
        return int(rows[0]["n"])

    # --- faults -----------------------------------------------------------------------------------

    def arm(self, fault: Fault) -> None:
        """Have something go wrong."""
        self.run("INSERT INTO fault (doc, times) VALUES (?, ?)", fault.model_dump_json(), fault.times)

    def disarm(self) -> None:
        """Forget every fault that has not happened yet."""
        self.run("DELETE FROM fault")
        self.run("DELETE FROM result_fault")
        self.run("DELETE FROM move_fault")

    def fault_for(self, path: str) -> Fault | None:
        """Return the fault that this request meets, counting it; None = none."""
        with self.lock:
            for row in self.run("SELECT n, doc FROM fault WHERE times > 0 ORDER BY n"):
                fault = Fault.model_validate_json(row["doc"])
                if path.startswith(fault.path):
                    self.run("UPDATE fault SET times = times - 1 WHERE n = ?", row["n"])
                    return fault
        return None

    def arm_result(self, word: ResultFault) -> None:
        """Have something happen to the next result."""
        self.run("INSERT INTO result_fault (word) VALUES (?)", word.value)

    def result_fault(self) -> ResultFault | None:
        """Return what happens to the result at hand, once."""
        with self.lock:
            rows = self.run("SELECT n, word FROM result_fault ORDER BY n LIMIT 1")
            if not rows:
                return None
            self.run("DELETE FROM result_fault WHERE n = ?", rows[0]["n"])
            return ResultFault(rows[0]["word"])

    def arm_move(self, word: MoveFault) -> None:
        """Have something happen to the next file that is moved."""
        self.run("INSERT INTO move_fault (word) VALUES (?)", word.value)

    def move_fault(self) -> MoveFault | None:
        """Return what happens to the file at hand, once."""
        with self.lock:
            rows = self.run("SELECT n, word FROM move_fault ORDER BY n LIMIT 1")
            if not rows:
                return None
            self.run("DELETE FROM move_fault WHERE n = ?", rows[0]["n"])
            return MoveFault(rows[0]["word"])

    # --- requests ---------------------------------------------------------------------------------

    def note(self, sub: str, route: str) -> int:
        """Count one request of a person; return how many there were in the last 10 s, this one included."""
        now = time.time()
        with self.lock:
            self.run("INSERT INTO request (at, sub, route) VALUES (?, ?, ?)", now, sub, route)
            self.run("DELETE FROM request WHERE at < ?", now - 600)
            rows = self.run("SELECT count(*) AS n FROM request WHERE sub = ? AND at > ?", sub, now - 10)
        return int(rows[0]["n"])

    def requests(self, route: str = "", *, sub: str | None = None) -> int:
        """Return how many requests of the last ten minutes went to routes that begin so."""
        rows = self.run(
            "SELECT count(*) AS n FROM request WHERE route LIKE ? AND (? IS NULL OR sub = ?)",
            f"{route}%",
            sub,
            sub,
        )
        return int(rows[0]["n"])
