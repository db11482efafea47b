"""Drafts from scripts and words, and their merge into what the caller said."""

import pytest

from orchestrator.envelope.draft import draft_from_proposal, draft_from_script, draft_from_text
from orchestrator.envelope.merge import Conflict, merge_script
from orchestrator.envelope.types import Envelope, Range
from orchestrator.envelope.validate import read_envelope, read_envelope_input
from providers.errors import InvalidInput

SCRIPT = """#!/bin/bash
#SBATCH -J run --account=acct1 --partition=gpu
#SBATCH -N 2 --gpus-per-node=a100:4 --ntasks-per-node=4 -c 8
#SBATCH --mem=100G --time=2:00:00
module load cuda/12
srun apptainer exec --nv /img/x.sif ./a.out
"""


def spoken(text: str, *systems: str) -> dict[str, object]:
    """Return the fields a text gives, as JSON."""
    given = draft_from_text(text, known_systems=systems).given
    told = given.model_dump(mode="json", exclude_none=True)
    return {
        name: told[name] for name in told if name not in {"source", "confidence", "rationale", "original"}
    }


def span(low: int, high: int | None = None) -> dict[str, int]:
    return {"min": low, "max": low if high is None else high}


def test_a_script_becomes_an_envelope_with_a_reason_per_field() -> None:
    draft = draft_from_script(SCRIPT)

    envelope = draft.envelope
    assert envelope is not None
    assert (envelope.gpus, envelope.cpus, envelope.nodes) == (
        Range.exactly(8),
        Range.exactly(64),
        Range.exactly(2),
    )
    assert envelope.memory_mib == Range.exactly(204_800)
    assert envelope.walltime_s == Range.exactly(7200)
    assert envelope.accelerator is not None
    assert envelope.accelerator.types == ("a100",)
    assert envelope.container is not None
    assert (envelope.container.runtime, envelope.container.image) == (("apptainer",), "/img/x.sif")
    assert draft.rationale == {
        "gpus": "line 3: 4 per node",
        "cpus": "line 3: 8 per task",
        "nodes": "line 3",
        "memory_mib": "line 4: 102400 MiB per node",
        "walltime_s": "line 4",
        "accelerator": "line 3",
        "container": "line 6: the body runs apptainer",
    }
    assert (draft.source, draft.confidence, draft.dialect) == ("script", 0.95, "slurm")
    assert (draft.hints.partition, draft.hints.account) == ("gpu", "acct1")
    assert draft.hints.modules == ("cuda/12",)
    assert envelope.original == {"dialect": "slurm", "script": SCRIPT}
    assert envelope.policy.allow_systems is None


def test_a_draft_reads_back_as_itself() -> None:
    envelope = draft_from_script(SCRIPT).envelope

    assert envelope is not None
    assert read_envelope(envelope.model_dump(mode="json")) == envelope


def test_confidence_falls_by_the_stated_rule() -> None:
    def confidence(*lines: str) -> float:
        return draft_from_script("\n".join(["#!/bin/sh", *(f"#SBATCH {line}" for line in lines)])).confidence

    assert confidence("-n 1 -t 10") == 0.95
    assert confidence("-n 1") == 0.85
    assert confidence("-n 1 -t 10 --frob") == 0.9
    assert confidence("-n 1 -t 10", "stray") == 0.75
    assert confidence("-n 2 -t 10 --mem=4G") == 0.85
    assert confidence("-t 10", "a", "b", "c", "d", *["--frob"] * 20) == 0.15


def test_an_unknown_gpu_type_is_reported_and_any_type_is_taken() -> None:
    draft = draft_from_script("#!/bin/sh\n#SBATCH --gres=gpu:quantum:2 -t 5\n")

    assert draft.given.gpus == Range.exactly(2)
    assert draft.given.accelerator is None
    assert [(note.text, note.why) for note in draft.not_understood] == [
        ("quantum", "GPU type is not known: any type is taken")
    ]


