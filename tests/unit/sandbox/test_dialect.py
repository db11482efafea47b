"""Our own Slurm dialect reads the emulated clusters as it reads real ones."""

import json
import os
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from providers.dialects.slurm.dialect import SlurmDialect
from providers.links.local import LocalLink
from providers.sandbox.slurm.setup import ANVIL, DELTA, DELTAAI, VISTA, create, env
from providers.sandbox.slurm.spec import ClusterSpec
from providers.sandbox.slurm.store import Store
from providers.sandbox.slurm.text import hosts
from providers.types import JobRef, JobRequest, JobState
from tests.unit.sandbox.conftest import Site, eventually
from tests.unit.sandbox.test_scheduler import job


def link(directory: Path, user: str) -> LocalLink:
    return LocalLink(env=env(directory, user=user))


@pytest.mark.parametrize("spec", [DELTA, DELTAAI, ANVIL, VISTA], ids=lambda spec: spec.name)
def test_a_full_probe_reads_every_ready_cluster(tmp_path: Path, spec: ClusterSpec) -> None:
    directory = tmp_path / spec.name
    create(directory, spec, seed=5)
    dialect = SlurmDialect()

    seen = dialect.read_probe(link(directory, "alice").run(dialect.probe(full=True)), now=datetime.now(UTC))

    assert (seen.scheduler, seen.cluster, seen.user) == ("slurm 22.05.8", spec.name, "alice")
    assert seen.warnings == ()
    assert {node.name for node in seen.nodes if node.state == "down"} == set()
    assert {part.name for part in seen.partitions or ()} == {part.name for part in spec.partitions}
    assert {one.account for one in seen.associations or ()} == {
        account.lower() for account, users in spec.accounts.items() if "alice" in users
    }
    total = sum(pool.total for node in seen.nodes for pool in node.gpus)
    assert total == sum(count * len(hosts(group.hosts)) for group in spec.nodes for _, count in group.gpus)
    assert sum(job.state == JobState.RUNNING for job in seen.jobs) > 5


def test_the_crowds_have_the_published_shape(tmp_path: Path) -> None:
    """823 tasks pending at DeltaAI, at most a few H100 free at Anvil, gh-dev nearly empty at Vista."""
    dialect = SlurmDialect()
    seen = {}
    for spec in (DELTAAI, ANVIL, VISTA):
        directory = tmp_path / spec.name
        create(directory, spec, seed=5)
        probe = dialect.probe(full=True)
        seen[spec.name] = dialect.read_probe(link(directory, "alice").run(probe), now=datetime.now(UTC))

    waiting = sum(
        job.array_pending for job in seen["deltaai"].jobs if job.state in {JobState.QUEUED, JobState.HELD}
    )
    h100 = sum(pool.free for node in seen["anvil"].nodes for pool in node.gpus if pool.type == "h100")
    dev = sum(pool.free for node in seen["vista"].nodes if "gh-dev" in node.partitions for pool in node.gpus)
    assert 780 <= waiting <= 900
    assert 0 <= h100 <= 3
    assert 9 <= dev <= 12


def request(site: Site, key: str, **fields: object) -> JobRequest:
    usual: dict[str, object] = {
        "submit_key": key,
        "name": key,
        "partition": "gpu",
        "account": "work",
        "gpus": 1,
        "gpu_type": "a100",
        "walltime_s": 300,
        "workdir": str(site.work),
        "stdout_path": str(site.work / key / "out.txt"),
        "stderr_path": str(site.work / key / "err.txt"),
        "shell_command": "echo done",
    }
    return JobRequest.model_validate({**usual, **fields})


def test_a_job_is_submitted_observed_and_cancelled_through_the_dialect(site: Site) -> None:
    dialect, way = SlurmDialect(), link(site.directory, "alice")
    refs, began = [], datetime.now(UTC) - timedelta(minutes=1)
    for key, command in (("facet-good", "echo done"), ("facet-bad", "exit 3"), ("facet-long", "sleep 300")):
        result = dialect.read_submit(way.run(dialect.submit(request(site, key, shell_command=command))))
        assert result.outcome == "accepted", result.said
        refs.append(JobRef(submit_key=key, job_id=result.job_id, submitted_at=datetime.now(UTC)))

    def states() -> dict[str, JobState]:
        reply = way.run(dialect.observe(refs, since=began, now=began))
        seen = dialect.read_observe(reply, refs, now=datetime.now(UTC))
        return {key: one.state for key, one in seen.items() if one is not None}

    final = {"facet-good": JobState.COMPLETED, "facet-bad": JobState.FAILED, "facet-long": JobState.RUNNING}
    eventually(states, lambda now: now == final)
    assert (site.work / "facet-good" / "out.txt").read_text() == "done\n"

    assert dialect.read_cancel(way.run(dialect.cancel(refs[2:])), refs[2:]) == {"facet-long": ""}
    eventually(states, lambda now: now == final | {"facet-long": JobState.CANCELLED})


def _cpu_of_children_s() -> float:
    """Return what the programs called so far have computed: unlike wall time, the same on a busy machine."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_a_call_is_quick_with_a_thousand_jobs_waiting(site: Site) -> None:
    store, now = Store(str(site.directory)), int(time.time())
    with store.change(now) as cluster:
        for number in range(1000):
            cluster.add(
                job(id=cluster.take_id(), submit=now, eligible=now, limit=60 * (1 + number % 30), cpus=16)
            )
    store.close()
    site.ask("squeue", "-h")  # the first call schedules, the next ones only read

    took = []
    for _ in range(5):
        began = _cpu_of_children_s()
        rows = site.ask("squeue", "-h", "-o", "%i|%t|%r|%S").splitlines()
        took.append(_cpu_of_children_s() - began)
        assert len(rows) == 1000

    assert min(took) < 0.15


def test_the_programs_need_no_installed_package(site: Site) -> None:
    """They start with a bare interpreter, and load nothing that costs much."""
    command = Path(__file__).parents[3] / "providers" / "sandbox" / "slurm" / "command.py"
    code = (
        "import sys, runpy; sys.argv = ['command.py', 'sinfo', '-h']\n"
        f"try: runpy.run_path({str(command)!r}, run_name='__main__')\n"
        "except SystemExit: pass\n"
        "import json; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        env={**os.environ, **env(site.directory)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(json.loads(done.stderr))
    assert loaded.isdisjoint(
        {"pydantic", "django", "dataclasses", "argparse", "subprocess", "asyncio", "random"}
    )
