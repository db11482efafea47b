"""Rounds on real clusters: every copy goes out, accounting tells its start, every policy is judged."""

from concurrent.futures import ThreadPoolExecutor

from benchmarks.outcomes import HEADER
from benchmarks.real_rounds import Campaign
from benchmarks.stations import PARTITIONS, Station
from tests.slurm.lab.laboratory import Lab
from tests.slurm.lab.namespace import until

HORIZON_S = 60


def test_a_round_on_idle_clusters_starts_a_copy_at_every_feasible_place(lab: Lab) -> None:
    campaign = Campaign([Station(lab[name]) for name in PARTITIONS], seed=1, horizon_s=HORIZON_S)
    try:
        with ThreadPoolExecutor(4) as pool:
            held = campaign.play(pool)
        until(campaign.settle, "every copy to start", timeout_s=HORIZON_S, step_s=1.0)
    finally:
        lab.reset()

    places = {place for place, _ in held.waits}
    assert held.kind == "cpu"
    assert places == {(system, name) for system, names in PARTITIONS.items() for name in names}
    assert set(held.waits) == set(held.jobs)
    assert max(held.waits.values()) < HORIZON_S
    assert held.taught == {policy.name for policy in campaign.policies}
    lines = campaign.table()
    assert lines[0] == f"1 rounds, {len(held.waits)} jobs, 0 not started within 60 s"
    assert lines[2] == HEADER
    assert len(lines) == 3 + len(campaign.policies) + 2
