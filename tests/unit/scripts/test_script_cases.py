"""Hard cases of people who do this job: scripts in, requests out, with the expected values asserted.

The names in `expected` are the cases' own; each test maps them to ours.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.envelope.accelerators import read_accelerator_word
from orchestrator.envelope.draft import Draft, draft_from_script
from providers.dialects.scripts import quantities
from providers.dialects.scripts.lsf import read_lsf
from providers.dialects.scripts.quantities import Misspelled
from providers.dialects.scripts.slurm import read_slurm
from providers.dialects.scripts.sniff import read_script, sniff
from providers.dialects.scripts.text import read_text
from providers.dialects.scripts.types import ScriptRequest, Span

DATA = Path(__file__).parents[2] / "data" / "cases" / "scripts.jsonl"
CASES: dict[str, Any] = {
    case["id"]: case for case in (json.loads(line) for line in DATA.read_text("utf-8").splitlines())
}


def fixed(count: int) -> Span:
    return Span(min=count, max=count)


def opened(case_id: str) -> tuple[ScriptRequest, Draft, Any]:
    case = CASES[case_id]
    script = case["input"]["script"]
    return read_script(script), draft_from_script(script), case["expected"]


def given_of(draft: Draft, *names: str) -> dict[str, Any]:
    """Return the draft's fields as JSON; None = silent."""
    said = draft.given.model_dump(mode="json")
    return {name: said[name] for name in names}


def whys(notes: Any) -> str:
    return " | ".join(f"{note.line}: {note.text} ({note.why})" for note in notes)


def test_gres_and_gpus_per_node_that_differ_are_a_conflict_and_the_latter_counts() -> None:
    request, draft, expected = opened("dialect-differences-02")

    assert request.gpus_per_node == expected["gpus_per_node"] == 4
    assert draft.envelope is not None
    assert draft.envelope.gpus.max == 4
    assert expected["warning"] in whys(request.conflicts)
    assert draft.confidence == 0.7


def test_one_gpu_per_node_and_four_in_total_make_four_nodes() -> None:
    request, _, expected = opened("dialect-differences-03")

    assert request.gpus == fixed(expected["gpus_total"])
    assert request.gpus_per_node == expected["gpus_per_node"]
    assert request.nodes == fixed(expected["nodes"])
    assert request.reasons["nodes"] == "4 GPUs at 1 per node"


def test_pbs_lines_override_sbatch_lines() -> None:
    request, _, expected = opened("dialect-differences-07")
    want = expected["slurm"]

    assert request.dialect == "slurm"
    assert request.walltime_s == fixed(want["time_s"])
    assert request.nodes == fixed(want["nodes"])
    assert request.tasks == fixed(want["tasks"])
    assert request.gpus == fixed(want["gpus_total"])
    assert {note.text for note in request.conflicts} == {"tasks", "cpus", "walltime_s"}


def test_a_pbs_script_keeps_its_gpus_and_sbatch_would_lose_them() -> None:
    script = CASES["dialect-differences-08"]["input"]["script"]
    want = CASES["dialect-differences-08"]["expected"]["correct_envelope"]

    own, through_sbatch = read_script(script), read_script(script, dialect="slurm")

    assert own.dialect == "pbs"
    chunk = own.chunks[0]
    assert (chunk.cpus, chunk.gpus, chunk.memory_mib) == (
        want["cpus_per_node"],
        want["gpus_per_node"],
        want["mem_per_node_mb"],
    )
    assert own.nodes == Span(min=1, max=want["nodes"])  # without place=scatter, chunks may share a host
    assert own.walltime_s == fixed(want["time_s"])
    assert through_sbatch.gpus == fixed(8)
    assert CASES["dialect-differences-08"]["expected"]["warn"] in whys(through_sbatch.warnings)