def test_device_memory_is_wanted_only_when_every_type_says_it() -> None:
    some = draft_from_script('#!/bin/sh\n#SBATCH -C "[a100|v100-32gb]" --gres=gpu:1 -t 5\n').given.accelerator
    every = draft_from_script(
        '#!/bin/sh\n#SBATCH -C "[a100-80gb|v100-32gb]" --gres=gpu:1 -t 5\n'
    ).given.accelerator

    assert some is not None
    assert (some.types, some.min_memory_mib) == (("a100", "v100"), None)
    assert every is not None
    assert (every.types, every.min_memory_mib) == (("a100", "v100"), 32_768)


def test_a_slice_of_a_gpu_is_called_so() -> None:
    draft = draft_from_script("#!/bin/sh\n#SBATCH --gres=gpu:a100_3g.20gb:1 -t 5\n")

    assert draft.given.accelerator is None
    assert [note.why for note in draft.not_understood] == [
        "a slice of a GPU: a whole GPU of any type is taken"
    ]


def test_impossible_figures_of_a_script_are_problems_not_errors() -> None:
    draft = draft_from_script("#!/bin/sh\n#SBATCH -N 8 -n 4 -t 10\n")

    assert draft.envelope is None
    assert [code for _, code, _ in draft.problems] == ["cpus_below_nodes"]


def test_a_huge_script_figure_is_a_problem() -> None:
    draft = draft_from_script("#!/bin/sh\n#SBATCH -n 999999999 -t 10\n")

    assert draft.envelope is None
    assert [(pointer, code) for pointer, code, _ in draft.problems] == [
        ("/envelope/cpus/min", "too_large"),
        ("/envelope/cpus/max", "too_large"),
    ]


def test_the_script_fills_what_the_envelope_leaves_unsaid() -> None:
    given = read_envelope_input({"walltime_s": 600, "gpus": 4, "policy": {"prefer": ["delta"]}})

    envelope, conflicts = merge_script(given, draft_from_script(SCRIPT))

    assert envelope.walltime_s == Range.exactly(600)
    assert envelope.gpus == Range.exactly(4)
    assert envelope.cpus == Range.exactly(64)
    assert envelope.policy.prefer == ("delta",)
    assert conflicts == (
        Conflict("gpus", span(4), span(8)),
        Conflict("walltime_s", span(600), span(7200)),
    )
    assert envelope.rationale["cpus"] == "from the script, line 3: 8 per task"
    assert envelope.rationale["gpus"] == "the envelope stands; the script says otherwise"
    assert envelope.source == "user"


def test_without_an_envelope_the_script_is_the_envelope() -> None:
    envelope, conflicts = merge_script(None, draft_from_script(SCRIPT))

    assert envelope == draft_from_script(SCRIPT).envelope
    assert conflicts == ()


def test_equal_values_are_no_conflict() -> None:
    _, conflicts = merge_script(read_envelope_input({"gpus": 8}), draft_from_script(SCRIPT))

    assert conflicts == ()


def test_a_script_field_that_contradicts_the_envelope_is_left_out() -> None:
    envelope, conflicts = merge_script(read_envelope_input({"gpus": 0, "cpus": 1}), draft_from_script(SCRIPT))

    assert envelope.gpus == Range.exactly(0)
    assert envelope.accelerator is None
    assert envelope.nodes is None
    assert {conflict.field for conflict in conflicts} == {"gpus", "cpus", "nodes", "accelerator"}


