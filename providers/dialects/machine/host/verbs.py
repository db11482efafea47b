"""What can be asked of this host: probe, submit, observe, cancel. One JSON request in, one JSON answer out."""

import json
import os
import pwd
import signal
import sys
import time

from providers.dialects.machine.host import facts, queue, store, supervise

SHOWN = ("number", "key", "name", "user", "cpus", "memory_mib", "gpus", "gpu_type", "walltime_s", "submit_at")


def main(request):
    """Answer one request on standard output; exit code 1 with the reason where it cannot be answered."""
    try:
        answer = _refused(request) or VERBS[request["verb"]](request)
    except OSError as error:
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)
    sys.stdout.flush()
    return 1 if "error" in answer else 0


def _refused(request):
    """Return the refusal of a submission that cannot have left anything behind, None where none is due."""
    try:
        store.make_places()
    except OSError as error:
        if request["verb"] == "submit":
            return {"rejected": "the folder of the queue cannot be made: %s" % error}
        raise
    return None


def probe(request):
    """Return what this host has, what is free, and our own jobs."""
    with store.locked():
        if request["full"]:
            store.forget_old()
        room = queue.advance(supervise.launch)
        jobs = [_job(key) for key in store.open_keys()]
    gpus = facts.gpus()
    about = os.uname()
    return {
        "host": about.nodename,
        "kernel": "%s %s" % (about.sysname, about.release),
        "architecture": about.machine,
        "user": _user(),
        "cpus": room.cpus_total,
        "cpus_free": room.cpus,
        "memory_mib": room.memory_total_mib,
        "memory_free_mib": room.memory_mib,
        "memory_available_mib": facts.memory_available_mib(),
        "load": round(os.getloadavg()[0], 2),
        "gpus": None if gpus is None else [dict(gpu, taken=gpu["uuid"] in room.taken) for gpu in gpus],
        "jobs": [job for job in jobs if job is not None],
    }


def submit(request):
    """Take a job, unless its key is known already; return its number, or why it could never run."""
    key = request["key"]
    with store.locked():
        if store.exists(key):
            return {"number": store.read(store.place(key, "job.json"))["number"], "created": False}
        job = dict(request["job"], user=_user())
        why = _unusable(job) or queue.Room().impossible(job)
        if why:
            return {"rejected": why}
        number = store.add(key, job, request["script"], dict(os.environ))
        _advance()
    return {"number": number, "created": True}


def _unusable(job):
    """Return what speaks against the job here, "" for nothing; turn its signal's name into a number."""
    if not (os.path.isdir(job["workdir"]) and os.access(job["workdir"], os.X_OK)):
        return "the working directory cannot be entered: %s" % job["workdir"]
    if job["warning"] is not None:
        name = job["warning"]["signal"]
        number = int(name) if name.isdigit() else getattr(signal, "SIG" + name, None)
        if number is None or not 0 < number < signal.NSIG:
            return "no such signal: %s" % name
        job["warning"] = dict(job["warning"], signal=int(number))
    return ""


def observe(request):
    """Return each job by its key, None where no such job is known."""
    with store.locked():
        _advance()
        return {"jobs": {key: _job(key) for key in request["keys"]}}


def cancel(request):
    """Ask for the end of jobs; what is queued ends at once, what runs is told."""
    with store.locked():
        for key in request["keys"]:
            if queue.phase(key) == "queued":
                store.end(key, "cancelled")
        _advance()
        for key in request["keys"]:
            if queue.phase(key) == "running":
                store.write(store.place(key, "cancel.json"), {"at": time.time()})
                _wake(key)
    return {"taken": request["keys"]}


VERBS = {"probe": probe, "submit": submit, "observe": observe, "cancel": cancel}


def _advance():
    """Start what can start. A host short of processes does it at the next look."""
    try:
        queue.advance(supervise.launch)
    except OSError as error:
        sys.stderr.write("%s\n" % error)


def _wake(key):
    """Tell the supervisor to look; one that has not recorded itself yet looks by itself."""
    process = store.read(store.place(key, "process.json"))
    if process is not None and store.ticks(process["supervisor"]) == process["supervisor_ticks"]:
        os.kill(process["supervisor"], signal.SIGTERM)


def _job(key):
    at = queue.phase(key)
    if at is None:
        return None
    job = store.read(store.place(key, "job.json"))
    shown = {name: job[name] for name in SHOWN}
    start = (store.read(store.place(key, "start.json")) or {}) if at != "queued" else {}
    ended = store.read(store.place(key, "end.json")) or {}
    before = store.open_keys()
    shown["state"] = ended.get("state", "queued" if at == "queued" else "running")
    shown["start_at"] = start.get("start_at")
    shown["devices"] = start.get("gpus", [])
    shown["before"] = before.index(key) if at == "queued" and key in before else 0
    for name in ("end_at", "exit_code", "signal", "error", "cpu_s", "max_rss_mib"):
        shown[name] = ended.get(name)
    return shown


def _user():
    try:
        return os.environ.get("USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
