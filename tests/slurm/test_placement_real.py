"""Placement over four real clusters under load: the emptiest legal one wins, and really starts first."""

from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from federation.models import System
from federation.selectors import probe_of, records_for
from orchestrator.lifecycle import TaskState
from orchestrator.models import Task
from orchestrator.placement.types import Candidate, Decision
from orchestrator.services import tasks
from tests.slurm.federation import Federation, snapshot, submit
from tests.slurm.lab.cluster import Cluster
from tests.slurm.lab.laboratory import Lab
from tests.stepping import all_step_until, step

FOUR_GPUS = ("--gres=gpu:4", "-n", "4")


@dataclass(frozen=True, slots=True)
class Busy:
    """Four clusters of which three are full."""

    federation: Federation
    systems: dict[str, System]

    def look(self) -> None:
        """Refresh all of them."""
        self.federation.look(*self.systems.values())


@pytest.fixture
def busy(
    federation: Federation,
    researcher: User,
    delta: Cluster,
    deltaai: Cluster,
    anvil: Cluster,
    vista: Cluster,
) -> Busy:
    """Delta, DeltaAI and Anvil full for an hour as far as Alice may use them, Vista empty."""
    for partition in ("gpuA100x4", "gpuA40x4"):
        delta.fill(partition, user="bob", account="bbka-delta-gpu", jobs=8, options=FOUR_GPUS)
    deltaai.fill("ghx4", user="bob", account="bbka-dtai-gh", jobs=12, options=("--gpus-per-node=4", "-c4"))
    for user, jobs in (("svcgw", 3), ("alice", 1)):  # twelve GPUs each is the most
        anvil.fill("gpu", user=user, account="cis220051-gpu", jobs=jobs, options=FOUR_GPUS)
    for cluster in (delta, deltaai, anvil):
        cluster.wait_state(cluster.queue()[-1], "RUNNING")
    systems = {
        "delta": federation.add(delta, researcher),
        "deltaai": federation.add(deltaai, researcher),
        "anvil": federation.add(anvil, researcher, "cis220051-gpu"),
        "vista": federation.add(vista, researcher),
    }
    return Busy(federation, systems)


def _decision(user: User, **envelope: Any) -> Decision:
    wanted = {"gpus": 1, "walltime_s": 1800, **envelope}
    return tasks.preview(user, wanted, now=timezone.now())[0]


def _winner(decision: Decision) -> str | None:
    chosen = decision.selected
    return f"{chosen.system}/{chosen.partition}" if chosen else None


def _codes(decision: Decision, place: str) -> set[str]:
    [found] = [each for each in decision.candidates if f"{each.system}/{each.partition}" == place]
    return {rejection.code for rejection in found.rejections}


def _is_explained(candidate: Candidate) -> bool:
    """Whether a candidate has reasons against it, or estimates that rank it; never neither."""
    if candidate.feasible:
        return candidate.estimates is not None and candidate.rank is not None and not candidate.rejections
    return bool(candidate.rejections) and all(each.remedy for each in candidate.rejections)


def test_the_emptiest_legal_system_wins_and_really_starts_first(busy: Busy, researcher: User) -> None:
    free = submit(researcher, "exec sleep 600", name="free", envelope={"gpus": 1, "walltime_s": 1800})
    pinned = [
        submit(
            researcher,
            "exec sleep 600",
            name=slug,
            envelope={"gpus": 1, "walltime_s": 1800, "policy": {"allow_systems": [slug]}},
        )
        for slug in ("delta", "deltaai", "anvil")
    ]
    body = Decision.model_validate(free.decisions.get().body)

    assert _winner(body) == "vista/gh"
    assert {each.system for each in body.candidates} == {"delta", "deltaai", "anvil", "vista"}
    assert all(_is_explained(each) for each in body.candidates)
    waits = {f"{c.system}/{c.partition}": c.estimates.wait_s.p50 for c in body.candidates if c.estimates}
    full = {"delta/gpuA100x4", "delta/gpuA40x4", "deltaai/ghx4", "anvil/gpu"}
    assert set(waits) == full | {"vista/gh"}
    assert waits["vista/gh"] < 60
    assert min(waits[place] for place in full) > 600
    all_step_until([free], TaskState.RUNNING)
    all_step_until(pinned, TaskState.PENDING)
    for _ in range(3):
        step()
    assert [_state(task) for task in (free, *pinned)] == ["running", "pending", "pending", "pending"]


def _state(task: Task) -> str:
    task.refresh_from_db()
    return str(task.state)


