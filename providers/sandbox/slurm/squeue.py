"""squeue: the queue in every column that `-o` and `-O` know.

Source: squeue(1), recorded output of 22.05.8.
"""

from __future__ import annotations

from collections.abc import Callable

from providers.sandbox.slurm import tres
from providers.sandbox.slurm.call import MAY, NEEDS, NONE, Call, Options, Refused, options
from providers.sandbox.slurm.columns import BadFormat, long_columns, short_columns, table
from providers.sandbox.slurm.limits import NEVER, priority
from providers.sandbox.slurm.model import SHORT, STATE_ORDER, Cluster, Job
from providers.sandbox.slurm.text import clock, host_list, memory, ranges, span

LONGS = {
    "account": NEEDS, "all": NONE, "array": NONE, "cluster": NEEDS, "clusters": NEEDS, "format": NEEDS,
    "Format": NEEDS, "jobs": MAY, "long": NONE, "me": NONE, "name": NEEDS, "noheader": NONE,
    "nodelist": NEEDS, "partition": NEEDS, "qos": NEEDS, "sort": NEEDS, "start": NONE, "states": NEEDS,
    "user": NEEDS, "users": NEEDS, "hide": NONE, "priority": NONE, "version": NONE,
}  # fmt: skip
SHORTS = {
    "A": "account", "a": "all", "r": "array", "M": "clusters", "o": "format", "O": "Format", "j": "jobs",
    "l": "long", "n": "name", "h": "noheader", "w": "nodelist", "p": "partition", "q": "qos", "S": "sort",
    "t": "states", "u": "user", "P": "priority", "V": "version",
}  # fmt: skip
DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
ENDED_WITH_REASON = {"FAILED", "TIMEOUT", "NODE_FAIL", "DEADLINE", "OUT_OF_MEMORY"}

SAME = {
    "account": "a", "jobid": "A", "jobarrayid": "i", "arrayjobid": "F", "arraytaskid": "K",
    "username": "u", "userid": "U", "partition": "P", "qos": "q", "statecompact": "t", "state": "T",
    "reason": "r", "reasonlist": "R", "prioritylong": "Q", "priority": "p", "numnodes": "D",
    "numcpus": "C", "tres-per-node": "b", "gres": "b", "timelimit": "l", "timeused": "M", "timeleft": "L",
    "submittime": "V", "starttime": "S", "endtime": "e", "comment": "k", "name": "j", "nodelist": "N",
    "dependency": "E", "feature": "f", "minmemory": "m", "workdir": "Z", "batchhost": "B", "command": "o",
    "schednodes": "Y", "reservation": "v", "nice": "y", "exc_nodes": "x", "groupname": "g",
    "mincpus": "c", "oversubscribe": "h",
}  # fmt: skip
"""Fields of `-O` that show what a code of `-o` shows."""

Reader = Callable[[Job], str]


