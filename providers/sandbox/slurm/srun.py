"""srun inside a job: start the command once per task, side by side, on this machine.

Enough for scripts that say `srun ./program`; bindings and node placement mean nothing here.
Source: srun(1).
"""

from __future__ import annotations

import os
import sys

from providers.sandbox.slurm.call import MAY, NEEDS, NONE, Refused, options

LONGS = {
    "ntasks": NEEDS, "nodes": NEEDS, "cpus-per-task": NEEDS, "gpus": NEEDS, "gpus-per-task": NEEDS,
    "gpus-per-node": NEEDS, "gres": NEEDS, "mem": NEEDS, "mem-per-cpu": NEEDS, "mpi": NEEDS, "exclusive":
    MAY, "exact": NONE, "overlap": NONE, "label": NONE, "unbuffered": NONE, "job-name": NEEDS,
    "ntasks-per-node": NEEDS, "cpu-bind": NEEDS, "gpu-bind": NEEDS, "distribution": NEEDS,
    "kill-on-bad-exit": MAY, "export": NEEDS, "time": NEEDS, "quiet": NONE, "verbose": NONE, "chdir":
    NEEDS, "wait": NEEDS,
}  # fmt: skip
SHORTS = {
    "n": "ntasks", "N": "nodes", "c": "cpus-per-task", "G": "gpus", "l": "label", "u": "unbuffered",
    "J": "job-name", "m": "distribution", "K": "kill-on-bad-exit", "t": "time", "Q": "quiet", "v": "verbose",
    "D": "chdir", "W": "wait",
}  # fmt: skip


def main(argv: list[str]) -> int:
    """Run the tasks; return the highest exit code (128 + signal for a killed task)."""
    if "SLURM_JOB_ID" not in os.environ:
        sys.stderr.write(
            "srun: error: Unable to allocate resources: this cluster runs steps inside jobs only\n"
        )
        return 1
    try:
        given = options("srun", argv, LONGS, SHORTS, stop_at_operand=True)
    except Refused as refused:
        sys.stderr.write(f"{refused.words}\n")
        return refused.code
    if not given.rest:
        sys.stderr.write("srun: fatal: No command given to execute.\n")
        return 1
    count = given.get("ntasks") or os.environ.get("SLURM_NTASKS", "1")
    children = [_start(given.rest, task, int(count)) for task in range(int(count))]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    for task, code in enumerate(codes):
        if code:
            node = os.environ.get("SLURMD_NODENAME", "node")
            sys.stderr.write(f"srun: error: {node}: task {task}: Exited with exit code {code}\n")
    return max(code if code >= 0 else 128 - code for code in codes)


def _start(command: list[str], task: int, count: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.environ |= {
        "SLURM_PROCID": str(task),
        "SLURM_LOCALID": str(task),
        "SLURM_NTASKS": str(count),
        "SLURM_STEP_ID": "0",
    }
    try:
        os.execvp(command[0], command)  # noqa: S606 - the user's own command, an argv list
    except OSError as error:
        sys.stderr.write(f"slurmstepd: error: execve(): {command[0]}: {error.strerror}\n")
    finally:
        os._exit(2)
