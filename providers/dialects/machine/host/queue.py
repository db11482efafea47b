"""Whose turn it is: first come, first served, as far as CPUs, memory and GPUs reach.

Nothing waits for a turn: who ends a job, and who looks, starts what fits now. Every function here is called
with the lock held.
"""

import os
import time

from providers.dialects.machine.host import facts, store


def phase(key):
    """Return where a job is: queued, running, unwatched (alive, its supervisor is not), ended, or None.

    A job whose process is gone without a record is ended here, by what is known of it and no more.
    """
    job = store.read(store.place(key, "job.json"))
    if job is None:
        return None
    if store.read(store.place(key, "end.json")) is not None:
        return "ended"
    start = store.read(store.place(key, "start.json"))
    if start is None:
        return "queued"
    alive = store.take_alive(key)
    if alive is None:
        return "running"
    os.close(alive)
    process = store.read(store.place(key, "process.json"))
    if process is None:
        os.unlink(store.place(key, "start.json"))
        return "queued"  # its supervisor died before the work could begin
    if start["boot"] != facts.boot_id():
        store.end(key, "rebooted", end_at=time.time())
        return "ended"
    if store.ticks(process["pid"]) == process["ticks"]:
        return "unwatched"
    store.end(key, "unwatched", end_at=time.time())
    return "ended"


class Room:
    """What is left of this host for further jobs."""

    def __init__(self):
        self.cpus_total = self.cpus = facts.cpus()
        self.memory_total_mib = self.memory_mib = facts.memory_mib()
        self.jobs = 0
        self.taken = set()
        self._gpus = False

    def gpus(self):
        """Return the whole GPUs here, asked once and only where somebody wants to know; None = no answer."""
        if self._gpus is False:
            found = facts.gpus()
            self._gpus = None if found is None else [gpu for gpu in found if not gpu["sliced"]]
        return self._gpus

    def take(self, job, uuids):
        """Count a running job."""
        self.jobs += 1
        self.cpus -= self.cpus_total if job["exclusive"] else job["cpus"]
        whole = job["exclusive"] or job["memory_mib"] == 0
        self.memory_mib -= self.memory_total_mib if whole else job["memory_mib"] or 0
        self.taken.update(uuids)

    def impossible(self, job):
        """Return why this host could never run the job, "" where it could, as far as is known."""
        wants = []
        if job["cpus"] > self.cpus_total:
            wants.append("%d CPUs of %d" % (job["cpus"], self.cpus_total))
        if (job["memory_mib"] or 0) > self.memory_total_mib:
            wants.append("%d MiB of memory of %d" % (job["memory_mib"], self.memory_total_mib))
        if job["gpus"] and self.gpus() is not None:
            whole = len(self._of_type(job))
            if job["gpus"] > whole:
                kind = job["gpu_type"] or "NVIDIA"
                wants.append("%d %s GPUs of %d" % (job["gpus"], kind, whole))
        return "the job wants " + " and ".join(wants) if wants else ""

    def free_gpus(self, job):
        """Return the GPUs that could be given to the job now."""
        return [
            gpu["uuid"] for gpu in self._of_type(job) if gpu["uuid"] not in self.taken and not gpu["in_use"]
        ]

    def fits(self, job):
        """Return whether the job could start now."""
        if job["exclusive"] and self.jobs:
            return False
        if job["memory_mib"] == 0 and self.memory_mib < self.memory_total_mib:
            return False
        if job["cpus"] > self.cpus or (job["memory_mib"] or 0) > self.memory_mib:
            return False
        return not job["gpus"] or len(self.free_gpus(job)) >= job["gpus"]

    def _of_type(self, job):
        return [gpu for gpu in self.gpus() or () if job["gpu_type"] in (None, gpu["name"])]


def advance(launch):
    """Start every job whose turn it is and whose size fits, watch again what is unwatched; return the room.

    Args:
        launch: starts the supervisor of a job by its key.
    """
    room = Room()
    waiting = []
    for key in store.open_keys():
        at = phase(key)
        if at is None or at == "ended":
            store.close(key)  # whoever wrote the end was killed before this
        elif at == "queued":
            waiting.append(key)
        else:
            start = store.read(store.place(key, "start.json"))
            room.take(store.read(store.place(key, "job.json")), start["gpus"])
            if at == "unwatched":
                launch(key)
    for key in waiting:
        job = store.read(store.place(key, "job.json"))
        why = room.impossible(job)
        if why:
            store.end(key, "launch_failed", error=why)
            continue
        if not room.fits(job):
            break
        gpus = room.free_gpus(job)[: job["gpus"]] if job["gpus"] else []
        room.take(job, gpus)
        start = {"start_at": time.time(), "boot": facts.boot_id(), "gpus": gpus}
        store.write(store.place(key, "start.json"), start)
        launch(key)
    return room
