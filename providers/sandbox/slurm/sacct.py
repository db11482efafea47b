"""sacct: accounting of jobs, ended ones for ever, former runs of a requeued job with -D.

Source: sacct(1), recorded output of 22.05.8. Without -j, jobs that are held, dependent or delayed stay
unseen, and so does the unstarted rest of an array; that is what the real program shows.
"""

from __future__ import annotations

from collections.abc import Callable

from providers.sandbox.slurm import tres
from providers.sandbox.slurm.call import NEEDS, NONE, Call, Options, Refused, options
from providers.sandbox.slurm.limits import priority
from providers.sandbox.slurm.model import SHORT, Cluster, Job
from providers.sandbox.slurm.squeue import matches, may_see
from providers.sandbox.slurm.text import BadText, clock, full_span, host_list, memory, read_moment

LONGS = {
    "allusers": NONE,
    "accounts": NEEDS,
    "allocations": NONE,
    "brief": NONE,
    "clusters": NEEDS,
    "delimiter": NEEDS,
    "duplicates": NONE,
    "endtime": NEEDS,
    "format": NEEDS,
    "jobs": NEEDS,
    "long": NONE,
    "name": NEEDS,
    "noheader": NONE,
    "parsable": NONE,
    "parsable2": NONE,
    "partition": NEEDS,
    "qos": NEEDS,
    "starttime": NEEDS,
    "state": NEEDS,
    "uid": NEEDS,
    "user": NEEDS,
    "array": NONE,
    "version": NONE,
    "truncate": NONE,
    "noconvert": NONE,
    "allclusters": NONE,
}
SHORTS = {
    "a": "allusers",
    "A": "accounts",
    "X": "allocations",
    "b": "brief",
    "M": "clusters",
    "D": "duplicates",
    "E": "endtime",
    "o": "format",
    "j": "jobs",
    "l": "long",
    "n": "noheader",
    "p": "parsable",
    "P": "parsable2",
    "r": "partition",
    "q": "qos",
    "S": "starttime",
    "s": "state",
    "u": "user",
    "V": "version",
    "T": "truncate",
    "L": "allclusters",
}
DEFAULT = "jobid,jobname,partition,account,alloccpus,state,exitcode"
BRIEF = "jobid,state,exitcode"
DATABASE_SKIPS = {"JobHeldUser", "JobHeldAdmin", "Dependency", "BeginTime", "DependencyNeverSatisfied"}
SHORT_REASONS = {"PartitionTimeLimit": "PartitionConfig", "PartitionNodeLimit": "PartitionConfig"}
KEPT_REASONS = {
    "JobHeldUser",
    "JobHeldAdmin",
    "BeginTime",
    "Dependency",
    "DependencyNeverSatisfied",
    "PartitionConfig",
}


class Step:
    """One accounting line: a job, or its batch step."""

    __slots__ = ("batch", "job")

    def __init__(self, job: Job, *, batch: bool) -> None:
        self.job, self.batch = job, batch


Field = tuple[str, int, Callable[[Job], str]]
"""Heading, width, reader."""


