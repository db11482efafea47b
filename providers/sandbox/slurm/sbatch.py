"""sbatch: read options and script, check them as slurmctld does, and queue the job.

Refusals use Slurm's words. Source: sbatch(1), recorded output of 22.05.8.
"""

from __future__ import annotations

import json
import os
import shlex

from providers.sandbox.slurm.call import MAY, NEEDS, NONE, Call, Options, Refused, hint, options
from providers.sandbox.slurm.controller import tick_if_due, write_mark
from providers.sandbox.slurm.engine import Pass
from providers.sandbox.slurm.model import Cluster, Job
from providers.sandbox.slurm.request import NoSubmit, build_job, check_submit
from providers.sandbox.slurm.text import clock, host_list

LONGS = {
    "account": NEEDS, "acctg-freq": NEEDS, "array": NEEDS, "batch": NEEDS, "begin": NEEDS, "chdir": NEEDS,
    "comment": NEEDS, "constraint": NEEDS, "contiguous": NONE, "cpus-per-gpu": NEEDS, "cpus-per-task":
    NEEDS, "deadline": NEEDS, "dependency": NEEDS, "distribution": NEEDS, "error": NEEDS, "exclude":
    NEEDS, "exclusive": MAY, "export": NEEDS, "get-user-env": MAY, "gpu-bind": NEEDS, "gpus": NEEDS,
    "gpus-per-node": NEEDS, "gpus-per-task": NEEDS, "gres": NEEDS, "gres-flags": NEEDS, "hint": NEEDS,
    "hold": NONE, "ignore-pbs": NONE, "input": NEEDS, "job-name": NEEDS, "kill-on-invalid-dep": NEEDS,
    "licenses": NEEDS, "mail-type": NEEDS, "mail-user": NEEDS, "mem": NEEDS, "mem-bind": NEEDS,
    "mem-per-cpu": NEEDS, "mem-per-gpu": NEEDS, "mincpus": NEEDS, "network": NEEDS, "nice": MAY,
    "no-kill": MAY, "no-requeue": NONE, "nodelist": NEEDS, "nodes": NEEDS, "ntasks": NEEDS,
    "ntasks-per-core": NEEDS, "ntasks-per-gpu": NEEDS, "ntasks-per-node": NEEDS, "ntasks-per-socket":
    NEEDS, "open-mode": NEEDS, "output": NEEDS, "overcommit": NONE, "parsable": NONE, "partition": NEEDS,
    "priority": NEEDS, "propagate": MAY, "qos": NEEDS, "quiet": NONE, "requeue": NONE, "reservation":
    NEEDS, "signal": NEEDS, "test-only": NONE, "threads-per-core": NEEDS, "time": NEEDS, "time-min":
    NEEDS, "tmp": NEEDS, "uid": NEEDS, "verbose": NONE, "version": NONE, "wait-all-nodes": NEEDS, "wckey":
    NEEDS, "wrap": NEEDS,
}  # fmt: skip
"""Options that are read; those that mean nothing on an emulated node (bindings, mail) are accepted."""
SHORTS = {
    "A": "account", "a": "array", "b": "begin", "D": "chdir", "C": "constraint", "c": "cpus-per-task",
    "d": "dependency", "m": "distribution", "e": "error", "x": "exclude", "G": "gpus", "H": "hold", "i":
    "input", "J": "job-name", "k": "no-kill", "L": "licenses", "w": "nodelist", "N": "nodes", "n":
    "ntasks", "o": "output", "O": "overcommit", "p": "partition", "q": "qos", "Q": "quiet", "t": "time",
    "v": "verbose", "V": "version",
}  # fmt: skip
NOT_EMULATED = {
    "licenses": "Invalid license specification",
    "network": "Invalid --network specification",
    "tmp": "Temporary disk specification can not be satisfied",
    "deadline": "Invalid deadline specification",
    "time-min": "Invalid time limit specification",
}
"""Options with a meaning that the sandbox does not have: refused, never ignored."""


def run(call: Call) -> int:
    """Submit a job; print its id."""
    command = options("sbatch", call.argv, LONGS, SHORTS, stop_at_operand=True)
    if command.has("version"):
        call.say(f"slurm-wlm {call.store.read(call.now).version}")
        return 0
    script, arguments = _script(call, command)
    given = _merged(command, script)
    for name, words in NOT_EMULATED.items():
        if given.has(name):
            raise Refused(f"sbatch: error: Batch job submission failed: {words}")
    user = given.get("uid") or call.user
    if call.user not in {user, "root"}:
        raise Refused("sbatch: error: --uid: Access/permission denied")
    if given.has("test-only"):
        return _test_only(call, given, user)
    spool = f"{int(call.now * 1000)}-{os.getpid()}-{os.urandom(3).hex()}"
    _store_script(call, spool, script, arguments, given)
    job = _queue(call, given, user, spool, command.rest)
    tick_if_due(call.store, call.now, force=True)
    if given.has("parsable"):
        call.say(str(job.id))
    elif not given.has("quiet"):
        call.say(f"Submitted batch job {job.id}")
    return 0