def test_flux_time_is_a_prefix_of_time_limit_and_minutes() -> None:
    request, draft, expected = opened("dialect-differences-13")

    assert request.nodes == fixed(expected["nodes"])
    assert request.exclusive is expected["exclusive"]
    assert request.walltime_s == fixed(expected["wall_s"])
    assert draft.hints.exclusive is True


def test_mem_zero_asks_for_all_memory_of_each_node() -> None:
    request, draft, expected = opened("memory-per-cpu-vs-per-node-03")

    assert expected["envelope"]["mem_per_node_mb"] == {"min": None, "all": True}
    assert request.memory_is_all is True
    assert request.memory_mib is None
    assert draft.given.memory_mib is None
    assert draft.rationale["memory_mib"] == "line 1: all memory of each node"


def test_two_memory_options_are_refused_and_no_figure_is_taken() -> None:
    request, _, expected = opened("memory-per-cpu-vs-per-node-04")

    assert request.is_valid is expected["valid"] is False
    assert request.memory_mib is None
    assert "mutually exclusive" in whys(request.refusals)


def test_memory_per_cpu_multiplies_by_cpus() -> None:
    request, _, expected = opened("memory-per-cpu-vs-per-node-05")

    assert request.cpus == fixed(expected["cpus_total"])
    assert request.memory_mib == fixed(expected["mem_total_mb"])


def test_cpus_and_memory_per_gpu_multiply_by_gpus() -> None:
    request, _, expected = opened("memory-per-cpu-vs-per-node-06")

    assert request.gpus == fixed(expected["gpus"])
    assert request.cpus == fixed(expected["cpus"])
    assert request.memory_mib == fixed(expected["mem_total_mb"])


def test_a_script_without_time_names_no_limit() -> None:
    expected = CASES["time-format-01"]["expected"]

    request = read_script("#!/bin/bash\n#SBATCH -p gpu\nsleep 1\n")

    assert request.walltime_s is expected["limit_s"] is None


def test_slurm_times_are_minutes_first_and_counted_in_whole_minutes() -> None:
    case = CASES["time-format-02"]

    assert [quantities.slurm_limit_s(v) for v in case["input"]["values"]] == case["expected"]["seconds"]


def test_zero_and_unlimited_ask_for_no_limit() -> None:
    case = CASES["time-format-03"]

    assert [quantities.slurm_limit_s(v) for v in case["input"]["values"]] == case["expected"]["limit_s"]
    request = read_script("#!/bin/bash\n#SBATCH -t UNLIMITED\n")
    assert request.walltime_is_unlimited is True
    assert request.walltime_s is None
    assert request.is_valid


@pytest.mark.parametrize("value", CASES["time-format-04"]["input"]["values"])
def test_times_that_slurm_refuses_are_refused(value: str) -> None:
    with pytest.raises(Misspelled):
        quantities.slurm_limit_s(value)


def test_flux_times_are_minutes_unless_a_unit_is_written() -> None:
    case = CASES["time-format-12"]
    values = [option.replace("=", " ").split()[1] for option in case["input"]["cli"]]

    assert [quantities.flux_limit_s(v) for v in values] == case["expected"]["cli_seconds"]


def test_slurm_memory_is_whole_and_binary_with_megabytes_by_default() -> None:
    case = CASES["mem-unit-02"]
    for value, want in zip(case["input"]["values"], case["expected"]["mb"], strict=True):
        if want == "invalid":
            with pytest.raises(Misspelled):
                quantities.slurm_memory_mib(value)
        else:
            assert quantities.slurm_memory_mib(value) == want, value


def test_pbs_sizes_are_bytes_powers_of_1024_and_words_of_eight() -> None:
    case = CASES["mem-unit-05"]
    for value, want in zip(case["input"]["values"], case["expected"]["bytes"], strict=True):
        if want == "invalid":
            with pytest.raises(Misspelled):
                quantities.pbs_size_bytes(value)
        elif isinstance(want, str):
            assert quantities.pbs_size_bytes(value) == 16_777_216  # as its text says
        else:
            assert quantities.pbs_size_bytes(value) == want, value


