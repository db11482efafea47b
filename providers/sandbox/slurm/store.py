"""Where an emulated cluster lives: one SQLite file, changed whole or not at all.

Readers never wait for writers (WAL); writers take turns (`BEGIN IMMEDIATE`). A killed process loses
nothing that was committed. Jobs are JSON rows beside the few columns they are looked up by.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time

from providers.sandbox.slurm.model import MIN_JOB_AGE_S, Cluster, Job

SCHEMA = """
PRAGMA journal_mode=WAL;
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id INTEGER NOT NULL, array INTEGER NOT NULL, live INTEGER NOT NULL,
    name TEXT NOT NULL, user TEXT NOT NULL, background INTEGER NOT NULL,
    submit INTEGER NOT NULL, ended INTEGER NOT NULL, data TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS jobs_live ON jobs (live, ended);
CREATE INDEX IF NOT EXISTS jobs_id ON jobs (id);
CREATE INDEX IF NOT EXISTS jobs_array ON jobs (array);
CREATE INDEX IF NOT EXISTS jobs_name ON jobs (name);
"""
COLUMNS = "id, array, live, name, user, background, submit, ended, data"
BUSY_S = 30.0


class Store:
    """One cluster's state on disk.

    Args:
        directory: the cluster's directory, holding `state.db`, `spool/`, `faults/`.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        path = os.path.join(directory, "state.db")
        if not os.path.exists(path):
            message = f"no emulated cluster in {directory}"
            raise FileNotFoundError(message)
        self._db = _connect(path)

    @classmethod
    def create(cls, directory: str, cluster: Cluster) -> Store:
        """Make a new cluster's state; an existing one is an error."""
        path = os.path.join(directory, "state.db")
        if os.path.exists(path):
            message = f"{directory} already holds an emulated cluster"
            raise FileExistsError(message)
        db = _connect(path)
        db.executescript(SCHEMA)
        db.execute("BEGIN IMMEDIATE")
        _put(db, "site", cluster.packed())
        _put(db, "next_id", cluster.next_id)
        db.execute("COMMIT")
        db.close()
        store = cls(directory)
        with store.change(time.time()) as fresh:
            for job in cluster.jobs:
                fresh.add(job)
        return store

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def meta(self, name: str, default: object = None) -> object:
        """Return a stored value, or `default`."""
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return default if row is None else json.loads(row[0])

    def put_meta(self, name: str, value: object) -> None:
        """Store a value (its own transaction unless one is open)."""
        _put(self._db, name, value)

    def number(self, name: str) -> float:
        """Return a stored number, 0 where absent."""
        return float(str(self.meta(name, 0)))

    def data_version(self) -> int:
        """Return a number that changes when another process has committed."""
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def read(self, now: float) -> Cluster:
        """Return the cluster with live jobs and those ended within MinJobAge."""
        cluster = Cluster(dict(self.meta("site")))  # type: ignore[call-overload]  # our own JSON
        cluster.next_id = int(self.number("next_id"))
        rows = self._db.execute(
            "SELECT key, data FROM jobs WHERE live = 1 OR (live = 0 AND ended > ?) ORDER BY key",
            (int(now) - MIN_JOB_AGE_S,),
        )
        cluster.jobs = [_job(key, data) for key, data in rows]
        return cluster

    def change(self, now: float) -> Change:
        """Open a change: `with store.change(now) as cluster: …`; an exception undoes it."""
        return Change(self, self._db, now)

    def history(self, since: int, until: int) -> list[Job]:
        """Return accounting rows that were live at some time in [since, until], oldest first."""
        rows = self._db.execute(
            "SELECT key, data FROM jobs WHERE (live = 1 OR ended >= ?) AND submit <= ? ORDER BY id, key",
            (since, until),
        )
        return [_job(key, data) for key, data in rows]

    def jobs_by_id(self, ids: list[int]) -> list[Job]:
        """Return all rows of jobs and array tasks with these ids, former incarnations included."""
        marks = ",".join("?" * len(ids))
        rows = self._db.execute(
            f"SELECT key, data FROM jobs WHERE id IN ({marks}) OR array IN ({marks}) ORDER BY id, key",  # noqa: S608 - only marks
            (*ids, *ids),
        )
        return [_job(key, data) for key, data in rows]

    def jobs_by_name(self, names: list[str]) -> list[Job]:
        """Return all rows of jobs with these names."""
        marks = ",".join("?" * len(names))
        rows = self._db.execute(
            f"SELECT key, data FROM jobs WHERE name IN ({marks}) ORDER BY id, key",  # noqa: S608 - only marks
            tuple(names),
        )
        return [_job(key, data) for key, data in rows]

    def job(self, key: int) -> Job | None:
        """Return one row."""
        row = self._db.execute("SELECT key, data FROM jobs WHERE key = ?", (key,)).fetchone()
        return None if row is None else _job(*row)

    def forget_background(self, before: int) -> None:
        """Drop accounting of background jobs that ended before an instant; real jobs stay for ever."""
        self._db.execute("DELETE FROM jobs WHERE live = 0 AND background = 1 AND ended < ?", (before,))


class Change:
    """One transaction on a cluster; see `Store.change`."""

    def __init__(self, store: Store, db: sqlite3.Connection, now: float) -> None:
        self._store, self._db, self._now = store, db, now

    def __enter__(self) -> Cluster:
        """Begin, and return the cluster to change."""
        self._db.execute("BEGIN IMMEDIATE")
        self._cluster = self._store.read(self._now)
        self._first_id = self._cluster.next_id
        return self._cluster

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Save what was touched and commit, or undo."""
        if kind is not None:
            self._db.execute("ROLLBACK")
            return
        cluster = self._cluster
        for job in cluster.created:
            cursor = self._db.execute(f"INSERT INTO jobs ({COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?)", _row(job))  # noqa: S608 - constant
            job.key = int(cursor.lastrowid or 0)
        new = {job.key for job in cluster.created}
        for job in cluster.changed.values():
            if job.key not in new:
                self._db.execute(
                    f"UPDATE jobs SET ({COLUMNS}) = (?,?,?,?,?,?,?,?,?) WHERE key = ?",  # noqa: S608 - constant
                    (*_row(job), job.key),
                )
        if cluster.nodes_changed:
            _put(self._db, "site", cluster.packed())
        if cluster.next_id != self._first_id:
            _put(self._db, "next_id", cluster.next_id)
        self._db.execute("COMMIT")


def _connect(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    db.execute("PRAGMA synchronous=NORMAL")
    return db


def _put(db: sqlite3.Connection, name: str, value: object) -> None:
    db.execute(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, json.dumps(value)),
    )


def _row(job: Job) -> tuple[object, ...]:
    packed = job.packed()
    packed.pop("key", None)
    return (
        job.id,
        job.array,
        int(job.live),
        job.name,
        job.user,
        int(job.background),
        job.submit,
        0 if job.live else job.end,
        json.dumps(packed, separators=(",", ":")),
    )


def _job(key: int, data: str) -> Job:
    job = Job.__new__(Job)
    job.__dict__.update(json.loads(data))
    job.key = key
    return job
