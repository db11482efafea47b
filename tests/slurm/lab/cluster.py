"""One running cluster as tests use it: clients as any user, faults, background load, and the way back."""

import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.slurm.lab import daemons
from tests.slurm.lab.layout import SiteLayout
from tests.slurm.lab.namespace import Namespace, until
from tests.slurm.lab.sites import USERS, Site

CLIENT_S = 20.0
RETURN_S = 60.0
FOREVER = "sleep 100000"


@dataclass(frozen=True, slots=True)
class Answer:
    """What one client program gave. `rc` is None when it did not end within its time."""

    argv: tuple[str, ...]
    rc: int | None
    stdout: str
    stderr: str
    seconds: float


class Refused(RuntimeError):
    """A client ended with an error where success was expected; `answer` has its words."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{' '.join(answer.argv)}: rc {answer.rc}: {answer.stderr}{answer.stdout}")
        self.answer = answer


_HOLDS_GPUS = re.compile(r"GresUsed=\S*gpu:(?:\w+:)?[1-9]|AllocTRES=\S*gres/gpu")


class Cluster:
    """One cluster of a running lab. Daemons: slurmctld, slurmdbd, munged, slurmd:NODE."""

    def __init__(self, site: Site, place: SiteLayout, space: Namespace, *, accounting: bool) -> None:
        self.site = site
        self.place = place
        self.accounting = accounting
        self._space = space
        self._frozen: set[str] = set()

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.site.name

    @property
    def jobs_dir(self) -> Path:
        """A directory every user may write to."""
        return self.place.jobs

    # --- clients -----------------------------------------------------------------------------

    def uid(self, user: str) -> int:
        """Return the user's uid, which is also the gid."""
        return 0 if user == "root" else USERS[user]

    def env(self, user: str) -> dict[str, str]:
        """Return the variables that let a program of `user` reach this cluster (not a whole environment)."""
        return self.place.env(user)

    def client(
        self,
        user: str,
        argv: Sequence[str],
        *,
        stdin: str | None = None,
        timeout: float = CLIENT_S,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Answer:
        """Run one program as `user` (default directory: `jobs_dir`); an error is an answer, not a fault."""
        started, uid, words = time.monotonic(), self.uid(user), tuple(argv)
        with subprocess.Popen(
            words,
            env=daemons.environment({**self.env(user), **(env or {})}),
            cwd=cwd or self.jobs_dir,
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            user=uid,
            group=uid,
            extra_groups=[],
        ) as process:
            rc: int | None
            try:
                out, err = process.communicate(stdin, timeout=timeout)
                rc = process.returncode
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                rc = None
        return Answer(words, rc, out, err, time.monotonic() - started)

    def ask(self, *argv: str, user: str = "root", stdin: str | None = None) -> str:
        """Run one program and return its standard output without the last line's end.

        Raises:
            Refused: it ended with an error.
        """
        answer = self.client(user, argv, stdin=stdin)
        if answer.rc != 0:
            raise Refused(answer)
        return answer.stdout.rstrip("\n")

    def submit(self, user: str, work: str, *options: str) -> str:
        """Submit `work` (shell words) as a batch job that writes `%j.out`, and return its id."""
        argv = ("sbatch", "--parsable", "-o", f"{self.jobs_dir}/%j.out", *options, "--wrap", work)
        return self.ask(*argv, user=user)

    def state(self, job_id: str) -> str:
        """Return the job's state as the controller has it, "" once it forgot the job."""
        answer = self.client("root", ("squeue", "-ah", "-t", "all", "-j", job_id, "-o", "%T"))
        return answer.stdout.strip().split("\n")[0] if answer.rc == 0 else ""

    def wait_state(self, job_id: str, *states: str, timeout: float = 20.0) -> str:
        """Wait until the job is in one of `states` and return it."""
        until(lambda: self.state(job_id) in states, f"{job_id} to be {states}", timeout_s=timeout, step_s=0.1)
        return self.state(job_id)

    # --- faults ------------------------------------------------------------------------------

    def kill(self, daemon: str) -> None:
        """Kill a daemon at once (SIGKILL) and return when it is gone."""
        self._space.signal(self._full(daemon), signal.SIGKILL, until_gone=True)
        self._frozen.discard(daemon)

    def freeze(self, daemon: str) -> None:
        """Stop a daemon where it stands: its port accepts connections, nothing answers."""
        self._space.signal(self._full(daemon), signal.SIGSTOP)
        self._frozen.add(daemon)

    def thaw(self, daemon: str) -> None:
        """Let a frozen daemon go on."""
        self._space.signal(self._full(daemon), signal.SIGCONT)
        self._frozen.discard(daemon)

    def restart(self, daemon: str) -> None:
        """Start a daemon again, killing it first where it runs; return when it answers."""
        if self._full(daemon) in self._space.alive():
            self.kill(daemon)
        self._space.spawn_again(self._full(daemon))
        until(lambda: self._answers(daemon), f"{daemon} of {self.name}", timeout_s=RETURN_S)

    def _full(self, daemon: str) -> str:
        return f"{self.name}:{daemon}"

    def _answers(self, daemon: str) -> bool:
        match daemon.split(":"):
            case ["munged"]:
                return daemons.is_munge_answering(self.place)
            case ["slurmdbd"]:
                return daemons.is_listening(self.place.database_daemon_port)
            case ["slurmctld"]:
                return " UP" in self.client("root", ("scontrol", "ping"), timeout=5).stdout
            case ["slurmd", node]:
                return node in self.idle_or_busy_nodes()
            case _:
                raise ValueError(f"no daemon {daemon!r}")

    def node_down(self, node: str, reason: str = "power supply failed") -> None:
        """Kill a node's daemon and declare the node dead; its jobs end with NODE_FAIL or are requeued."""
        self.kill(f"slurmd:{node}")  # else it registers again and is back in service at once
        self.ask("scontrol", "update", f"nodename={node}", "state=down", f"reason={reason}")

    def drain(self, node: str, reason: str = "scheduled repair") -> None:
        """Let a node finish its jobs and take no new one."""
        self.ask("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")

    def resume(self, node: str) -> None:
        """Return a down or drained node to service."""
        if self._full(f"slurmd:{node}") not in self._space.alive():
            self._space.spawn_again(self._full(f"slurmd:{node}"))
        self.ask("scontrol", "update", f"nodename={node}", "state=resume")

    # --- load, and the way back --------------------------------------------------------------

    def fill(
        self, partition: str, *, user: str, account: str, jobs: int, options: Sequence[str] = ()
    ) -> list[str]:
        """Submit `jobs` endless jobs of one hour's limit to a partition, and return their ids."""
        words = ("-p", partition, "-A", account, "-t", "60", *options)
        return [self.submit(user, FOREVER, *words) for _ in range(jobs)]

    def queue(self) -> list[str]:
        """Return the ids of all jobs, running or waiting, hidden partitions too; tasks of arrays apart."""
        return self.ask("squeue", "-ahr", "-o", "%A").split()

    def node_states(self) -> dict[str, str]:
        """Return node → compact state (`idle`, `mix`, `drain*` …)."""
        return dict(line.split() for line in self.ask("sinfo", "-ahN", "-o", "%N %t").splitlines())

    def idle_or_busy_nodes(self) -> set[str]:
        """Return the nodes in service: registered, not down, not drained."""
        return {node for node, state in self.node_states().items() if state in {"idle", "mix", "alloc"}}

    def wait_idle(self, *, timeout: float = RETURN_S) -> None:
        """Wait until no job is left and every node is idle."""
        until(self._is_idle, f"{self.name} to be idle", timeout_s=timeout, step_s=0.1)

    def _is_idle(self) -> bool:
        idle = {"idle~"} if self.site.is_cloud else {"idle"}
        return set(self.node_states().values()) == idle and not self.queue()

    def reset(self) -> None:
        """Return to all daemons answering, no job, no reservation, every node idle, every partition up."""
        for daemon in list(self._frozen):
            self.thaw(daemon)
        self._revive()
        for line in self.ask("scontrol", "-o", "show", "reservation").splitlines():
            if line.startswith("ReservationName="):
                name = line.split()[0].removeprefix("ReservationName=")
                self.ask("scontrol", "delete", f"reservationname={name}")
        jobs = self.queue()
        if jobs:  # one may end meanwhile, so a refusal says nothing
            self.client("root", ("scancel", "--full", *jobs), timeout=RETURN_S)
        for line in self.ask("sinfo", "-ah", "-o", "%R %a").splitlines():
            partition, state = line.split()
            if state != "up":
                self.ask("scontrol", "update", f"partitionname={partition}", "state=up")
        out = self.ask("sinfo", "-ahN", "-t", "down,drain,fail", "-o", "%N").split()
        if out:  # a node that came back by itself refuses, which is what we want of it
            self.client(
                "root", ("scontrol", "update", f"nodename={','.join(sorted(set(out)))}", "state=resume")
            )
        self.wait_idle()
        if self._forgotten_gpus():
            # A controller that was killed can keep a GPU counted as used on an idle node until it is started
            # once more (seen on 22.05).
            self.restart("slurmctld")
            self.wait_idle()
            until(
                lambda: not self._forgotten_gpus(),
                f"{self.name} to count its GPUs as free",
                timeout_s=RETURN_S,
            )

    def _forgotten_gpus(self) -> list[str]:
        """Return the nodes that count GPUs as used; of an idle cluster these are used by nobody."""
        shown = self.ask("scontrol", "-d", "-o", "show", "node").splitlines()
        return [line.split()[0] for line in shown if _HOLDS_GPUS.search(line)]

    def _revive(self) -> None:
        mine = {name for name in self._space.known() if name.startswith(f"{self.name}:")}
        dead = {name.removeprefix(f"{self.name}:") for name in mine - self._space.alive()}
        # munged first: the others authenticate through it; the controller needs its accounting to start.
        order = ("munged", "slurmdbd", "slurmctld")
        for daemon in (*[d for d in order if d in dead], *sorted(dead.difference(order))):
            self.restart(daemon)