def test_lsf_limit_counts_kb_and_reservation_mb_unless_the_site_says_otherwise() -> None:
    case = CASES["mem-unit-06"]
    text = read_text(case["input"]["script"])

    default, in_gb = read_lsf(text), read_lsf(text, unit_for_limits="GB")

    assert default.memory_limit_mib == 3907  # 4,000,000 KB, rounded up
    assert default.memory_asked is not None
    assert default.memory_asked.mib == 4000
    assert in_gb.memory_limit_mib == 4_000_000 * 1024
    assert in_gb.memory_asked is not None
    assert in_gb.memory_asked.mib == 4000 * 1024
    assert "the unit is probably another" in whys(in_gb.warnings)
    assert "the unit is probably another" not in whys(default.warnings)


def test_only_directives_in_column_one_count_and_comments_end_them() -> None:
    request, _, expected = opened("script-directive-parse-02")

    assert request.tasks == fixed(expected["tasks"])
    assert request.cpus_per_task == expected["cpus_per_task"]
    assert request.walltime_s is expected["time_s"] is None
    assert request.nodes is expected["nodes"] is None
    assert [(note.line, note.why.split(":")[0]) for note in request.ignored] == [
        (3, "text after # is a comment"),
        (2, "indented"),
        (4, "commented out"),
        (5, "commented out"),
    ]


def test_a_stray_word_is_refused_as_sbatch_refuses_it() -> None:
    request, _, expected = opened("script-directive-parse-03")

    assert request.is_valid is expected["valid"] is False
    assert [note.why for note in request.refusals] == [expected["error"]]


def test_quotes_protect_glued_options_work_and_the_last_one_wins() -> None:
    request, draft, expected = opened("script-directive-parse-04")

    assert request.job_name == expected["job_name"]
    assert request.comment == expected["comment"]
    assert request.walltime_s == fixed(expected["time_s"])
    assert "replaces line 1" in whys(request.warnings)
    assert draft.questions == ("What is USER? Directives are not expanded.",)


def test_variables_in_directives_are_asked_for_never_expanded() -> None:
    request, draft, expected = opened("script-directive-parse-05")

    assert request.is_valid is expected["valid"] is False
    assert expected["error"] in whys(request.refusals)
    assert request.output_path == expected["output_literal"]
    assert list(request.variables) == expected["ask_user"]
    assert draft.given.walltime_s is None


def test_dos_line_ends_are_refused_and_read_all_the_same() -> None:
    request, _, expected = opened("script-directive-parse-06")

    assert request.is_valid is expected["valid_for_sbatch"] is False
    assert expected["error"] in whys(request.refusals)
    assert request.walltime_s == fixed(expected["draft_after_normalising"]["time_s"])
    assert request.tasks == fixed(expected["draft_after_normalising"]["tasks"])


def test_unique_prefixes_of_options_count_and_ambiguous_ones_are_refused() -> None:
    request, _, expected = opened("script-directive-parse-08")

    assert request.exclusive is expected["exclusive"]
    assert request.constraint is not None
    assert request.constraint.text == expected["constraint"]
    assert request.partition == expected["partition"]
    for option, want in zip(
        CASES["script-directive-parse-08"]["input"]["ambiguous"], expected["ambiguous"], strict=True
    ):
        refused = read_script(f"#!/bin/bash\n#SBATCH {option}\n")
        assert want.removeprefix("error: ") in whys(refused.refusals)


def test_seven_characters_make_a_directive() -> None:
    request, _, expected = opened("script-directive-parse-10")

    assert request.is_valid is expected["valid"] is False
    assert [note.why for note in request.refusals] == [expected["error"]]
    alone = read_script(CASES["script-directive-parse-10"]["input"]["script"].splitlines()[0])
    assert alone.walltime_s == fixed(expected["first_line_alone"]["time_s"])


