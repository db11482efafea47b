"""Traps of real batch scripts, dialect by dialect."""

import pytest

from providers.dialects.scripts.sniff import read_script, sniff
from providers.dialects.scripts.text import read_text
from providers.dialects.scripts.types import ArrayAsk, MemoryAsk, ScriptRequest, Span
from providers.errors import InvalidInput


def slurm(*directives: str, body: str = "srun ./a.out") -> ScriptRequest:
    lines = ["#!/bin/bash", *(f"#SBATCH {directive}" for directive in directives), body]
    return read_script("\n".join(lines) + "\n")


def pbs(*directives: str) -> ScriptRequest:
    return read_script("\n".join(["#!/bin/bash", *(f"#PBS {d}" for d in directives), "./a.out"]))


def lsf(*directives: str) -> ScriptRequest:
    return read_script("\n".join(["#!/bin/bash", *(f"#BSUB {d}" for d in directives), "./a.out"]))


def fixed(count: int) -> Span:
    return Span(min=count, max=count)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        ("", "empty_script"),
        ("  \n\t\n", "empty_script"),
        ("\ufeff", "empty_script"),
        (b"\x7fELF\x02\x01\x01\x00", "binary_script"),
        (b"\xff\xfe#\x00!\x00", "binary_script"),
        ("#!/bin/bash\n#SBATCH -n 1\n\x00\x01", "binary_script"),
        (None, "wrong_type"),
        (17, "wrong_type"),
        (["#!/bin/bash"], "wrong_type"),
        ("#" * 1_000_001, "script_too_long"),
        ("#!/bin/bash\necho hello\n", "no_directives"),
    ],
)
def test_what_is_no_batch_script_is_refused_by_name(raw: object, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_script(raw)

    assert [problem[1] for problem in caught.value.problems] == [code]
    assert caught.value.problems[0][0] == "/script"


def test_an_unknown_dialect_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="slurm, pbs, lsf, sge, flux, cobalt, oar"):
        read_script("#!/bin/sh\n", dialect="condor")


def test_a_named_dialect_reads_a_script_without_directives_as_silent() -> None:
    request = read_script("#!/bin/bash\necho hello\n", dialect="slurm")

    assert (request.nodes, request.cpus, request.gpus, request.walltime_s) == (None, None, None, None)


def test_a_byte_order_mark_and_a_missing_shebang_are_remarked() -> None:
    request = read_script("\ufeff#SBATCH -n 2\n")

    assert request.tasks == fixed(2)
    assert "byte-order mark" in request.refusals[0].why
    assert "no #! line" in request.warnings[0].why


def test_en_dashes_are_read_and_refused() -> None:
    request = read_script("#!/bin/bash\n#SBATCH \u2013n 4\n#SBATCH \u2013time=10\n")

    assert request.tasks == fixed(4)
    assert request.walltime_s == fixed(600)
    assert [note.line for note in request.refusals] == [2, 3]
    assert "typographic dashes" in request.refusals[0].why


def test_two_and_a_half_means_four_different_things() -> None:
    assert slurm("-t 2:30").walltime_s == fixed(180)
    assert pbs("-l walltime=2:30").walltime_s == fixed(150)
    assert lsf("-n 1", "-W 2:30").walltime_s == fixed(9000)
    assert read_script("#!/bin/sh\n#OAR -l nodes=1,walltime=2:30\n").walltime_s == fixed(9000)
    assert "Invalid --time-limit specification" in read_script("#!/bin/sh\n# flux: -t 2:30\n").refusals[0].why


def test_thirty_is_minutes_in_slurm_flux_cobalt_and_lsf_and_seconds_in_pbs_and_sge() -> None:
    assert slurm("-t 30").walltime_s == fixed(1800)
    assert read_script("#!/bin/sh\n# flux: -t 30\n").walltime_s == fixed(1800)
    assert read_script("#!/bin/sh\n#COBALT -t 30\n").walltime_s == fixed(1800)
    assert lsf("-W 30").walltime_s == fixed(1800)
    assert pbs("-l walltime=30").walltime_s == fixed(30)
    assert read_script("#!/bin/sh\n#$ -l h_rt=30\n").walltime_s == fixed(30)


def test_template_holes_are_asked_for() -> None:
    request = slurm("--time={{ hours }}:00:00 --job-name={{name}}", "-p <QUEUE>")

    assert request.walltime_s is None
    assert request.variables == ("hours", "name", "QUEUE")
    assert not request.is_valid


def test_an_unknown_option_is_reported_and_never_guessed() -> None:
    request = slurm("--frobnicate=7", "-n 2")

    assert [(note.line, note.text) for note in request.not_understood] == [(2, "--frobnicate=7")]
    assert request.tasks == fixed(2)


def test_an_open_quote_is_refused() -> None:
    assert "never closed" in slurm('--job-name="big').refusals[0].why