def _script(call: Call, given: Options) -> tuple[str, list[str]]:
    """Return the script's text and its arguments.

    Raises:
        Refused: it cannot be read, is empty, or does not look like a script.
    """
    if given.has("wrap"):
        if given.rest:
            raise Refused("sbatch: error: Script arguments not permitted with --wrap option")
        return f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{given.get('wrap')}\n", []
    if given.rest:
        path = os.path.join(call.cwd, given.rest[0])
        try:
            with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
                text = file.read()
        except OSError:
            raise Refused(f"sbatch: error: Unable to open file {given.rest[0]}") from None
    else:
        text = call.stdin()
    if not text:
        raise Refused("sbatch: error: Batch script is empty!")
    if not text.strip():
        raise Refused("sbatch: error: Batch script contains only whitespace!")
    if not text.startswith("#!"):
        raise Refused(
            "sbatch: error: This does not look like a batch script.  The first\n"
            "sbatch: error: line must start with #! followed by the path to an interpreter.\n"
            "sbatch: error: For instance: #!/bin/sh"
        )
    if "\r\n" in text:
        raise Refused(
            "sbatch: error: Batch script contains DOS line breaks (\\r\\n)\n"
            "sbatch: error: instead of expected UNIX line breaks (\\n)."
        )
    return text, given.rest[1:]


def _merged(command: Options, script: str) -> Options:
    """Return the script's #SBATCH options overridden by those of the command line."""
    words: list[str] = []
    for line in script.splitlines()[1:]:
        if line.startswith("#SBATCH"):
            rest = line[len("#SBATCH") :]
            if rest and not rest[0].isspace():
                continue
            try:
                words.extend(shlex.split(rest, comments=True))
            except ValueError:
                raise Refused(f"sbatch: error: Unmatched quote in batch directive: {rest.strip()}") from None
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    merged = options("sbatch", words, LONGS, SHORTS)
    if merged.rest:
        raise Refused(
            f"sbatch: error: Invalid directive found in batch script: {merged.rest[0]}\n{hint('sbatch')}"
        )
    merged.values.update(command.values)
    if command.rest:
        merged.values.setdefault("job-name", os.path.basename(command.rest[0]))
    merged.values.setdefault("job-name", "wrap" if command.has("wrap") else "sbatch")
    return merged


def _store_script(call: Call, spool: str, script: str, arguments: list[str], given: Options) -> None:
    """Keep script and environment before the job exists, so that no job is without them."""
    place = os.path.join(call.store.directory, "spool", spool)
    os.makedirs(place, mode=0o700)
    path = os.path.join(place, "slurm_script")
    with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.write(script)
    os.chmod(path, 0o700)
    environ: dict[str, object] = dict(_exported(call, given.get("export", "ALL")))
    environ["FACET_SANDBOX_ARGUMENTS"] = json.dumps(arguments)
    write_mark(os.path.join(place, "environment"), environ)


def _exported(call: Call, export: str) -> dict[str, str]:
    """Return the environment that `--export` lets through."""
    always = {
        name: call.env[name]
        for name in ("PATH", "HOME", "USER", "FACET_SANDBOX", "FACET_SANDBOX_USER")
        if name in call.env
    }
    if export.upper() in {"NONE", "NIL"}:
        return always
    words = export.split(",")
    chosen = dict(call.env) if "ALL" in {word.upper() for word in words} else always
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            chosen[name] = value
        elif name in call.env:
            chosen[name] = call.env[name]
    return chosen


def _queue(call: Call, given: Options, user: str, spool: str, rest: list[str]) -> Job:
    """Check and insert the job in one transaction.

    Raises:
        Refused: slurmctld's refusal; where the real one burns an id, so does this.
    """
    refusal: NoSubmit | None = None
    with call.store.change(call.now) as cluster:
        try:
            job = build_job(cluster, given, user, int(call.now), call.cwd)
            job.spool = spool
            job.command = os.path.join(call.cwd, rest[0]) if rest else ""
            check_submit(cluster, job)
            job.id = cluster.take_id()
            if job.tasks:
                job.array = job.id
            cluster.add(job)
        except NoSubmit as error:
            refusal = error
            if error.job is not None:
                _burn(cluster, error.job, int(call.now))
    if refusal is not None:
        raise Refused(refusal.words)
    return job


def _burn(cluster: Cluster, job: Job, now: int) -> None:
    """Leave the FAILED record of a job that was refused after it got its id."""
    job.id, job.state, job.exit = cluster.take_id(), "FAILED", 1
    job.start = job.end = now
    cluster.add(job)


def _test_only(call: Call, given: Options, user: str) -> int:
    """Say when and where the job would start; takes an id as the real one does."""
    now = int(call.now)
    words = ""
    with call.store.change(call.now) as cluster:
        job_id = cluster.take_id()
    cluster = call.store.read(call.now)
    try:
        job = build_job(cluster, given, user, now, call.cwd)
        check_submit(cluster, job)
    except NoSubmit as error:
        lines = error.words.split("\n")
        failure = lines[-1].replace("sbatch: error: Batch job submission failed: ", "")
        raise Refused("\n".join([*lines[:-1], f"allocation failure: {failure}"])) from None
    job.id, job.tasks = job_id, []
    cluster.jobs.append(job)
    Pass(cluster, now).run()
    when = job.start or job.expected or now
    where = list(job.alloc) or job.planned
    words = (
        f"sbatch: Job {job_id} to start at {clock(when)} using {job.cpus} processors on nodes "
        f"{host_list(where)} in partition {job.partition}"
    )
    call.complain(words)
    return 0