def test_command_line_over_environment_over_directives() -> None:
    case = CASES["script-directive-parse-12"]
    text, environment = read_text(case["input"]["script"]), case["input"]["env"]

    with_env = read_slurm(text, environment=environment)
    with_both = read_slurm(text, environment=environment, argv=case["input"]["cli"].split())

    assert with_env.walltime_s == fixed(case["expected"]["with_env"])
    assert with_both.walltime_s == fixed(case["expected"]["with_env_and_cli"])


def test_bsub_reads_directives_of_the_script_on_its_standard_input() -> None:
    assert CASES["script-directive-parse-16"]["expected"]["directives_read"][0] is True

    assert read_script("#!/bin/bash\n#BSUB -n 4\n./a.out\n").cpus == fixed(4)


def test_a_late_flux_directive_is_an_error() -> None:
    request, _, expected = opened("script-directive-parse-17")

    assert request.is_valid is expected["valid"] is False
    assert [note.why for note in request.refusals] == [expected["error"]]
    script = CASES["script-directive-parse-17"]["input"]["script"]
    without = read_script(script.rsplit("\n", 1)[0])
    assert without.is_valid
    assert without.nodes == fixed(expected["without_last"]["nodes"])
    assert without.job_name == expected["without_last"]["job_name"]
    assert without.walltime_s == fixed(expected["without_last"]["wall_s"])


def test_gpus_per_task_times_tasks_with_features_as_hints() -> None:
    request, draft, expected = opened("script-to-envelope-03")

    assert request.tasks == fixed(expected["tasks"])
    assert given_of(draft, "gpus", "cpus", "nodes", "network") == {
        "gpus": expected["gpus"],
        "cpus": {"min": expected["cpus"], "max": expected["cpus"]},
        "nodes": None,
        "network": ["infiniband"],
    }
    assert request.walltime_s == fixed(expected["wall_s"])
    assert request.constraint is not None
    assert list(request.constraint.all_of) == expected["constraint"]["all_of"]
    assert draft.given.accelerator is not None
    assert draft.given.accelerator.types == ("a100",)
    assert "hint from feature 'a100'" in draft.rationale["accelerator"]


def test_node_ranges_and_time_min_become_ranges() -> None:
    request, draft, expected = opened("script-to-envelope-04")

    assert given_of(draft, "nodes", "gpus", "walltime_s") == {
        "nodes": expected["nodes"],
        "gpus": expected["gpus"],
        "walltime_s": expected["wall_s"],
    }
    assert request.tasks == Span(**expected["tasks"])


def test_a_here_document_is_another_script() -> None:
    request, draft, expected = opened("script-to-envelope-05")

    assert draft.envelope is not None
    assert draft.envelope.gpus.max == expected["outer"]["gpus"]
    assert request.walltime_s is expected["outer"]["wall_s"] is None
    assert request.body.is_launcher is expected["outer"]["launcher"]
    inner = draft.generated[0]
    assert inner.hints.gpus_per_node == expected["generated"]["gpus_per_node"]
    assert inner.given.walltime_s is not None
    assert inner.given.walltime_s.max == expected["generated"]["wall_s"]
    assert draft.questions == ("The script writes and submits other scripts: which one should run?",)


def test_alternatives_in_brackets_are_any_of_the_types_on_all_nodes() -> None:
    request, draft, expected = opened("script-to-envelope-06")

    assert request.gpus_per_node == expected["gpus_per_node"]
    assert request.gpus == fixed(expected["gpus_total"])
    assert draft.given.accelerator is not None
    assert list(draft.given.accelerator.types) == expected["accelerator"]["any_of"]
    assert request.constraint is not None
    assert request.constraint.same_on_all is expected["accelerator"]["all_nodes_same"]
    assert request.memory_is_all is (expected["mem_per_node"] == "all")
    assert request.walltime_s == fixed(expected["wall_s"])