class Queue:
    """The readers of one call: each turns a job into the text of one column."""

    def __init__(self, cluster: Cluster, now: int) -> None:
        self.cluster, self.now = cluster, now
        self.short = {**self._codes_to_l(), **self._codes_from_m()}
        self.long = {**{name: self.short[code] for name, code in SAME.items()}, **self._own_fields()}

    def _codes_to_l(self) -> dict[str, tuple[str, Reader]]:
        cluster = self.cluster
        return {
            "a": ("ACCOUNT", lambda j: j.account),
            "A": ("JOBID", lambda j: str(j.id)),
            "b": ("TRES_PER_NODE", lambda j: j.gpu_words or "N/A"),
            "B": ("EXEC_HOST", lambda j: j.batch_host or "n/a"),
            "c": ("MIN_CPUS", lambda j: str(max(1, j.cpus // j.nodes))),
            "C": ("CPUS", lambda j: str(j.alloc_cpus)),
            "d": ("MIN_TMP_DISK", lambda _: "0"),
            "D": ("NODES", lambda j: str(len(j.alloc) or j.nodes)),
            "e": ("END_TIME", self.end),
            "E": ("DEPENDENCY", self.dependency),
            "f": ("FEATURES", lambda j: j.constraint or "(null)"),
            "F": ("ARRAY_JOB_ID", lambda j: str(j.array or j.id)),
            "g": ("GROUP", lambda j: j.user),
            "G": ("GROUP", lambda j: str(cluster.uid(j.user))),
            "h": ("OVER_SUBSCRIBE", lambda j: "NO" if j.exclusive else "OK"),
            "i": ("JOBID", lambda j: j.shown_id),
            "j": ("NAME", lambda j: j.name),
            "k": ("COMMENT", lambda j: j.comment or "(null)"),
            "K": ("ARRAY_TASK_ID", self.array_task),
            "l": ("TIME_LIMIT", self.limit),
            "L": ("TIME_LEFT", self.left),
        }

    def _codes_from_m(self) -> dict[str, tuple[str, Reader]]:
        cluster, now = self.cluster, self.now
        return {
            "m": ("MIN_MEMORY", lambda j: memory(j.mem_node or j.mem_cpu)),
            "M": ("TIME", self.used),
            "N": ("NODELIST", lambda j: host_list(list(j.alloc))),
            "o": ("COMMAND", lambda j: j.command or "(null)"),
            "p": ("PRIORITY", lambda j: f"{priority(cluster, j, now) / 4294967295:.14f}"),
            "P": ("PARTITION", self.partition),
            "q": ("QOS", lambda j: j.qos),
            "Q": ("PRIORITY", lambda j: str(priority(cluster, j, now))),
            "r": ("REASON", self.reason),
            "R": ("NODELIST(REASON)", self.nodes_or_reason),
            "S": ("START_TIME", self.start),
            "t": ("ST", lambda j: SHORT[self.state(j)]),
            "T": ("STATE", self.state),
            "u": ("USER", lambda j: j.user),
            "U": ("UID", lambda j: str(cluster.uid(j.user))),
            "v": ("RESERVATION", lambda j: j.reservation or "(null)"),
            "V": ("SUBMIT_TIME", lambda j: clock(j.submit)),
            "x": ("EXC_NODES", lambda j: host_list(j.avoid_nodes)),
            "y": ("NICE", lambda j: str(j.nice)),
            "Y": ("SCHEDNODES", lambda j: host_list(j.planned) or "(null)"),
            "Z": ("WORK_DIR", lambda j: j.workdir),
        }

    def _own_fields(self) -> dict[str, tuple[str, Reader]]:
        cluster = self.cluster
        return {
            "hetjobid": ("HET_JOB_ID", lambda _: "N/A"),
            "hetjoboffset": ("HET_JOB_OFFSET", lambda _: "N/A"),
            "tres-per-job": ("TRES_PER_JOB", lambda j: j.gpu_job_words or "N/A"),
            "tres-per-task": ("TRES_PER_TASK", lambda _: "N/A"),
            "tres-alloc": ("TRES_ALLOC", lambda j: tres.joined(tres.job_pairs(cluster, j))),
            "tres": ("TRES_ALLOC", lambda j: tres.joined(tres.job_pairs(cluster, j))),
            "eligibletime": ("ELIGIBLE_TIME", lambda j: clock(j.eligible)),
            "accruetime": ("ACCRUE_TIME", lambda j: clock(j.eligible)),
            "deadline": ("DEADLINE", lambda j: clock(j.deadline)),
            "numtasks": ("TASKS", lambda j: str(j.tasks_n)),
            "cpus-per-task": ("CPUS_PER_TASK", lambda j: str(j.cpus_per_task)),
            "restartcnt": ("RESTART_COUNT", lambda j: str(j.restarts)),
            "reqnodes": ("REQ_NODES", lambda j: host_list(j.want_nodes)),
            "exit_code": ("EXIT_CODE", lambda j: str(j.exit)),
            "stdout": ("STDOUT", lambda j: j.stdout),
            "stderr": ("STDERR", lambda j: j.stderr),
            "cluster": ("CLUSTER", lambda _: cluster.name),
            "requeue": ("REQUEUE", lambda j: str(int(j.requeue))),
        }

    def state(self, job: Job) -> str:
        """Return the state; an ended job whose processes still go shows COMPLETING."""
        return "COMPLETING" if job.completing else job.state

    def partition(self, job: Job) -> str:
        """Return the partition it runs in, or all it may run in."""
        return ",".join(job.partitions) if job.state == "PENDING" and job.partitions else job.partition

    def reason(self, job: Job) -> str:
        """Return why it waits or ended, a sentence where Slurm has one."""
        return job.words or job.reason

    def nodes_or_reason(self, job: Job) -> str:
        """Return its nodes, or the reason in brackets."""
        if job.state == "PENDING" or (job.state in ENDED_WITH_REASON and not job.completing):
            return f"({self.reason(job)})"
        return host_list(list(job.alloc))

    def array_task(self, job: Job) -> str:
        """Return the task's index, or the indexes that still wait."""
        if not job.array:
            return "N/A"
        if job.task >= 0:
            return str(job.task)
        return ranges(job.tasks) + (f"%{job.throttle}" if job.throttle else "")

    def limit(self, job: Job) -> str:
        """Return the time limit."""
        return span(job.limit) if job.limit else "UNLIMITED"

    def used(self, job: Job) -> str:
        """Return the time used."""
        return span(self.seconds(job))

    def seconds(self, job: Job) -> int:
        """Return seconds since start, or from start to end."""
        if not job.start or job.state == "PENDING":
            return 0
        return (job.end or self.now) - job.start

    def left(self, job: Job) -> str:
        """Return what is left of the limit."""
        if not job.limit:
            return "UNLIMITED"
        rest = job.limit - self.seconds(job)
        return span(rest) if rest >= 0 else "INVALID"

    def start(self, job: Job) -> str:
        """Return the start, actual or expected."""
        return clock(job.start if job.state != "PENDING" else job.expected)

    def end(self, job: Job) -> str:
        """Return the end: actual, or by the limit."""
        if job.state == "PENDING":
            return clock(job.expected + job.limit if job.expected and job.limit else 0)
        return clock(job.end or (job.start + job.limit if job.limit else 0))

    def dependency(self, job: Job) -> str:
        """Return what it waits for."""
        if not job.dependency:
            return "(null)"
        fate = "failed" if job.reason == NEVER else "unfulfilled"
        return ",".join(f"{part}({fate})" for part in job.dependency.split(","))


def run(call: Call) -> int:
    """Print the queue."""
    given = options("squeue", call.argv, LONGS, SHORTS)
    if given.has("version"):
        call.say(f"slurm-wlm {call.store.read(call.now).version}")
        return 0
    if given.rest and given.has("jobs") and not given.get("jobs"):
        given.values["jobs"] = given.rest.pop(0)  # `-j 12`: getopt leaves an optional argument behind
    if given.rest:
        raise Refused(f"squeue: error: Unrecognized option: {given.rest[0]}\nUsage: squeue [OPTIONS]")
    cluster = call.store.read(call.now)
    queue = Queue(cluster, int(call.now))
    jobs = chosen(cluster, given, call.user)
    if given.has("array"):
        jobs = [single for job in jobs for single in each_task(job)]
    if given.has("start"):
        jobs = [job for job in jobs if job.state == "PENDING"]
    jobs = ordered(jobs, given.get("sort") or ("S" if given.has("start") else "P,t,-p"), queue)
    try:
        if given.has("Format"):
            columns, values = long_columns(given.get("Format"), queue.long), queue.long
        else:
            usual = START if given.has("start") else LONG if given.has("long") else DEFAULT
            columns, values = short_columns(given.get("format", usual), queue.short), queue.short
    except BadFormat as bad:
        kind = (
            "Invalid job format specification"
            if given.has("Format")
            else "Unrecognized job format specification"
        )
        raise Refused(f"squeue: error: {kind}: {bad}") from None
    if given.has("long") and not given.has("noheader"):
        from time import localtime, strftime  # noqa: PLC0415 - one rare path

        call.say(strftime("%a %b %d %H:%M:%S %Y", localtime(call.now)))
    for line in table(columns, jobs, values, header=not given.has("noheader")):
        call.say(line)
    return 0


def may_see(cluster: Cluster, job: Job, me: str) -> bool:
    """Return whether a user is shown a job: with PrivateData=jobs only their own (slurm.conf(5))."""
    is_private = "jobs" in cluster.config.get("PrivateData", "").split(",")
    return not is_private or me in {"root", job.user}


def chosen(cluster: Cluster, given: Options, me: str) -> list[Job]:
    """Return the jobs that the filters leave.

    Raises:
        Refused: a single unknown job id, an unknown user, partition or state.
    """
    jobs = [job for job in current(cluster.jobs) if may_see(cluster, job, me)]
    if given.get("jobs"):
        jobs = by_ids(jobs, given.names("jobs"))
    wanted = states(given)
    users = set(given.names("user") or given.names("users")) | ({me} if given.has("me") else set())
    unknown = [user for user in users if user not in cluster.users]
    if unknown:
        raise Refused(f"squeue: error: Invalid user: {unknown[0]}")
    partitions, names = set(given.names("partition")), set(given.names("name"))
    accounts, qos = set(given.names("account")), set(given.names("qos"))
    hidden = {
        p.name for p in cluster.partitions.values() if p.hidden and not given.has("all") and me != "root"
    }
    return [
        job
        for job in jobs
        if ("COMPLETING" if job.completing else job.state) in wanted
        and (not users or job.user in users)
        and (not partitions or not partitions.isdisjoint({job.partition, *job.partitions}))
        and (not names or job.name in names)
        and (not accounts or job.account in accounts)
        and (not qos or job.qos in qos)
        and job.partition not in hidden
    ]


def current(jobs: list[Job]) -> list[Job]:
    """Return the jobs without the former runs of requeued ones: those are rows of accounting only."""
    newest: dict[tuple[int, int, int], int] = {}
    for job in jobs:
        key = (job.id, job.task, job.array)
        newest[key] = max(job.restarts, newest.get(key, 0))
    return [job for job in jobs if job.restarts == newest[(job.id, job.task, job.array)]]


def by_ids(jobs: list[Job], ids: list[str]) -> list[Job]:
    """Return the jobs of these ids; arrays by their id, tasks as `4_6`."""
    found = [job for job in jobs if matches(job, ids)]
    if not found and len(ids) == 1:
        raise Refused("slurm_load_jobs error: Invalid job id specified")
    return found


def matches(job: Job, ids: list[str]) -> bool:
    """Return whether a job is meant by one of the ids."""
    return (
        str(job.id) in ids
        or (job.array and str(job.array) in ids)
        or job.shown_id in ids
        or (bool(job.tasks) and any(f"{job.array}_{task}" in ids for task in job.tasks))
    )


def states(given: Options) -> set[str]:
    """Return the wanted states; without `-t`, all that are not over."""
    text = given.get("states")
    if text.lower() == "all":
        return set(STATE_ORDER)
    if not text:
        return {"PENDING", "RUNNING", "COMPLETING", "SUSPENDED"}
    by_short = {short: name for name, short in SHORT.items()}
    wanted = set()
    for word in text.upper().split(","):
        name = by_short.get(word, word)
        if name not in SHORT:
            raise Refused(f"squeue: error: Invalid job state specified: {word}")
        wanted.add(name)
    return wanted


def each_task(job: Job) -> list[Job]:
    """Return one job per waiting array task (`-r`)."""
    if not job.tasks:
        return [job]
    return [Job(**{**job.packed(), "task": task, "tasks": []}) for task in job.tasks]


def ordered(jobs: list[Job], keys: str, queue: Queue) -> list[Job]:
    """Return the jobs sorted by `-S` keys, ids breaking ties."""
    jobs = sorted(jobs, key=lambda job: (job.id, job.task))
    for word in reversed(keys.split(",")):
        code = word.lstrip("+-")
        if code not in queue.short:
            raise Refused(f"squeue: error: Invalid sort specification: {keys}")
        jobs.sort(key=lambda job, c=code: sort_value(job, c, queue), reverse=word.startswith("-"))  # type: ignore[misc]
    return jobs


def sort_value(job: Job, code: str, queue: Queue) -> tuple[int, str]:
    """Return the value a job is sorted by."""
    numbers = {
        "t": lambda: STATE_ORDER.index(queue.state(job)),
        "p": lambda: priority(queue.cluster, job, queue.now),
        "Q": lambda: priority(queue.cluster, job, queue.now),
        "i": lambda: job.id,
        "S": lambda: (job.start if job.state != "PENDING" else job.expected) or 2**40,
        "V": lambda: job.submit,
        "M": lambda: queue.seconds(job),
        "l": lambda: job.limit,
        "D": lambda: job.nodes,
        "C": lambda: job.cpus,
    }
    if code in numbers:
        return numbers[code](), ""
    return 0, queue.short[code][1](job)
