"""scancel: end jobs, or send them a signal.

Source: scancel(1); another user's job gives 210, an unknown one is silent, as recorded of 22.05.8.
"""

from __future__ import annotations

import os

from providers.sandbox.slurm import processes
from providers.sandbox.slurm.call import MAY, NEEDS, NONE, Call, Options, Refused, options
from providers.sandbox.slurm.controller import read_mark, run_directory, stop, tick_if_due
from providers.sandbox.slurm.engine import finish
from providers.sandbox.slurm.model import SHORT, Cluster, Job
from providers.sandbox.slurm.squeue import matches
from providers.sandbox.slurm.text import BadText, read_ranges

LONGS = {
    "account": NEEDS, "batch": NONE, "full": NONE, "hurry": NONE, "me": NONE, "name": NEEDS, "jobname": NEEDS,
    "nodelist": NEEDS, "partition": NEEDS, "qos": NEEDS, "quiet": NONE, "signal": NEEDS, "state": NEEDS,
    "user": NEEDS, "verbose": NONE, "version": NONE, "clusters": NEEDS, "interactive": MAY,
}  # fmt: skip
SHORTS = {
    "A": "account", "b": "batch", "f": "full", "H": "hurry", "n": "name", "w": "nodelist", "p": "partition",
    "q": "qos", "Q": "quiet", "s": "signal", "t": "state", "u": "user", "v": "verbose", "V": "version",
}  # fmt: skip
NOT_YOURS = 210


def run(call: Call) -> int:
    """Cancel or signal the jobs meant; the exit code is the last error's."""
    given = options("scancel", call.argv, LONGS, SHORTS)
    if given.has("version"):
        call.say(f"slurm-wlm {call.store.read(call.now).version}")
        return 0
    filters = ("account", "name", "jobname", "partition", "qos", "state", "user", "me", "nodelist")
    if not given.rest and not given.has(*filters):
        raise Refused("scancel: error: No job identification provided")
    code, hit = 0, []
    with call.store.change(call.now) as cluster:
        for job, tasks in _chosen(cluster, given, call):
            if call.user not in {"root", job.user}:
                call.complain(
                    f"scancel: error: Kill job error on job id {job.shown_id}: Access/permission denied"
                )
                code = NOT_YOURS
                continue
            if given.has("signal") and given.get("signal").upper() not in {
                "KILL",
                "SIGKILL",
                "9",
                "TERM",
                "SIGTERM",
                "15",
            }:
                _signal(call, job, given)
            else:
                hit.append(job)
                cancel(cluster, job, tasks, cluster.uid(call.user), int(call.now))
    for job in hit:
        if job.completing:
            stop(call.store.directory, job)
    tick_if_due(call.store, call.now, force=bool(hit))
    return code


def cancel(cluster: Cluster, job: Job, tasks: list[int], killer: int, now: int) -> None:
    """Cancel a job, or these waiting tasks of an array; a real running one goes on completing."""
    if tasks and set(tasks) < set(job.tasks):
        gone = Job(**job.packed())
        gone.key = 0
        gone.id, gone.tasks = cluster.take_id(), sorted(tasks)
        gone.killer = killer
        job.tasks = [task for task in job.tasks if task not in tasks]
        cluster.touch(job)
        finish(cluster, cluster.add(gone), "CANCELLED", now)
        return
    running = job.state == "RUNNING"
    job.killer = killer
    if running:
        job.exit_signal = 0
    finish(cluster, job, "CANCELLED", now, completing=running and not job.background)


def _chosen(cluster: Cluster, given: Options, call: Call) -> list[tuple[Job, list[int]]]:
    """Return live jobs with the waiting tasks meant (empty = all of it)."""
    chosen: dict[int, tuple[Job, list[int]]] = {}
    jobs = [job for job in cluster.jobs if job.live and not job.completing]
    if not given.rest:
        chosen = {job.key: (job, []) for job in jobs}
    for word in given.rest:
        if (
            not word.replace("_", "")
            .replace("[", "")
            .replace("]", "")
            .replace(",", "")
            .replace("-", "")
            .replace("+", "")
            .isdigit()
        ):
            raise Refused(f"scancel: error: Invalid job id {word}")
        array, _, rest = word.partition("_")
        try:
            tasks = read_ranges(rest.strip("[]")) if rest else []
        except BadText:
            raise Refused(f"scancel: error: Invalid job id {word}") from None
        for job in jobs:
            if matches(job, [word]) and not rest:
                chosen[job.key] = (job, [])
            elif rest and str(job.array) == array and job.array:
                here = [job.task] if job.task >= 0 else job.tasks
                both = sorted(set(here) & set(tasks))
                if both:
                    chosen[job.key] = (job, both if job.tasks else [])
    return [pair for pair in chosen.values() if _wanted(pair[0], given, call.user)]


def _wanted(job: Job, given: Options, me: str) -> bool:
    state = given.get("state").upper()
    by_short = {short: name for name, short in SHORT.items()}
    user = me if given.has("me") else given.get("user")
    name = given.get("name") or given.get("jobname")
    return (
        (not state or by_short.get(state, state) == job.state)
        and (not user or job.user == user)
        and (not name or job.name == name)
        and (not given.has("account") or job.account == given.get("account"))
        and (not given.has("partition") or given.get("partition") in {job.partition, *job.partitions})
        and (not given.has("qos") or job.qos == given.get("qos"))
    )


def _signal(call: Call, job: Job, given: Options) -> None:
    from providers.sandbox.slurm.steps import signal_number  # noqa: PLC0415 - one rare path

    try:
        number = signal_number(given.get("signal"))
    except ValueError:
        raise Refused(f"scancel: error: Unknown job signal: {given.get('signal')}") from None
    if job.state != "RUNNING":
        over = "Job/step already completing or completed"
        why = "Job is pending execution" if job.state == "PENDING" else over
        call.complain(f"scancel: error: Kill job error on job id {job.shown_id}: {why}")
        return
    child = read_mark(os.path.join(run_directory(call.store.directory, job), "child"))
    pid = int(str(child.get("pid", 0)))
    if pid and processes.is_alive(pid, str(child["start"])):
        if given.has("batch"):
            os.kill(pid, number)
        else:
            processes.signal_group(pid, number)