def test_directives_after_the_first_command_are_ignored_and_said_so() -> None:
    request, draft, expected = opened("script-to-envelope-07")

    assert (request.nodes, request.tasks, request.cpus, request.gpus) == (
        fixed(expected["nodes"]),
        fixed(expected["tasks"]),
        fixed(expected["cpus"]),
        fixed(expected["gpus"]),
    )
    assert request.walltime_s == fixed(expected["wall_s"])
    assert request.partition is expected["partition"] is None
    assert list(draft.hints.modules) == expected["software"]["modules"]
    assert draft.hints.conda_env == expected["software"]["conda_env"]
    assert "8: #SBATCH --partition=gpuserial-48core (#SBATCH after the first command is ignored)" in whys(
        request.ignored
    )
    assert "48 tasks but a single process: probably 1 task with 48 CPUs" in whys(request.warnings)


def test_pbs_chunk_figures_are_per_chunk_and_scatter_makes_hosts() -> None:
    request, _, expected = opened("script-to-envelope-08")

    want = expected["chunks"][0]
    got = request.chunks[0]
    assert (got.count, got.cpus, got.tasks, got.gpus, got.memory_mib) == (
        want["count"],
        want["cpus"],
        want["mpiprocs"],
        want["gpus"],
        want["mem_mb"],
    )
    assert request.nodes == Span(**expected["nodes"])
    assert request.exclusive is expected["exclusive"]
    assert request.gpus == fixed(expected["gpus"])
    assert request.cpus == fixed(expected["cpus"])
    assert request.tasks == fixed(expected["tasks"])
    assert request.memory_mib == fixed(expected["mem_total_mb"])
    assert request.walltime_s == fixed(expected["wall_s"])
    assert request.account == expected["account"]


def test_pbs_chunk_types_add_up() -> None:
    request, _, expected = opened("script-to-envelope-09")

    assert [(c.count, c.cpus, c.gpus, c.memory_mib) for c in request.chunks] == [
        (c["count"], c["cpus"], c["gpus"], c["mem_mb"]) for c in expected["chunks"]
    ]
    assert request.gpus == fixed(expected["gpus"])
    assert request.cpus == fixed(expected["cpus"])
    assert request.memory_mib == fixed(expected["mem_total_mb"])


def test_job_wide_pbs_resources_are_totals() -> None:
    request, draft, expected = opened("script-to-envelope-10")
    want = expected["job_totals"]

    assert request.cpus == fixed(want["cpus"])
    assert request.gpus == fixed(want["gpus"])
    assert request.memory_mib == fixed(want["mem_mb"])
    assert request.local_scratch_mib == want["local_scratch_mb"]
    assert request.nodes is None
    assert list(draft.hints.filesystems) == expected["storage"]
    assert request.account == expected["account"]
    assert request.walltime_s == fixed(expected["wall_s"])


def test_lsf_gpus_are_per_host_and_ptile_gives_the_hosts() -> None:
    request, draft, expected = opened("script-to-envelope-12")

    assert request.tasks == fixed(expected["slots"])
    assert request.gpus_per_node == expected["gpus_per_host"]
    assert given_of(draft, "nodes", "gpus") == {"nodes": expected["nodes"], "gpus": expected["gpus"]}
    accelerator = draft.given.accelerator
    assert accelerator is not None
    assert accelerator.types == (expected["accelerator"]["type"],)
    assert accelerator.min_memory_mib == expected["accelerator"]["memory_gb"] * 1024
    assert request.memory_asked is not None
    assert request.memory_asked.mib == expected["mem_mb"]["value"]
    assert "per slot or per host is the site's setting" in whys(request.warnings)
    assert request.walltime_s == fixed(expected["wall_s"])