def test_several_options_on_one_line_and_glued_short_ones() -> None:
    request = slurm("-N2 -n8 -c4 -Aacct1 -pgpu -t1-0 --gres=gpu:a100:4")

    assert request.nodes == fixed(2)
    assert request.cpus == fixed(32)
    assert (request.account, request.partition) == ("acct1", "gpu")
    assert request.walltime_s == fixed(86_400)
    assert request.gpus == fixed(8)
    assert request.gpu_types == ("a100",)
    assert request.reasons["gpus"] == "4 per node"
    assert request.lines["gpus"] == (2,)


def test_gres_that_are_no_whole_gpus_pass_through_and_are_reported() -> None:
    request = slurm("--gres=gpu:2,shard:4,nvme:100")

    assert request.gpus == fixed(2)
    assert request.extra == ("--gres=shard:4", "--gres=nvme:100")
    assert [note.text for note in request.not_understood] == ["--gres=shard:4", "--gres=nvme:100"]


def test_gres_none_asks_for_no_gpu() -> None:
    assert slurm("--gres=none").gpus == fixed(0)


def test_gpus_that_do_not_fit_the_nodes_are_a_conflict() -> None:
    request = slurm("-N 2", "--gpus-per-node=2", "--gpus=8")

    assert request.gpus == fixed(8)
    assert "--gpus=8 does not fit 2 per node on 2-2 nodes" in request.conflicts[0].why


def test_memory_per_node_without_nodes_says_what_it_assumed() -> None:
    request = slurm("-n 8", "--mem=64G")

    assert request.memory_asked == MemoryAsk(mib=65_536, per="node")
    assert request.memory_mib == fixed(65_536)
    assert "reckoned for one" in request.reasons["memory_mib"]


def test_exclusive_user_shares_no_node_with_others_but_is_not_whole_node() -> None:
    assert slurm("--exclusive").exclusive is True
    assert slurm("--exclusive=user").exclusive is False
    assert slurm("--exclusive=user").extra == ("--exclusive=user",)


def test_arrays_count_their_tasks() -> None:
    assert slurm("--array=0-9:3,20%2").array == ArrayAsk(text="0-9:3,20%2", count=5, step=1, max_concurrent=2)
    assert slurm("--array=a-b").array == ArrayAsk(text="a-b")


def test_mail_is_ignored_and_licenses_pass_through() -> None:
    request = slurm("--mail-user=me@example.org", "-L matlab:1", "--signal=B:USR1@60")

    assert request.extra == ("--licenses=matlab:1", "--signal=B:USR1@60")
    assert [note.text for note in request.ignored] == ["--mail-user=me@example.org"]


def test_a_heterogeneous_job_reads_its_first_component_and_says_so() -> None:
    request = slurm("-n 2", "hetjob", "-n 64 --gres=gpu:8")

    assert request.tasks == fixed(2)
    assert request.gpus is None
    assert "only its first component" in request.not_understood[0].why


def test_the_body_says_modules_environment_and_container() -> None:
    body = "\n".join(
        [
            "module purge; module load gcc/12 cuda/12.3",
            "ml openmpi",
            "module load $EXTRA",
            "source activate sim",
            "srun apptainer exec --nv -B /scratch:/scratch /img/lammps.sif lmp -in x",
        ]
    )
    said = slurm("-n 2", body=body).body

    assert said.modules == ("gcc/12", "cuda/12.3", "openmpi")
    assert said.conda_env == "sim"
    assert (said.container_runtime, said.container_image) == ("apptainer", "/img/lammps.sif")
    assert [note.why for note in said.notes] == ["module $EXTRA holds a variable"]
    assert said.lines["conda_env"] == (6,)


def test_commented_commands_say_nothing() -> None:
    said = slurm("-n 2", body="# module load gcc\n# apptainer exec x.sif y\ntrue").body

    assert (said.modules, said.container_runtime, said.is_launcher) == ((), None, False)


def test_pyxis_and_shifter_images_are_read() -> None:
    pyxis = slurm("-n 1", body="srun --container-image=nvcr.io#nvidia/pytorch:24.01 python t.py").body
    shifter = slurm("-n 1", body="srun shifter --image=docker:ubuntu:22.04 ./x").body

    assert (pyxis.container_runtime, pyxis.container_image) == ("pyxis", "nvcr.io#nvidia/pytorch:24.01")
    assert (shifter.container_runtime, shifter.container_image) == ("shifter", "docker:ubuntu:22.04")


def test_torque_nodes_multiply_and_properties_are_reported() -> None:
    request = pbs("-l nodes=2:ppn=8:gpus=2:bigmem,walltime=1:00:00", "-t 0-9%3", "-d /w")

    assert (request.nodes, request.cpus, request.gpus) == (fixed(2), fixed(16), fixed(4))
    assert request.array == ArrayAsk(text="0-9%3", count=10, max_concurrent=3)
    assert request.workdir == "/w"
    assert [note.text for note in request.not_understood] == ["bigmem"]