def test_an_impossible_script_alone_is_refused() -> None:
    with pytest.raises(InvalidInput, match="own figures cannot be"):
        merge_script(None, draft_from_script("#!/bin/sh\n#SBATCH -N 8 -n 4 -t 10\n"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "4 A100s for 2 hours",
            {"gpus": span(4), "walltime_s": span(7200), "accelerator": {"types": ["a100"]}},
        ),
        ("16 cores, 64 GB memory", {"cpus": span(16), "memory_mib": span(65_536)}),
        ("an 80GB GPU", {"gpus": span(1), "accelerator": {"types": [], "min_memory_mib": 81_920}}),
        ("2 nodes", {"nodes": span(2)}),
        ("apptainer", {"container": {"runtime": ["apptainer"]}}),
        ("lammps >= 2023", {"software": [{"name": "lammps", "version": ">=2023"}]}),
        ("aarch64", {"architecture": ["aarch64"]}),
        ("2 nodes with 4 GPUs each", {"nodes": span(2), "gpus": span(8)}),
        ("2-4 nodes, 32 cores per node", {"nodes": span(2, 4), "cpus": span(64, 128)}),
        (
            "2 to 8 H100 GPUs for 1-12:00:00",
            {"gpus": span(2, 8), "accelerator": {"types": ["h100"]}, "walltime_s": span(129_600)},
        ),
        ("up to eight GPUs for 90 minutes", {"gpus": span(1, 8), "walltime_s": span(5400)}),
        ("for 2-4 hours", {"walltime_s": span(7200, 14_400)}),
        ("walltime 02:00:00", {"walltime_s": span(7200)}),
        ("for PT3H", {"walltime_s": span(10_800)}),
        (
            "2 GPUs with 40 GB of memory",
            {"gpus": span(2), "accelerator": {"types": [], "min_memory_mib": 40_960}},
        ),
        ("openmpi, infiniband and lustre", {
            "parallel": [{"name": "openmpi"}], "network": ["infiniband"], "filesystem": ["lustre"],
        }),
        ("docker://foo/bar:1.2", {"container": {"runtime": [], "image": "docker://foo/bar:1.2"}}),
        ("the cheapest 1 GPU", {"gpus": span(1), "objective": "lowest_charge"}),
    ],
)  # fmt: skip
def test_plain_words_become_fields(text: str, expected: dict[str, object]) -> None:
    draft = draft_from_text(text)

    assert spoken(text) == expected
    assert draft.not_understood == ()
    assert draft.confidence == 0.9
    assert draft.source == "rules"
    assert draft.envelope is not None
    assert all("from the words" in draft.rationale[name] for name in expected)


def test_what_the_grammar_leaves_open_is_reported_and_lowers_confidence() -> None:
    draft = draft_from_text("4 GPUs with a pony tomorrow")

    assert draft.given.gpus == Range.exactly(4)
    assert [note.text for note in draft.not_understood] == ["pony", "tomorrow"]
    assert draft.confidence == 0.45
    assert draft_from_text("make me a sandwich").confidence == 0.0


def test_systems_are_words_only_when_the_caller_knows_them() -> None:
    text = "1 GPU on delta, avoid anvil"

    assert [note.text for note in draft_from_text(text).not_understood] == ["delta", "avoid", "anvil"]
    policy = draft_from_text(text, known_systems=("delta", "anvil")).given.policy
    assert policy is not None
    assert (policy.allow_systems, policy.exclude_systems) == (("delta",), ("anvil",))


@pytest.mark.parametrize("text", ["", "  ", None, 4, ["x"]])
def test_no_words_are_refused(text: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        draft_from_text(text)

    assert caught.value.problems[0][:2] == ("/text", "empty_text")


def test_a_model_fills_silence_and_never_overrules_the_words() -> None:
    grammar = draft_from_text("4 GPUs, finish the protein thing")

    draft = draft_from_proposal({"gpus": 64, "walltime_s": "PT2H"}, grammar=grammar)

    assert draft.source == "llm"
    assert draft.envelope is not None
    assert draft.envelope.gpus == Range.exactly(4)
    assert draft.envelope.walltime_s == Range.exactly(7200)
    assert draft.rationale["walltime_s"] == "proposed by the model"
    assert [note.text for note in draft.conflicts] == ["gpus"]
    assert draft.confidence <= 0.5


def test_a_model_s_nonsense_is_refused_like_anybody_s() -> None:
    with pytest.raises(InvalidInput) as caught:
        draft_from_proposal({"gpus": "all of them"}, grammar=draft_from_text("4 GPUs"))

    assert caught.value.problems[0][0] == "/proposal/gpus"


def test_drafts_are_plain_json() -> None:
    draft = draft_from_script(SCRIPT)

    assert type(draft).model_validate_json(draft.model_dump_json()) == draft
    assert isinstance(draft.envelope, Envelope)
