"""The demo's storages: each person sees their own files, on this machine and through collections."""

import json
from pathlib import Path

import pytest

from federation.profile_yaml import read_profile
from orchestrator.staging import storages
from portal.demo import storage
from portal.demo.federation import CLUSTERS, PROFILES
from portal.installation import DEMO_SITES
from providers.errors import NotAuthorized
from providers.movers.globus_transfer import GlobusTransferMover
from providers.movers.types import Move, MoveItem
from providers.sandbox.globus.server import StandIn
from providers.sandbox.globus.spec import Collection
from tests.globus.conftest import ALICE, BOB
from tests.globus.test_transfer import A, B, Held, over, until


@pytest.mark.parametrize("slug", sorted(CLUSTERS))
def test_a_profile_of_the_demo_says_how_home_folders_are_reached(tmp_path: Path, slug: str) -> None:
    lines = storage.profile_lines(tmp_path / "a folder" / slug, slug, with_collection=True)

    document = read_profile((PROFILES / f"{slug}.yaml").read_text() + lines)

    places = storages([(each.uri, each.path) for each in document.storage], user="alice", remote_user="alice")
    home = f"{tmp_path}/a folder/{slug}/home/alice"
    assert {each.path for each in places} == {home}
    assert places[-1].place.uri == f"file://{home}/"
    assert (places[0].place.scheme == "globus") is (slug in storage.COLLECTIONS)


def test_the_roots_of_the_demo_are_each_persons_own(tmp_path: Path) -> None:
    roots = storage.roots(tmp_path, DEMO_SITES).split(",")

    assert set(DEMO_SITES) == set(CLUSTERS)
    assert all(root.endswith("/{user}") for root in roots)
    storage.make_folder(tmp_path, "alice")
    storage.make_folder(tmp_path, "alice")
    assert (tmp_path / "data" / "alice" / storage.SAMPLE).read_text().startswith("time_s")
    assert json.dumps(roots).count("{user}") == len(CLUSTERS) + 1


def test_each_person_sees_their_own_root_of_a_collection(globus: StandIn, tmp_path: Path) -> None:
    for name in ("alice", "bob", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "alice" / "x").write_text("hers\n")
    homes = {ALICE: str(tmp_path / "alice"), BOB: str(tmp_path / "bob")}
    globus.state.know(
        collections=[
            Collection(id=A, name="homes", root=str(tmp_path), homes=homes),
            Collection(id=B, name="b", root=str(tmp_path / "b")),
        ]
    )

    def move(path: str) -> Move:
        item = MoveItem(source=path, destination="/x")
        return Move(source_collection=A, destination_collection=B, items=(item,), label="x")

    hers = GlobusTransferMover(Held(globus, sub=ALICE), base_url=globus.url)
    done = until(hers, hers.submit(move("/x"), hers.new_submission_id()), over)
    his = GlobusTransferMover(Held(globus, sub=BOB), base_url=globus.url)

    assert done.files_moved == 1
    with pytest.raises(NotAuthorized, match="Path not allowed"):
        his.submit(move("/../alice/x"), his.new_submission_id())
