"""Speeds and preparations from our own runs: fitted together, drawn to defaults, first uses told apart."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from orchestrator.environments import environment_of, fetched
from orchestrator.placement.learning import Run, first_uses, learned_speeds, measured_preparations
from orchestrator.placement.model import ANY_ENVIRONMENT, PlacementModel

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def run(
    runtime_s: float,
    *,
    at: str = "delta",
    kind: str = "train",
    accelerator: str | None = "a100",
    default: float = 1.0,
    gpus: int = 1,
    environment: str | None = None,
    day: int = 0,
    user: int = 1,
) -> Run:
    return Run(
        user=user,
        kind=kind,
        environment=environment,
        system=at,
        accelerator=accelerator,
        default_speed=default,
        gpus=gpus,
        cpus=8,
        runtime_s=runtime_s,
        ended_at=NOW + timedelta(days=day),
        is_first_use=environment is not None and day == 0,
    )


def speed(runs: list[Run], at: str, accelerator: str, default: float) -> float:
    return PlacementModel(speeds=learned_speeds(runs)).speed(at, accelerator, default=default)


def test_runs_at_their_default_speeds_change_nothing() -> None:
    runs = [*[run(1000)] * 5, *[run(500, at="vista", accelerator="gh200", default=2.0)] * 5]

    assert speed(runs, "delta", "a100", 1.0) == pytest.approx(1.0)
    assert speed(runs, "vista", "gh200", 2.0) == pytest.approx(2.0)


def test_a_place_slower_than_its_default_is_found_out_as_its_runs_grow() -> None:
    def with_runs(count: int) -> float:
        elsewhere = [run(1000, at=site) for site in ("delta", "anvil", "aces")]
        slow = [run(1000, at="vista", accelerator="gh200", default=2.0)]  # 500 s would be its default
        return speed([*elsewhere * count, *slow * count], "vista", "gh200", 2.0)

    few, many = with_runs(1), with_runs(10)

    assert 2.0 > few > many > 1.0
    assert few == pytest.approx(1.83, abs=0.05)
    assert many == pytest.approx(1.42, abs=0.02)


def test_different_work_at_different_places_is_never_compared() -> None:
    runs = [*[run(10, kind="small")] * 9, *[run(9000, kind="large", at="vista")] * 9]

    assert learned_speeds(runs) == {}


def test_kinds_of_any_length_teach_together_and_sizes_are_brought_to_one() -> None:
    random = Random(1)
    runs = []
    for kind, base_s in (("a", 60), ("b", 900), ("c", 20_000)):
        for gpus in (1, 4):
            share = 0.05 + 0.95 / gpus
            noise = [random.uniform(0.95, 1.05) for _ in range(8)]
            runs += [run(base_s * share * x, kind=kind, gpus=gpus) for x in noise]
            runs += [run(base_s * share * x * 1.5, kind=kind, gpus=gpus, at="anvil") for x in noise]
    found = learned_speeds(runs)

    ratio = found["delta", "a100"].speed / found["anvil", "a100"].speed
    assert ratio == pytest.approx(1.5, rel=0.1)
    assert found["delta", "a100"].runs == 30


def test_one_broken_run_among_many_hardly_counts() -> None:
    usual = [*[run(1000)] * 9, *[run(1000, at="anvil")] * 9]

    broken = [*usual, run(3, at="anvil")]

    assert learned_speeds(broken)["anvil", "a100"].speed == pytest.approx(1.0)


def test_the_first_use_of_an_environment_tells_what_preparing_it_took() -> None:
    image = "docker://pytorch"
    runs = [
        run(400, environment=image),
        run(110, environment=image, day=1),
        run(90, environment=image, day=2),
    ]

    assert first_uses(runs) == {runs[0]}
    assert measured_preparations(runs) == {("delta", image): (300.0,), ("delta", ANY_ENVIRONMENT): (300.0,)}


def test_a_first_use_that_took_no_longer_prepared_nothing() -> None:
    runs = [run(90, environment="i"), run(100, environment="i", day=1)]

    assert measured_preparations(runs)["delta", "i"] == (0.0,)


@pytest.mark.parametrize(
    "again",
    [
        run(90, environment="i", day=1, gpus=2),
        run(90, environment="i", day=1, at="vista"),
        run(90, environment="i", day=1, kind="other"),
        run(90, environment="i", day=1, user=2),
        run(90, environment="i", day=-1, user=2),
    ],
    ids=["another size", "another system", "other work", "another user", "another user before"],
)
def test_only_the_same_again_tells_a_preparation(again: Run) -> None:
    assert measured_preparations([run(400, environment="i"), again]) == {}


def test_first_uses_teach_no_speed() -> None:
    prepared = [run(4000, environment="i", at="vista"), *[run(1000, environment="i", at="vista", day=1)] * 3]
    elsewhere = [run(4000, environment="i"), *[run(1000, environment="i", day=1)] * 3]

    assert learned_speeds([*prepared, *elsewhere])["vista", "a100"].speed == pytest.approx(1.0)


def test_an_environment_never_prepared_here_is_taken_to_need_what_others_did() -> None:
    model = PlacementModel(
        preparations={("delta", "a"): (10.0,), ("delta", ANY_ENVIRONMENT): (10.0, 40.0, 90.0)}
    )

    assert model.preparation_s("delta", "a") == 10
    assert model.preparation_s("delta", "b") == 40
    assert model.preparation_s("vista", "a") is None


@pytest.mark.parametrize(
    ("image", "fetches"),
    [
        ("docker://pytorch/pytorch:2", True),
        ("nvcr.io/nvidia/pytorch:24.05", True),
        ("/projects/images/work.sif", False),
        ("work.sif", False),
        ("$HOME/work", False),
        (None, False),
    ],
)
def test_an_image_in_a_file_is_not_fetched(image: str | None, fetches: bool) -> None:
    assert (fetched(image) is not None) is fetches


def test_environments_are_told_apart_by_what_must_be_ready() -> None:
    modules = {"modules": ["gcc/13", "cuda/12"]}
    built = {**modules, "conda": "train", "setup": ["pip install -e ."]}
    words = [environment_of(each, None) for each in (modules, built, {**built, "conda": "other"})]

    assert environment_of({"container": None, "modules": [], "variables": {"A": "1"}}, None) is None
    assert environment_of({"container": "docker://own"}, "docker://envelope") == "docker://own"
    assert environment_of(None, "docker://envelope") == "docker://envelope"
    assert [(word or "").partition(":")[0] for word in words] == ["modules", "build", "build"]
    assert len(set(words)) == 3
    assert environment_of({**built, "container": "docker://own"}, None) == "docker://own"
    assert environment_of({**modules, "container": "/work/own.sif"}, None) == words[0]
    assert len(environment_of(None, "docker://" + "x" * 400) or "") == len("image:") + 32


def test_what_is_built_or_loaded_is_measured_apart_from_images() -> None:
    runs = [
        each
        for environment, took_s in (("build:1", 160), ("modules:1", 103), ("docker://a", 400))
        for each in (run(took_s, environment=environment), run(100, environment=environment, day=1))
    ]
    model = PlacementModel(preparations=measured_preparations(runs))

    assert model.preparation_s("delta", "build:2") == 60
    assert model.preparation_s("delta", "modules:2") == 3
    assert model.preparation_s("delta", "docker://b") == 300
    assert model.preparation_s("vista", "build:1") is None


def test_the_oldest_run_that_is_remembered_is_no_first_use() -> None:
    later = [run(100, environment="docker://a", day=day) for day in (50, 51, 52)]

    assert first_uses(later) == frozenset()
    assert measured_preparations(later) == {}
