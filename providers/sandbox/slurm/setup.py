"""Make an emulated cluster in a directory, and say which environment addresses it.

create(directory, DELTA, seed=7)
subprocess.run(["sinfo"], env=env(directory, user="alice"))
"""

import os
import random
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from providers.sandbox.slurm.engine import schedule
from providers.sandbox.slurm.load import Profile, fill
from providers.sandbox.slurm.model import Cluster
from providers.sandbox.slurm.spec import ANVIL, DELTA, DELTAAI, VISTA, ClusterSpec, build
from providers.sandbox.slurm.store import Store

__all__ = ["ANVIL", "DELTA", "DELTAAI", "PROGRAMS", "VISTA", "ClusterSpec", "create", "env", "install"]

PROGRAMS = (
    "sinfo",
    "squeue",
    "sbatch",
    "sacct",
    "scancel",
    "scontrol",
    "sacctmgr",
    "sprio",
    "sshare",
    "srun",
)
_WHO = """#!/bin/sh
# The remote user is a part played by the local one.
if [ "$*" = "-un" ] && [ -n "$FACET_SANDBOX_USER" ]; then
    echo "$FACET_SANDBOX_USER"
else
    PATH=/usr/bin:/bin exec id "$@"
fi
"""


def create(directory: Path | str, spec: ClusterSpec, *, seed: int) -> None:
    """Make the cluster of a spec, already busy as its load says.

    An existing cluster is left as it is (jobs, history and faults included); its programs are
    installed anew, because the interpreter may have moved.
    """
    place = Path(directory).absolute()
    place.mkdir(parents=True, exist_ok=True)
    for name in ("spool", "faults"):
        (place / name).mkdir(exist_ok=True)
    install(place)
    if (place / "state.db").exists():
        return
    now = int(time.time())
    cluster = build(spec, now)
    populate(cluster, spec, seed=seed, now=now)
    store = Store.create(str(place), cluster)
    store.put_meta("seed", seed)
    store.put_meta("load", [dict(row) for row in spec.load])
    store.put_meta("kill_wait", spec.kill_wait_s)
    store.put_meta("default_user", next((user for user in spec.users if user != "root"), "root"))
    store.close()


def populate(cluster: Cluster, spec: ClusterSpec, *, seed: int, now: int) -> None:
    """Fill a new cluster as if its load had run for hours: jobs are spread over their run times."""
    dice = random.Random(seed)  # noqa: S311 - a repeatable crowd, not a secret
    for queue in (False, True):  # first those that run, then those that wait behind them
        for row in spec.load:
            fill(cluster, Profile(row), now, dice, most=400, queue=queue)
        for key, job in enumerate(cluster.jobs, start=1):
            job.key = key
        schedule(cluster, now)
    for job in cluster.jobs:
        waited = dice.randrange(30, 7200)
        if job.state == "RUNNING":
            job.start -= int(dice.random() * 0.95 * min(job.runtime, job.limit or job.runtime))
            job.submit = job.eligible = job.start - waited
        else:
            job.submit = job.eligible = now - waited
    for job in cluster.jobs:
        job.key = 0
    cluster.created, cluster.changed = [], {}


def install(directory: Path | str) -> None:
    """Write the programs of `PROGRAMS`, and an `id` that knows the remote user, into `directory`/bin."""
    place = Path(directory).absolute() / "bin"
    place.mkdir(parents=True, exist_ok=True)
    command = Path(__file__).with_name("command.py")
    for program in PROGRAMS:
        words = " ".join(shlex.quote(word) for word in (sys.executable, "-I", "-S", str(command), program))
        path = place / program
        path.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        path.chmod(0o755)
    (place / "id").write_text(_WHO, encoding="utf-8")
    (place / "id").chmod(0o755)


def env(
    directory: Path | str, *, user: str | None = None, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the variables under which `sbatch` and the others speak for this cluster.

    Args:
        directory: where `create` made it.
        user: the remote user to be; None is the spec's first ordinary user.
        base: the environment whose PATH is prefixed; None is this process's own.
    """
    place = Path(directory).absolute()
    path = (os.environ if base is None else base).get("PATH", os.defpath)
    if user is None:
        store = Store(str(place))
        user = str(store.meta("default_user"))
        store.close()
    return {
        "FACET_SANDBOX": str(place),
        "FACET_SANDBOX_USER": user,
        "PATH": f"{place / 'bin'}{os.pathsep}{path}",
    }