def test_pbs_without_a_unit_is_bytes() -> None:
    assert pbs("-l ncpus=4,mem=1073741824").memory_mib == fixed(1024)
    assert "Invalid mem specification" in pbs("-l mem=1.5gb").refusals[0].why


def test_pbs_chunks_without_memory_have_no_total() -> None:
    request = pbs("-l select=1:ncpus=4:mem=8gb+1:ncpus=4")

    assert request.memory_mib is None
    assert "not every chunk names its memory" in request.warnings[0].why


def test_lsf_host_span_and_slot_ranges() -> None:
    request = lsf("-n 4,16", '-R "span[hosts=1]"', "-x", '-gpu "num=1/task"')

    assert request.tasks == Span(min=4, max=16)
    assert request.nodes == fixed(1)
    assert request.exclusive is True
    assert request.gpus == Span(min=4, max=16)


def test_grid_engine_directives_count_after_commands_too() -> None:
    request = read_script("#!/bin/bash\n#$ -pe mpi 16-64\ncd /w\n#$ -l h_rt=1:00:00,mem_free=2G\n")

    assert request.cpus == Span(min=16, max=64)
    assert request.nodes is None
    assert request.walltime_s == fixed(3600)
    assert request.memory_mib == Span(min=32_768, max=131_072)


def test_cobalt_gives_whole_nodes_and_names_filesystems() -> None:
    request = read_script(
        "#!/bin/bash\n#COBALT -n 8 -t 1:30:00 -q prod -A proj\n"
        "#COBALT --attrs filesystems=home,eagle:mcdram=flat\n./x\n"
    )

    assert request.nodes == fixed(8)
    assert request.exclusive is True
    assert request.walltime_s == fixed(5400)
    assert (request.partition, request.account) == ("prod", "proj")
    assert request.filesystems == ("home", "eagle")
    assert request.extra == ("--attrs mcdram=flat",)


def test_oar_properties_in_braces_and_cores() -> None:
    request = read_script(
        "#!/bin/sh\n#OAR -l {gpu_model='V100'}/host=2/core=4,walltime=2\n#OAR -q besteffort\n"
    )

    assert (request.nodes, request.cpus) == (fixed(2), fixed(8))
    assert request.gpu_types == ("V100",)
    assert request.walltime_s == fixed(7200)


@pytest.mark.parametrize(
    ("line", "dialect"),
    [
        ("#SBATCH -n 1", "slurm"),
        ("#PBS -l ncpus=1", "pbs"),
        ("#BSUB -n 1", "lsf"),
        ("#$ -pe smp 1", "sge"),
        ("# flux: -n1", "flux"),
        ("#FLUX: -n1", "flux"),
        ("#COBALT -n 1", "cobalt"),
        ("#OAR -l core=1", "oar"),
        ("# just $HOME", None),
    ],
)
def test_a_dialect_is_known_by_its_prefix(line: str, dialect: str | None) -> None:
    found = sniff(read_text(f"#!/bin/sh\n{line}\ntrue\n"))

    assert found.dialect == dialect
    assert found.reason


def test_directives_inside_a_here_document_do_not_decide_the_dialect() -> None:
    found = sniff(read_text("#!/bin/sh\n#PBS -l ncpus=1\ncat <<EOF > x\n#SBATCH -n 4\nEOF\n"))

    assert (found.dialect, found.others) == ("pbs", ())


def test_ignore_pbs_is_obeyed() -> None:
    request = read_script("#!/bin/sh\n#SBATCH --ignore-pbs -t 10\n#PBS -l walltime=1:00:00\n")

    assert request.walltime_s == fixed(600)
    assert "pbs directives are comments to slurm" in request.ignored[0].why


def test_bsub_lines_beside_sbatch_lines_are_reported() -> None:
    request = read_script("#!/bin/sh\n#SBATCH -t 10\n#BSUB -W 2:30\n")

    assert request.walltime_s == fixed(600)
    assert "sbatch translates #BSUB lines too" in request.not_understood[0].why


def test_two_gpu_types_in_one_option_are_reported() -> None:
    request = slurm("--gres=gpu:a100:2,gpu:v100:2")

    assert request.gpus == fixed(4)
    assert request.gpu_types == ("a100", "v100")
    assert "asks for both types" in request.not_understood[0].why


def test_tasks_that_do_not_fill_the_last_node_still_need_it() -> None:
    request = slurm("-n 9 --ntasks-per-node=4")

    assert request.nodes == fixed(3)
    assert request.reasons["nodes"] == "9 tasks at 4 per node"


def test_seconds_round_up_to_the_minute_with_a_reason() -> None:
    request = slurm("-t 0:01")

    assert request.walltime_s == fixed(60)
    assert request.reasons["walltime_s"] == "Slurm limits count in whole minutes"
