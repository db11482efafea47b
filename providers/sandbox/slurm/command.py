"""The one executable behind sinfo, squeue, sbatch and the others; run as a plain file, without site-packages.

    python -I -S command.py PROGRAM ARGUMENT…

FACET_SANDBOX names the cluster's directory, FACET_SANDBOX_USER the remote user to be.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from importlib import import_module

sys.path.insert(
    0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
)

from providers.sandbox.slurm import faults
from providers.sandbox.slurm.call import Call, Refused
from providers.sandbox.slurm.controller import tick_if_due
from providers.sandbox.slurm.store import Store

MODULES = {
    "sinfo": ("sinfo", "run"),
    "squeue": ("squeue", "run"),
    "sbatch": ("sbatch", "run"),
    "sacct": ("sacct", "run"),
    "scancel": ("scancel", "run"),
    "scontrol": ("scontrol", "run"),
    "sacctmgr": ("sacctmgr", "run"),
    "sprio": ("sacctmgr", "sprio"),
    "sshare": ("sshare", "run"),
}


def main(argv: list[str]) -> int:
    """Run one program and return its exit code."""
    program, *words = argv
    if program == "slurmstepd":
        from providers.sandbox.slurm.steps import main as step  # noqa: PLC0415 - another program

        return step(words[0], int(words[1]), int(words[2]))
    if program == "srun":
        from providers.sandbox.slurm.srun import main as srun  # noqa: PLC0415 - another program

        return srun(words)
    directory = os.environ.get("FACET_SANDBOX", "")
    try:
        store = Store(directory)
    except FileNotFoundError as missing:
        sys.stderr.write(
            f"{program}: error: resolve_ctls_from_dns_srv: {missing}\n{program}: fatal: no cluster\n"
        )
        return 1
    user = os.environ.get("FACET_SANDBOX_USER") or str(store.meta("default_user", "root"))
    call = Call(
        program,
        words,
        store=store,
        now=time.time(),
        user=user,
        env=os.environ,
        cwd=os.getcwd(),
        stdin=_stdin,
    )
    out, err, code = perform(call)
    sys.stdout.write(out)
    sys.stdout.flush()
    sys.stderr.write(err)
    store.close()
    return code


def perform(call: Call) -> tuple[str, str, int]:
    """Return what the program prints on both streams, and its exit code, faults included."""
    on = faults.active(call.store.directory)
    try:
        faults.before(call, on)
        if call.program in {"squeue", "sinfo", "sacct", "scontrol", "sprio"}:
            tick_if_due(call.store, call.now)
        module, name = MODULES[call.program]
        run: Callable[[Call], int] = getattr(import_module(f"providers.sandbox.slurm.{module}"), name)
        code = run(call)
        return faults.after(call, _lines(call.out), on), _lines(call.err), code
    except Refused as refused:
        return (
            _lines(call.out),
            _lines([*call.err, *([refused.words] if refused.words else [])]),
            refused.code,
        )


def _lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _stdin() -> str:
    return sys.stdin.buffer.read().decode("utf-8", errors="surrogateescape")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
