"""Real clusters for tests: one lab for the session, every cluster idle again after each test that used it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.emulated import EmulatedSite
from tests.slurm.federation import colleague, federation, researcher
from tests.slurm.lab.cluster import Cluster
from tests.slurm.lab.laboratory import Lab
from tests.slurm.lab.layout import lacking
from tests.slurm.lab.sites import DELTA
from tests.slurm.sites import RealSite, Site, Speaker

__all__ = ["colleague", "federation", "researcher"]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder that needs real daemons."""
    for item in items:
        is_emulated = isinstance(item, pytest.Function) and "[emulated" in item.name
        if HERE in item.path.parents and not is_emulated:
            item.add_marker(pytest.mark.slurm)


@pytest.fixture(scope="session")
def slurm_packages() -> None:
    """Skip where real Slurm cannot run; under CI that is a failure, since CI installs it."""
    if gaps := lacking():
        said = "real Slurm needs: " + ", ".join(gaps)
        if os.environ.get("CI"):
            pytest.fail(said, pytrace=False)
        pytest.skip(said)


@pytest.fixture(scope="session")
def lab(slurm_packages: None) -> Iterator[Lab]:
    """The four clusters, running."""
    running = Lab.start()
    yield running
    running.stop()


def _borrow(cluster: Cluster) -> Iterator[Cluster]:
    yield cluster
    cluster.reset()


@pytest.fixture
def delta(lab: Lab) -> Iterator[Cluster]:
    """A100, A40, mixed and CPU nodes; a preemptable and a hidden partition."""
    yield from _borrow(lab["delta"])


@pytest.fixture
def deltaai(lab: Lab) -> Iterator[Cluster]:
    """Twelve nodes of four GH200 each."""
    yield from _borrow(lab["deltaai"])


@pytest.fixture
def anvil(lab: Lab) -> Iterator[Cluster]:
    """Untyped GPUs, H100 and CPU nodes; partitions held by account and QoS."""
    yield from _borrow(lab["anvil"])


@pytest.fixture
def vista(lab: Lab) -> Iterator[Cluster]:
    """Whole-node partitions, one GH200 per node."""
    yield from _borrow(lab["vista"])


@pytest.fixture(params=["real", "emulated"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A Slurm site with the shape of `delta`."""
    if request.param == "real":
        yield RealSite(request.getfixturevalue("delta"))
    else:
        emulated = EmulatedSite(tmp_path, DELTA)
        yield emulated
        emulated.close()


@pytest.fixture
def alice(site: Site) -> Speaker:
    """A researcher with GPU and CPU accounts."""
    return Speaker(site)


@pytest.fixture
def bob(site: Site) -> Speaker:
    """Another one."""
    return Speaker(site, user="bob")
