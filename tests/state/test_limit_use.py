"""From a site's accounting to the plan: jobs that end early shorten the learned plan, each told once."""

import os
import subprocess
import zlib

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from federation import collector
from federation.models import LimitUseRow, System
from federation.selectors import prepared, records_for, systems, systems_shown, use_of_limits
from orchestrator.experience import placement_model
from providers.sandbox.slurm.setup import env
from providers.types import Probe
from tests.slurm.lab.namespace import until
from tests.state.conftest import Sites

pytestmark = pytest.mark.django_db(transaction=True)


def _runs(sites: Sites, user: str, *, jobs: int = 1) -> None:
    """Let somebody run jobs of a second or two under a limit of a minute, to their ends."""
    own = {**os.environ, **env(sites.root / "delta", user=user)}
    argv = ["sbatch", "-p", "cpu", "-A", "bbka-delta-cpu", "-t", "1", "-o", "/dev/null", "--wrap=sleep 1.2"]
    for _ in range(jobs):
        subprocess.run(argv, env=own, check=True, timeout=60, capture_output=True)
    until(lambda: not sites.squeue("delta", "-u", user).strip(), "all have ended", timeout_s=60)


def _look(system: System, *, full: bool = True) -> None:
    collector.refresh(system.pk, now=timezone.now(), force_full=full)


def test_finished_jobs_of_others_are_told_once_and_reach_the_next_decision(sites: Sites, alice: User) -> None:
    delta = sites.add("delta", alice, account="bbka-delta-cpu")
    assert not use_of_limits()
    _runs(sites, "carol", jobs=3)

    _look(delta)
    _look(delta)

    row = LimitUseRow.objects.get()
    assert row.unknown == ""
    told = dict(row.shares["by_user"])
    assert set(told) == {"carol"}
    assert len(told["carol"]) == 3
    assert all(0 < share <= 0.5 for share in told["carol"])
    use = placement_model(alice, kind="", now=timezone.now()).limit_use
    assert use is use_of_limits()
    assert use.expected("delta", "cpu", "carol", 0.0) == sum(told["carol"]) / 3
    assert use.expected("delta", "cpu", "eve", 0.0) == sum(told["carol"]) / 3
    assert use.expected("delta", "gpuA100x4", "eve", 0.0) == 0.5


def test_only_the_full_probe_asks_and_no_snapshot_keeps_the_names(sites: Sites, alice: User) -> None:
    delta = sites.add("delta", alice, account="bbka-delta-cpu")
    _runs(sites, "carol")

    _look(delta, full=False)
    assert LimitUseRow.objects.get().until is None
    _look(delta)

    assert LimitUseRow.objects.get().until is not None
    newest = System.objects.get().snapshot
    assert newest is not None
    assert newest.is_full
    body = zlib.decompress(bytes(newest.body or b""))
    assert Probe.model_validate_json(body).finished is None
    assert b"carol" not in body


def test_an_accounting_that_is_down_keeps_what_was_told_and_says_so(sites: Sites, alice: User) -> None:
    delta = sites.add("delta", alice, account="bbka-delta-cpu")
    _runs(sites, "carol")
    _look(delta)
    known = LimitUseRow.objects.get()

    sites.fault("delta", "database_dead")
    _look(delta)

    row = LimitUseRow.objects.get()
    assert (row.shares, row.until) == (known.shares, known.until)
    assert row.unknown.startswith("accounting tells no finished jobs: ")
    (shown,) = systems_shown(alice, now=timezone.now())
    assert shown.limit_use_unknown == row.unknown


def test_a_queue_that_is_hidden_stays_hidden_between_full_probes(sites: Sites, alice: User) -> None:
    delta = sites.add("delta", alice, account="bbka-delta-cpu", PrivateData="jobs")
    _look(delta, full=False)

    (system,) = systems()
    (shown,) = systems_shown(alice, now=timezone.now())

    assert system.snapshot is not None
    assert not system.snapshot.is_full
    assert not any(each.queue.is_visible for each in prepared(system).partitions)
    assert not any(each.queue.is_visible for each in records_for(alice, now=timezone.now()))
    assert (shown.queue.pending, shown.limit_use_unknown) == (None, None)