def test_constraints_and_maintenance_decide_among_the_legal_ones(
    busy: Busy, researcher: User, delta: Cluster, deltaai: Cluster, vista: Cluster
) -> None:
    x86 = _decision(researcher, architecture=["x86_64"])
    a100 = _decision(researcher, accelerator={"types": ["a100"]})
    assert _codes(x86, "vista/gh") == {"architecture_mismatch"}
    assert _codes(a100, "vista/gh") == _codes(a100, "deltaai/ghx4") == {"accelerator_type"}
    assert _codes(a100, "delta/gpuA40x4") == {"accelerator_type"}

    for cluster, partition in ((delta, "gpuA40x4"), (deltaai, "ghx4")):
        gone = cluster.ask("squeue", "-h", "-p", partition, "-o", "%A").split()[0]
        cluster.ask("scancel", gone)
        cluster.wait_state(gone, "CANCELLED")
    words = ("flags=maint,ignore_jobs", "starttime=now+15minutes", "duration=120", "users=root")
    vista.ask("scontrol", "create", "reservation", "reservationname=repair", "nodes=ALL", *words)
    busy.look()

    assert _winner(_decision(researcher, architecture=["x86_64"])) == "delta/gpuA40x4"
    short, long = _decision(researcher, walltime_s=600), _decision(researcher, walltime_s=1800)
    assert _codes(long, "vista/gh") == {"maintenance_window"}
    assert _codes(short, "vista/gh") == set()
    aarch64 = {"gpus": 1, "architecture": ["aarch64"], "policy": {"prefer": ["vista"]}}
    before = submit(researcher, "exec sleep 600", name="before", envelope=aarch64 | {"walltime_s": 600})
    during = submit(researcher, "exec sleep 600", name="during", envelope=aarch64 | {"walltime_s": 1800})
    all_step_until([before, during], TaskState.RUNNING)
    assert [task.attempts.get().system.slug for task in (before, during)] == ["vista", "deltaai"]
    late = vista.submit("bob", "true", "-A", "ASC24001", "-p", "gh", "-t", "30")
    assert vista.state(late) == "PENDING"  # Slurm, too, will not start it before the window


def test_the_view_of_busy_clusters_is_what_sinfo_and_squeue_say(
    busy: Busy, researcher: User, lab: Lab, delta: Cluster
) -> None:
    delta.drain("gpua003")
    delta.drain("cn001")
    delta.node_down("gpub002")
    busy.look()

    for slug, system in busy.systems.items():
        system.refresh_from_db()
        _is_what_the_site_says(lab[slug], system)


def _is_what_the_site_says(cluster: Cluster, system: System) -> None:
    probe = probe_of(snapshot(system).pk)
    assert probe is not None
    columns = "NodeList:|,StateCompact:|,CPUsState:|,Gres:|,GresUsed:|"
    said: dict[str, tuple[str, int, int, int]] = {}
    for line in cluster.ask("sinfo", "-ahN", "-O", columns).splitlines():
        name, state, cpus, gres, used, *_ = (word.strip() for word in line.split("|"))
        said[name] = (state, int(cpus.split("/")[1]), _gpus(gres), _gpus(used))

    assert {node.name for node in probe.nodes} == set(said)
    for node in probe.nodes:
        state, idle_cpus, gpus, in_use = said[node.name]
        can_start = state in {"idle", "mix", "alloc"}
        assert node.usable == can_start
        assert node.cpus_free == (idle_cpus if can_start else 0)
        assert sum(pool.total for pool in node.gpus) == gpus
        assert sum(pool.free for pool in node.gpus) == (gpus - in_use if can_start else 0)
    states = cluster.ask("squeue", "-ahr", "-o", "%T").split()
    counts = snapshot(system).counts
    assert (counts["running"], counts["pending"]) == (states.count("RUNNING"), states.count("PENDING"))


def _gpus(gres: str) -> int:
    """Return the GPUs in sinfo's words, such as `gpu:a100:3(IDX:0-2)` or `gpu:(null):4(IDX:0-3)`."""
    if gres == "(null)":
        return 0
    found = 0
    for word in gres.replace("(null)", "").split(",gpu"):
        found += int(word.split("(")[0].split(":")[-1])
    return found


def test_drained_nodes_are_not_counted_and_eight_submits_in_a_row_share_the_free_gpus(
    federation: Federation, researcher: User, delta: Cluster, vista: Cluster
) -> None:
    only_a100 = {"gpuA100x4": {"accounts": ["*-gpu"]}}
    systems = [federation.add(delta, researcher, partitions=only_a100), federation.add(vista, researcher)]
    sixteen = {"gpus": 16, "nodes": 4, "accelerator": {"types": ["a100"]}}
    assert _winner(_decision(researcher, **sixteen)) == "delta/gpuA100x4"
    assert _free_gpus(researcher) == {"delta/gpuA100x4": 32, "vista/gh": 12, "vista/gg": 0}

    for number in range(2, 9):
        delta.drain(f"gpua00{number}")
    vista.ask("scontrol", "update", "nodename=c608-[005-012]", "state=drain", "reason=cooling")
    federation.look(*systems)

    assert _free_gpus(researcher) == {"delta/gpuA100x4": 4, "vista/gh": 4, "vista/gg": 0}
    closed = _decision(researcher, **sixteen)
    assert _winner(closed) is None
    assert "nodes" in _codes(closed, "delta/gpuA100x4") | _codes(closed, "vista/gh")
    group = [
        submit(researcher, "exec sleep 600", name=f"child {n}", envelope={"gpus": 1, "walltime_s": 900})
        for n in range(8)
    ]
    all_step_until(group, TaskState.RUNNING)
    where = sorted(task.attempts.get().system.slug for task in group)
    assert where == ["delta"] * 4 + ["vista"] * 4
    assert {node for task in group for node in task.attempts.get().node_names} == {
        *("gpua001", "c608-001", "c608-002", "c608-003", "c608-004"),
    }
    federation.look(*systems)
    assert _free_gpus(researcher) == {"delta/gpuA100x4": 0, "vista/gh": 0, "vista/gg": 0}


def _free_gpus(user: User) -> dict[str, int]:
    return {
        f"{record.system}/{record.partition}": sum(node.gpus_free for node in record.nodes)
        for record in records_for(user, now=timezone.now())
    }