def test_old_lsf_gpu_spelling_and_per_slot_figures() -> None:
    request, draft, expected = opened("script-to-envelope-14")

    assert request.tasks == fixed(expected["slots"])
    assert request.gpus == fixed(expected["gpus"])
    accelerator = draft.given.accelerator
    assert accelerator is not None
    assert accelerator.types == ("titanrtx",)
    assert accelerator.min_memory_mib == expected["accelerator"]["memory_gb"] * 1024
    assert request.memory_mib == fixed(expected["mem_total_mb"])
    assert request.local_scratch_mib == expected["scratch_total_mb"]
    assert request.walltime_s == fixed(expected["wall_s"])
    assert request.nodes is None


def test_grid_engine_memory_is_per_slot_and_gpus_are_doubtful() -> None:
    request, _, expected = opened("script-to-envelope-15")

    assert request.cpus == fixed(expected["cpus"])
    assert request.nodes == fixed(expected["nodes"])
    assert request.memory_mib == fixed(expected["mem_total_mb"])
    assert request.gpus == fixed(expected["gpus"]["value"])
    assert "per job or per slot" in whys(request.warnings)
    assert request.walltime_s == fixed(expected["wall_s"])
    assert request.array is not None
    assert request.array.count == expected["array"]["count"]
    assert request.array.max_concurrent == expected["array"]["max_concurrent"]


def test_oar_levels_multiply() -> None:
    request, draft, expected = opened("script-to-envelope-17")

    assert request.nodes == Span(**expected["nodes"])
    assert request.gpus == fixed(expected["gpus"])
    assert request.walltime_s == fixed(expected["wall_s"])
    assert draft.given.accelerator is not None
    assert draft.given.accelerator.types == (expected["accelerator"]["type"],)
    assert request.account == expected["account"]


def test_flux_counts_per_slot() -> None:
    request, _, expected = opened("script-to-envelope-18")

    assert request.nodes == Span(**expected["nodes"])
    assert request.tasks == fixed(expected["slots"])
    assert request.cpus == fixed(expected["cpus"])
    assert request.gpus == fixed(expected["gpus"])
    assert request.walltime_s == fixed(expected["wall_s"])
    assert request.partition == expected["queue"]
    assert request.account == expected["account"]


def test_lsf_arrays_are_part_of_the_job_name() -> None:
    request, _, expected = opened("array-06")

    assert request.job_name == "sim"
    assert request.array is not None
    assert request.array.count == expected["array"]["count"]
    assert request.array.step == expected["array"]["step"]
    assert request.array.max_concurrent == expected["array"]["max_concurrent"]


def test_gpu_names_map_to_models_without_guessing() -> None:
    case = CASES["gpu-naming-01"]
    got = {}
    for name in case["input"]["types"]:
        word = read_accelerator_word(name)
        got[name] = (word.type, word.memory_mib) if word else None

    assert got == {
        "nvidia_a100-sxm4-80gb": ("a100", 81_920),
        "a100": ("a100", None),
        "A100_80": ("a100", 81_920),
        "nvidia_h100_80gb_hbm3": ("h100", 81_920),
        "h100_nvl": ("h100", None),
        "nvidia_geforce_rtx_2080_ti": ("rtx2080ti", None),
        "nvidia-rtx-3090": ("rtx3090", None),
        "tesla_v100-sxm2-32gb": ("v100", 32_768),
        "1g.10gb": None,  # a slice is no whole GPU
        "a100_3g.20gb": None,
        "gfx90a": None,  # a family, no model
        "mi250x": ("mi250x", None),
        "max_1550": ("max1550", None),
    }


def test_every_case_of_the_file_is_covered_here() -> None:
    source = Path(__file__).read_text("utf-8")

    assert [case for case in CASES if f'"{case}"' not in source] == []


def test_both_dialects_are_found_and_slurm_decides() -> None:
    found = sniff(read_text(CASES["dialect-differences-07"]["input"]["script"]))

    assert (found.dialect, found.others) == ("slurm", ("pbs",))
