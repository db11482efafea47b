"""Two real clusters through the Globus link: the product's dialect over the wire, each user as themselves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.contracts import Link
from providers.sandbox.globus.server import StandIn, serving
from providers.sandbox.globus.spec import Endpoint, Person, identity
from providers.types import JobState
from tests.globus.conftest import DELTA, VISTA, Access, link_to
from tests.slurm.lab.cluster import Cluster
from tests.slurm.sites import RealSite, Speaker


class ByGlobus(RealSite):
    """A cluster of the lab behind a Compute endpoint that maps identities to its users."""

    def __init__(self, cluster: Cluster, server: StandIn, endpoint: str) -> None:
        super().__init__(cluster)
        self._server, self._endpoint = server, endpoint
        people = {user: identity(f"{user}@example.org") for user in ("alice", "bob")}
        server.state.know(
            people=[
                Person(sub=sub, username=f"{user}@example.org", name=user) for user, sub in people.items()
            ],
            endpoints=[
                Endpoint(
                    id=endpoint,
                    name=cluster.name,
                    users={sub: cluster.env(user) for user, sub in people.items()},
                    ids={sub: (cluster.uid(user), cluster.uid(user)) for user, sub in people.items()},
                )
            ],
        )

    def link(self, user: str) -> Link:
        access = Access(self._server, sub=identity(f"{user}@example.org"), owner=user)
        return link_to(access, self._endpoint)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StandIn]:
    with serving(tmp_path / "globus.db") as running:
        yield running


@pytest.fixture
def two(server: StandIn, delta: Cluster, vista: Cluster) -> tuple[ByGlobus, ByGlobus]:
    return ByGlobus(delta, server, DELTA), ByGlobus(vista, server, VISTA)


def test_two_real_clusters_are_seen_in_one_request_each(
    server: StandIn, two: tuple[ByGlobus, ByGlobus]
) -> None:
    delta, vista = (Speaker(site).probe(full=True) for site in two)

    assert {pool.type for node in delta.nodes for pool in node.gpus} >= {"a100", "a40"}
    assert all(len(node.gpus) == 0 or node.gpus[0].total == 1 for node in vista.nodes)
    assert {found.user for found in delta.associations or ()} >= {"alice"}
    assert server.state.requests("POST /v3/endpoints/") == 2


def test_a_job_runs_as_its_owner_on_each_and_leaves_its_output(two: tuple[ByGlobus, ByGlobus]) -> None:
    speakers = (
        Speaker(two[0], account="bbka-delta-gpu", partition="gpuA100x4"),
        Speaker(two[1], account="ASC24001", partition="gh"),
    )

    for speaker in speakers:
        place = two[0].scratch("alice") if speaker.site is two[0] else two[1].scratch("alice")
        ref = speaker.start("id -un; echo from $SLURM_CLUSTER_NAME", workdir=place)
        seen = speaker.wait_end(ref)

        assert seen.state is JobState.COMPLETED
        assert seen.exit_code == 0
        assert place.joinpath("out.txt").stat().st_uid != 0
        assert speaker.read(place / "out.txt").splitlines()[0] == "alice"


def test_a_user_cannot_cancel_what_another_started(two: tuple[ByGlobus, ByGlobus]) -> None:
    alice, bob = Speaker(two[0]), Speaker(two[0], user="bob")
    ref = alice.start("sleep 60")
    alice.wait(ref, JobState.RUNNING)

    assert "denied" in bob.cancel(ref)[ref.submit_key].lower()
    assert alice.cancel(ref)[ref.submit_key] == ""
    assert alice.wait_end(ref).state is JobState.CANCELLED