class Fields:
    """The readers of one call, by lower-case field name: heading, width, reader for a job."""

    def __init__(self, cluster: Cluster, now: int) -> None:
        self.cluster, self.now = cluster, now
        self.of = {**self._identity(), **self._times(), **self._resources()}

    def _identity(self) -> dict[str, Field]:
        cluster = self.cluster
        return {
            "jobid": ("JobID", 12, lambda j: j.shown_id),
            "jobidraw": ("JobIDRaw", 12, lambda j: str(j.id)),
            "jobname": ("JobName", 10, lambda j: j.name),
            "user": ("User", 9, lambda j: j.user),
            "uid": ("UID", 6, lambda j: str(cluster.uid(j.user))),
            "group": ("Group", 9, lambda j: j.user),
            "account": ("Account", 10, lambda j: j.account),
            "partition": ("Partition", 10, lambda j: j.partition),
            "qos": ("QOS", 10, lambda j: j.qos),
            "cluster": ("Cluster", 10, lambda _: cluster.name),
            "state": ("State", 10, state),
            "exitcode": ("ExitCode", 8, exit_code),
            "derivedexitcode": ("DerivedExitCode", 15, lambda _: "0:0"),
        }

    def _times(self) -> dict[str, Field]:
        return {
            "submit": ("Submit", 19, lambda j: clock(j.submit)),
            "eligible": ("Eligible", 19, lambda j: clock(eligible(j), "Unknown")),
            "start": ("Start", 19, start),
            "end": ("End", 19, lambda j: clock(j.end, "Unknown")),
            "elapsed": ("Elapsed", 10, lambda j: full_span(self.elapsed(j))),
            "elapsedraw": ("ElapsedRaw", 10, lambda j: str(self.elapsed(j))),
            "timelimit": ("Timelimit", 10, lambda j: full_span(j.limit) if j.limit else "UNLIMITED"),
            "timelimitraw": ("TimelimitRaw", 12, lambda j: str(j.limit // 60) if j.limit else ""),
        }

    def _resources(self) -> dict[str, Field]:
        cluster, now = self.cluster, self.now
        return {
            "alloccpus": ("AllocCPUS", 10, lambda j: str(j.alloc_cpus)),
            "ncpus": ("NCPUS", 10, lambda j: str(j.alloc_cpus)),
            "reqcpus": ("ReqCPUS", 8, lambda j: str(j.cpus)),
            "allocnodes": ("AllocNodes", 10, lambda j: str(len(j.alloc))),
            "nnodes": ("NNodes", 8, lambda j: str(len(j.alloc) or j.nodes)),
            "ntasks": ("NTasks", 8, lambda _: ""),
            "reqtres": ("ReqTRES", 10, lambda j: tres.by_name(tres.requested_pairs(cluster, j))),
            "alloctres": (
                "AllocTRES",
                10,
                lambda j: tres.by_name(tres.job_pairs(cluster, j)) if j.alloc else "",
            ),
            "reqmem": ("ReqMem", 10, lambda j: memory(j.mem_node * j.nodes or j.mem_cpu * j.cpus)),
            "nodelist": ("NodeList", 15, lambda j: host_list(list(j.alloc)) or "None assigned"),
            "reason": ("Reason", 22, reason),
            "comment": ("Comment", 14, lambda j: j.comment),
            "systemcomment": ("SystemComment", 14, lambda _: ""),
            "admincomment": ("AdminComment", 14, lambda _: ""),
            "workdir": ("WorkDir", 20, lambda j: j.workdir),
            "priority": ("Priority", 10, lambda j: str(priority(cluster, j, now))),
            "reserved": ("Reserved", 10, lambda j: full_span(self.waited(j))),
            "reservation": ("Reservation", 20, lambda j: j.reservation),
            "constraints": ("Constraints", 12, lambda j: j.constraint),
            "submitline": ("SubmitLine", 20, lambda j: f"sbatch {j.command}".strip()),
            "cputimeraw": ("CPUTimeRAW", 10, lambda j: str(self.elapsed(j) * j.alloc_cpus)),
            "cputime": ("CPUTime", 10, lambda j: full_span(self.elapsed(j) * j.alloc_cpus)),
            "maxrss": ("MaxRSS", 10, lambda _: ""),
            "totalcpu": ("TotalCPU", 10, lambda _: "00:00:00"),
            "suspended": ("Suspended", 10, lambda _: "00:00:00"),
            "flags": ("Flags", 20, lambda _: "SchedMain"),
        }

    def elapsed(self, job: Job) -> int:
        """Return seconds the job ran."""
        return (job.end or self.now) - job.start if job.start and job.state != "PENDING" else 0

    def waited(self, job: Job) -> int:
        """Return seconds between eligible and start (or now, or the end)."""
        until = job.start or job.end or self.now
        return max(0, until - eligible(job)) if eligible(job) else 0

    def read(self, name: str, step: Step) -> str:
        """Return one field of one line."""
        job = step.job
        if not step.batch:
            return self.of[name][2](job)
        special = {"jobid": f"{job.shown_id}.batch", "jobidraw": f"{job.id}.batch", "jobname": "batch"}
        if name in special:
            return special[name]
        if name in {
            "user",
            "uid",
            "group",
            "partition",
            "qos",
            "timelimit",
            "timelimitraw",
            "reason",
            "reserved",
            "derivedexitcode",
            "comment",
            "reqtres",
            "submitline",
        }:
            return ""
        if name in {"state", "exitcode"}:
            return _batch(job)[0 if name == "state" else 1]
        return self.of[name][2](job)


def _batch(job: Job) -> tuple[str, str]:
    """Return state and exit code of the batch step."""
    if job.state in {"CANCELLED", "TIMEOUT", "PREEMPTED"}:
        return "CANCELLED", "0:15"
    if job.state in {"NODE_FAIL", "REQUEUED"}:
        return "CANCELLED", ""
    if job.exit_signal and job.state != "OUT_OF_MEMORY":
        return "CANCELLED", f"0:{job.exit_signal}"
    return job.state, exit_code(job)


def state(job: Job) -> str:
    """Return the state, with the canceller's user id."""
    return f"CANCELLED by {job.killer}" if job.state == "CANCELLED" and job.killer >= 0 else job.state


def exit_code(job: Job) -> str:
    """Return `code:signal`."""
    return f"{job.exit}:{job.exit_signal}"


def eligible(job: Job) -> int:
    """Return when it could have run; 0 = not yet known."""
    return 0 if job.held or job.dependency else job.eligible


def start(job: Job) -> str:
    """Return the start; `None` for jobs cancelled before it, `Unknown` while pending."""
    if job.start:
        return clock(job.start)
    return "Unknown" if job.state == "PENDING" else "None"


def reason(job: Job) -> str:
    """Return the reason as accounting keeps it."""
    short = SHORT_REASONS.get(job.reason, job.reason)
    return short if short in KEPT_REASONS and not job.start else "None"


def run(call: Call) -> int:
    """Print accounting lines."""
    given = options("sacct", call.argv, LONGS, SHORTS)
    cluster = call.store.read(call.now)
    if given.has("version"):
        call.say(f"slurm-wlm {cluster.version}")
        return 0
    fields = Fields(cluster, int(call.now))
    asked = _asked(given, fields)
    steps = []
    for job in _chosen(call, given):
        if not may_see(cluster, job, call.user):  # slurmdbd.conf has a setting of its own: here they agree
            continue
        steps.append(Step(job, batch=False))
        if not given.has("allocations") and job.start:
            steps.append(Step(job, batch=True))
    if given.has("parsable", "parsable2"):
        _piped(call, given, fields, asked, steps)
    else:
        _padded(call, given, fields, asked, steps)
    return 0


def _asked(given: Options, fields: Fields) -> list[tuple[str, int]]:
    text = given.get("format") or (BRIEF if given.has("brief") else DEFAULT)
    asked = []
    for part in text.split(","):
        name, _, width = part.strip().partition("%")
        if name.lower() not in fields.of:
            raise Refused(f'sacct: error: Invalid field requested: "{name}"')
        try:
            asked.append((name.lower(), int(width) if width else fields.of[name.lower()][1]))
        except ValueError:
            raise Refused(f'sacct: error: Invalid field width: "{part}"') from None
    return asked


def _chosen(call: Call, given: Options) -> list[Job]:
    now = int(call.now)
    ids = given.names("jobs")
    try:
        since = (
            read_moment(given.get("starttime"), now)
            if given.has("starttime")
            else (0 if ids else read_moment("midnight", now))
        )
        until = read_moment(given.get("endtime"), now) if given.has("endtime") else now
    except BadText as bad:
        raise Refused(f"sacct: error: Invalid time specification (pos=0): {bad}") from None
    if ids:
        numbers = [int(word.split(".")[0].split("_")[0].split("+")[0]) for word in ids if word[:1].isdigit()]
        rows = [
            job
            for job in call.store.jobs_by_id(numbers)
            if matches(job, [word.split(".")[0] for word in ids])
        ]
    elif given.has("name"):
        rows = [
            job for job in call.store.jobs_by_name(given.names("name")) if not job.end or job.end >= since
        ]
    else:
        rows = [job for job in call.store.history(since, until) if not _unseen(job)]
    rows = [job for job in rows if _wanted(job, given, call)]
    rows.sort(
        key=lambda job: (job.array or job.id, _task(job), job.submit, job.start or job.submit, job.live)
    )
    if given.has("duplicates"):
        return rows
    newest: dict[tuple[int, str], Job] = {}
    for job in rows:
        newest[job.id, job.shown_id] = job
    return list(newest.values())


def _task(job: Job) -> int:
    """Return the task's index; the rest of an array comes last."""
    return 2**31 if job.tasks else job.task


def _unseen(job: Job) -> bool:
    """Return whether the database does not know the job yet."""
    return job.state == "PENDING" and (bool(job.tasks) or job.reason in DATABASE_SKIPS)


def _wanted(job: Job, given: Options, call: Call) -> bool:
    by_short = {short: name for name, short in SHORT.items()}
    states = {by_short.get(word.upper(), word.upper()) for word in given.names("state")}
    unknown = states - SHORT.keys()
    if unknown:
        raise Refused(f"sacct: error: Unrecognized job state: {min(unknown)}")
    users = set(given.names("user") or given.names("uid"))
    if not users and not given.has("allusers") and not given.has("jobs") and call.user != "root":
        users = {call.user}
    return (
        (not states or job.state in states)
        and (not users or job.user in users)
        and (not given.has("accounts") or job.account in given.names("accounts"))
        and (not given.has("partition") or job.partition in given.names("partition"))
        and (not given.has("qos") or job.qos in given.names("qos"))
        and (not given.has("name") or job.name in given.names("name"))
    )


def _piped(
    call: Call, given: Options, fields: Fields, asked: list[tuple[str, int]], steps: list[Step]
) -> None:
    mark = given.get("delimiter", "|")
    tail = mark if given.has("parsable") else ""
    if not given.has("noheader"):
        call.say(mark.join(fields.of[name][0] for name, _ in asked) + tail)
    for step in steps:
        call.say(mark.join(fields.read(name, step) for name, _ in asked) + tail)


def _padded(
    call: Call, given: Options, fields: Fields, asked: list[tuple[str, int]], steps: list[Step]
) -> None:
    def cell(text: str, width: int, *, left: bool) -> str:
        text = text if len(text) <= abs(width) else text[: abs(width) - 1] + "+"
        return (text.ljust(abs(width)) if left or width < 0 else text.rjust(width)) + " "

    if not given.has("noheader"):
        call.say("".join(cell(fields.of[name][0], width, left=name == "jobid") for name, width in asked))
        call.say("".join("-" * abs(width) + " " for _, width in asked))
    for step in steps:
        call.say("".join(cell(fields.read(name, step), width, left=name == "jobid") for name, width in asked))
