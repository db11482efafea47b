"""Rendered scripts, read back as Slurm would and run by bash as a compute node would."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from providers.dialects.body import ENVIRONMENT_EXIT, WORKDIR_EXIT, quote, split_script
from providers.dialects.slurm.script import render_script
from providers.errors import InvalidInput
from providers.types import JobRequest

RUN = " /i.sif python -c print( )"
PLACES = {"workdir": "/scratch/w", "stdout_path": "/scratch/w/out", "stderr_path": "/scratch/w/err"}


def job(**given: Any) -> JobRequest:
    kinds = {"argv", "shell_command", "script"} & set(given)
    work = {} if kinds else {"argv": ("true",)}
    return JobRequest(**{"submit_key": "k1", "name": "n", "walltime_s": 3600, **PLACES, **work, **given})


def directives(script: str) -> list[str]:
    """Return the options sbatch reads: it stops at the first line that is neither comment nor blank."""
    found = []
    for line in script.split("\n"):
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith("#SBATCH"):
            found.append(line.removeprefix("#SBATCH "))
    return found


def run(script: str, *, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the script as slurmstepd does: from a file, found by nobody's shell start-up."""
    path = cwd / "slurm_script"
    path.write_bytes(script.encode())
    return subprocess.run(
        ["/bin/bash", str(path)],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=20,
        cwd=cwd,
        env={"PATH": f"{cwd}/bin:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", "HOME": str(cwd), **env},
        check=False,
    )


def here(tmp_path: Path, **given: Any) -> JobRequest:
    work = tmp_path / "work dir's"
    work.mkdir(exist_ok=True)
    return job(
        **{"workdir": str(work), "stdout_path": f"{tmp_path}/out", "stderr_path": f"{tmp_path}/err", **given}
    )


# --- directives -----------------------------------------------------------------------------------


def test_every_figure_becomes_a_directive_in_slurms_units() -> None:
    script = render_script(
        job(
            account="bbka-delta-gpu",
            partition="gpuA100x4",
            qos="normal",
            reservation="maint-2",
            nodes=2,
            cpus=33,
            gpus=7,
            gpu_type="a100",
            memory_mib=100_001,
            walltime_s=90_001,
            constraint="(a100|a40)&nvlink",
            exclusive=True,
            signal="B:USR1@120",
            requeue=True,
            workdir="/scratch/my work",
            stdout_path="/scratch/%j/out",
            extra_directives=("--mail-type=END", "-k"),
        )
    )

    assert directives(script) == [
        "--mail-type=END",
        "-k",
        "--job-name=k1",
        "--comment=facet:k1",
        "--account=bbka-delta-gpu",
        "--partition=gpuA100x4",
        "--qos=normal",
        "--reservation=maint-2",
        "--nodes=2",
        "--ntasks=2",
        "--ntasks-per-node=1",
        "--cpus-per-task=17",
        "--mem=50001M",
        "--gres=gpu:a100:4",
        "--time=1-01:01:00",
        '--constraint="(a100|a40)&nvlink"',
        "--exclusive",
        "--signal=B:USR1@120",
        "--requeue",
        "--open-mode=append",
        '--chdir="/scratch/my work"',
        '--output="/scratch/%%j/out"',
        '--error="/scratch/w/err"',
    ]


@pytest.mark.parametrize(
    ("given", "present", "absent"),
    [
        ({"gpus": 4, "gpu_spelling": "gpus-per-node"}, "--gpus-per-node=4", "--gres"),
        (
            {"gpus": 4, "gpu_type": "gh200", "gpu_spelling": "gpus-per-node"},
            "--gpus-per-node=gh200:4",
            "--gres",
        ),
        ({"gpus": 4, "gpu_spelling": "none"}, "--nodes=1", "gpu"),
        ({"gpus": 4}, "--gres=gpu:4", "--gpus"),
        ({"gpus": 0, "gpu_type": "a100"}, "--nodes=1", "gpu"),
        ({"memory_mib": 0}, "--mem=0", "--mem=0M"),
        ({"memory_mib": None}, "--nodes=1", "--mem"),
        ({"memory_mib": 4096, "memory_spelling": "none"}, "--nodes=1", "--mem"),
        ({"tasks": 8, "cpus": 20, "nodes": 2}, "--cpus-per-task=3", "--ntasks-per-node=1"),
        ({"tasks": 8, "nodes": 2}, "--ntasks-per-node=4", "--requeue"),
        ({"tasks": 3, "nodes": 2}, "--ntasks=3", "--ntasks-per-node"),
        ({"walltime_s": 1}, "--time=0-00:01:00", "--time=0-00:00"),
        ({"walltime_s": 60}, "--time=0-00:01:00", "--exclusive"),
        ({"walltime_s": 61}, "--time=0-00:02:00", "--qos"),
        ({"requeue": False}, "--no-requeue", "--requeue"),
    ],
)
def test_each_spelling_is_chosen_by_its_field(given: dict[str, Any], present: str, absent: str) -> None:
    lines = directives(render_script(job(**given)))

    assert present in lines
    assert not any(absent in line for line in lines if line != present and not line.startswith("--no-"))


@pytest.mark.parametrize(
    "given",
    [
        {"submit_key": "a,b"},
        {"submit_key": ""},
        {"submit_key": "k" * 129},
        {"submit_key": "-k"},
        {"account": "x\n#SBATCH --uid=0"},
        {"partition": "a b"},
        {"qos": "q#"},
        {"reservation": ""},
        {"gpus": 1, "gpu_type": "a100 --uid"},
        {"gpus": 1, "gpu_type": "a100:4"},
        {"gpus": -1},
        {"constraint": 'a"b'},
        {"signal": "B:USR1@120 --x"},
        {"workdir": "relative"},
        {"workdir": '/a"b'},
        {"stdout_path": "/a\\b"},
        {"stderr_path": "/a\nb"},
        {"walltime_s": 0},
        {"nodes": 0},
        {"cpus": 0},
        {"tasks": 1, "nodes": 2},
        {"memory_mib": -1},
        {"extra_directives": ("--x=1\n#SBATCH --y",)},
        {"extra_directives": ("not an option",)},
        {"extra_directives": ("--wrap=true",)},
        {"extra_directives": ("--wra=true",)},
        {"extra_directives": ("-W",)},
        {"extra_directives": ("--wait",)},
        {"extra_directives": ("--test-only",)},
        {"extra_directives": ("--uid=0",)},
        {"variables": {"A B": "x"}},
        {"variables": {"A=$(id)": "x"}},
        {"variables": {"A": "x\0"}},
        {"modules": ("--help",)},
        {"conda": "-n"},
        {"argv": ()},
        {"argv": ("",)},
        {"argv": ("true",), "shell_command": "true"},
        {"script": " \n"},
        {"container_image": "x.sif", "container_runtime": "lxc"},
        {"container_image": "--privileged"},
    ],
)
def test_what_cannot_be_rendered_safely_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        render_script(job(**given))


@pytest.mark.parametrize(
    "option", ["--wait-all-nodes=1", "--array=0-9%2", "-x cn[01-02]", "--mail-user=a@b.c"]
)
def test_options_that_the_envelope_does_not_cover_are_kept(option: str) -> None:
    assert directives(render_script(job(extra_directives=(option,))))[0] == option


# --- injection ------------------------------------------------------------------------------------

nasty = st.text(
    alphabet=st.one_of(
        st.sampled_from("\n\r\t '\"\\$`;&|#!%(){}<>*~-\u2028\x1f"), st.characters(codec="utf-8")
    ),
    max_size=30,
)


NAMED_FIELDS = (
    *("account", "partition", "qos", "reservation", "gpu_type", "constraint", "signal", "submit_key"),
    *("workdir", "stdout_path", "stderr_path", "conda", "container_image", "container_runtime"),
)
tame = st.text(alphabet="aZ0 %#'$`;&|()!{}<>*~?=é-", max_size=20)
"""Everything that a path or a module's name may hold and a shell would act on."""


def lines_of(script: str) -> list[str]:
    return re.split(r"\r\n|\n|\r", script)


def names_of(script: str) -> list[str]:
    return [line.partition("=")[0] for line in directives(script)]


@settings(max_examples=150, deadline=None)
@given(
    name=nasty,
    variables=st.dictionaries(
        st.sampled_from(["A", "B_1", "_x"]), nasty.filter(lambda text: "\0" not in text)
    ),
    argv=st.lists(nasty.filter(lambda text: "\0" not in text), max_size=3),
    paths=st.tuples(tame, tame, tame),
    modules=st.lists(tame, max_size=2),
)
def test_no_field_ever_adds_a_directive_or_a_line(
    name: str, variables: dict[str, str], argv: list[str], paths: tuple[str, str, str], modules: list[str]
) -> None:
    plain = render_script(
        job(variables=dict.fromkeys(variables, "v"), conda="c", modules=("m",) * len(modules))
    )

    script = render_script(
        job(
            name=name,
            variables=variables,
            argv=("x", *argv),
            workdir=f"/{paths[0]}",
            stdout_path=f"/{paths[1]}",
            stderr_path=f"/{paths[2]}",
            conda=f"c{paths[0]}",
            modules=tuple(f"m{each}" for each in modules),
        )
    )

    assert len(lines_of(script)) == len(lines_of(plain))
    assert names_of(script) == names_of(plain)
    checked = subprocess.run(
        ["bash", "-n"], input=script.encode(), capture_output=True, timeout=20, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, b"")


@settings(max_examples=150, deadline=None)
@given(
    field=st.sampled_from(NAMED_FIELDS),
    text=nasty,
)
def test_a_nasty_field_is_refused_or_harmless(field: str, text: str) -> None:
    text = f"/{text}" if field.endswith(("path", "dir")) else text
    tame_text = {"container_runtime": "docker", "signal": "USR1"}.get(
        field, "/x" if text.startswith("/") else "x"
    )
    others = {"gpus": 1, "container_image": "x"} if field.startswith(("gpu", "container")) else {}
    try:
        script = render_script(job(**{**others, field: text}))
    except InvalidInput:
        return

    plain = render_script(job(**{**others, field: tame_text}))
    assert names_of(script) == names_of(plain)
    if field != "container_runtime":
        assert len(lines_of(script)) == len(lines_of(plain))


@settings(max_examples=40, deadline=None)
@example(words=["a\\n\nb", "\\'\t"])
@given(words=st.lists(nasty.filter(lambda text: "\0" not in text), min_size=1, max_size=5))
def test_a_quoted_word_reaches_the_program_byte_for_byte(words: list[str]) -> None:
    line = "printf '%s\\0' " + " ".join(quote(word) for word in words)

    got = subprocess.run(["/bin/bash", "-c", line], capture_output=True, timeout=20, check=True).stdout

    assert "\n" not in line
    assert got.decode().split("\0")[:-1] == words


# --- run by bash ----------------------------------------------------------------------------------


def test_arguments_and_variables_arrive_exactly(tmp_path: Path) -> None:
    odd = ["a b", "", "$HOME", "it's", 'q"q', "line\nbreak", "*", "\\n", "ü", "-x"]

    got = run(
        render_script(
            here(
                tmp_path, argv=("/usr/bin/printf", "%s|", *odd), variables={"WHO": "x\n#SBATCH --uid=0 $(id)"}
            )
        ),
        cwd=tmp_path,
    )
    env = run(
        render_script(here(tmp_path, shell_command='printf %s "$WHO"', variables={"WHO": "x\n$(id)'"})),
        cwd=tmp_path,
    )

    assert got.stdout == "".join(f"{each}|" for each in odd)
    assert env.stdout == "x\n$(id)'"


@pytest.mark.parametrize(
    ("work", "code"),
    [
        ({"argv": ("/bin/sh", "-c", "exit 3")}, 3),
        ({"shell_command": "exit 4"}, 4),
        ({"shell_command": "true; false"}, 1),
        ({"shell_command": "if true; then"}, 1),
        ({"script": "#!/bin/bash\nexit 7\n"}, 7),
        ({"script": "#!/bin/sh\nfalse"}, 1),
        ({"script": "#!/bin/bash -e\nfalse\nexit 0\n"}, 1),
        ({"argv": ("/no/such/program",)}, 127),
    ],
)
def test_the_exit_code_of_the_work_is_the_jobs(tmp_path: Path, work: dict[str, Any], code: int) -> None:
    assert run(render_script(here(tmp_path, **work)), cwd=tmp_path).returncode in {
        code,
        2 if code == 1 else code,
    }


def test_work_runs_in_its_working_directory(tmp_path: Path) -> None:
    assert (
        run(render_script(here(tmp_path, argv=("pwd",))), cwd=tmp_path).stdout == f"{tmp_path}/work dir's\n"
    )


def test_a_bad_working_directory_fails_with_a_code_of_its_own(tmp_path: Path) -> None:
    got = run(render_script(job(workdir=f"{tmp_path}/gone", argv=("touch", f"{tmp_path}/ran"))), cwd=tmp_path)

    assert (got.returncode, got.stdout) == (WORKDIR_EXIT, "")
    assert "cannot enter the working directory" in got.stderr
    assert not (tmp_path / "ran").exists()


def test_set_up_lines_run_verbatim_in_the_shell_of_the_work(tmp_path: Path) -> None:
    setup = ("greet() { printf 'hi %s' \"$1\"; }\r", "export X=1 && \\\n  Y=2")

    got = run(render_script(here(tmp_path, shell_command='greet "$X$Y"', setup=setup)), cwd=tmp_path)

    assert (got.returncode, got.stdout) == (0, "hi 12")


def test_a_trap_set_by_set_up_lines_still_runs(tmp_path: Path) -> None:
    got = run(render_script(here(tmp_path, argv=("false",), setup=("trap 'echo bye' EXIT",))), cwd=tmp_path)

    assert (got.returncode, got.stdout) == (1, "bye\n")


def test_modules_are_loaded_or_the_job_fails_before_the_work(tmp_path: Path) -> None:
    module = 'module() { [ "$2" = cuda/12.1 ] && echo "loaded $2"; }\n'
    (tmp_path / "init").mkdir()
    (tmp_path / "init" / "bash").write_text(module)

    good = run(
        render_script(here(tmp_path, modules=("cuda/12.1",), argv=("echo", "work"))),
        cwd=tmp_path,
        LMOD_PKG=str(tmp_path),
    )
    bad = run(
        render_script(here(tmp_path, modules=("nope",), argv=("echo", "work"))),
        cwd=tmp_path,
        LMOD_PKG=str(tmp_path),
    )
    none = run(render_script(here(tmp_path, modules=("cuda/12.1",), argv=("echo", "work"))), cwd=tmp_path)

    assert good.stdout == "loaded cuda/12.1\nwork\n"
    assert (bad.returncode, bad.stdout) == (ENVIRONMENT_EXIT, "")
    assert "module nope could not be loaded" in bad.stderr
    assert (none.returncode, none.stdout) == (ENVIRONMENT_EXIT, "")


def test_a_conda_environment_is_activated_or_the_job_fails(tmp_path: Path) -> None:
    conda = tmp_path / "conda"
    conda.write_text("#!/bin/sh\necho 'conda() { [ \"$2\" = good ] && export ENV=$2; }'\n")
    conda.chmod(0o755)

    good = run(
        render_script(here(tmp_path, conda="good", shell_command="echo $ENV")),
        cwd=tmp_path,
        CONDA_EXE=str(conda),
    )
    bad = run(
        render_script(here(tmp_path, conda="bad", shell_command="echo $ENV")),
        cwd=tmp_path,
        CONDA_EXE=str(conda),
    )

    assert good.stdout == "good\n"
    assert (bad.returncode, bad.stdout) == (ENVIRONMENT_EXIT, "")


@pytest.mark.parametrize(
    "resume", [{"resume_argv": ("echo", "went on")}, {"resume_shell": "echo went on"}], ids=str
)
@pytest.mark.parametrize(
    "work", [{"argv": ("echo", "began")}, {"shell_command": "echo began"}, {"script": "echo began"}], ids=str
)
def test_the_work_goes_on_from_its_checkpoint_only_where_it_is_told(
    tmp_path: Path, work: dict[str, Any], resume: dict[str, Any]
) -> None:
    script = render_script(here(tmp_path, **work, **resume))

    assert run(script, cwd=tmp_path).stdout == "began\n"
    assert run(script, cwd=tmp_path, FACET_RESUME="1").stdout == "went on\n"


def test_a_resumed_shell_command_keeps_its_exit_code(tmp_path: Path) -> None:
    script = render_script(here(tmp_path, argv=("true",), resume_shell="(exit 7)"))

    assert run(script, cwd=tmp_path, FACET_RESUME="1").returncode == 7


def test_the_signal_for_the_batch_shell_reaches_the_work(tmp_path: Path) -> None:
    script = "#!/bin/bash\ntrap 'echo saved; exit 9' USR1\nkill -USR1 $$\nsleep 5\n"

    got = run(render_script(here(tmp_path, script=script)), cwd=tmp_path)

    assert (got.returncode, got.stdout) == (9, "saved\n")


@pytest.mark.parametrize("work", [{"argv": ("/bin/sh", "-c", "echo $$")}, {"script": "echo $$"}])
def test_the_batch_shell_becomes_the_work(tmp_path: Path, work: dict[str, Any]) -> None:
    path = tmp_path / "slurm_script"
    path.write_text(render_script(here(tmp_path, **work)))

    with subprocess.Popen(["/bin/bash", str(path)], stdout=subprocess.PIPE, text=True) as shell:
        printed, _ = shell.communicate(timeout=20)

    assert int(printed) == shell.pid


# --- a user's script ------------------------------------------------------------------------------


def test_a_script_keeps_everything_but_its_directives(tmp_path: Path) -> None:
    script = (
        "\ufeff#!/bin/bash\r\n#SBATCH -N 4\r\n#PBS -l walltime=1\r\n# a note\r\n#BSUB -W 1\r\n\r\n"
        "cat <<'EOF'\r\n#SBATCH stays $HOME\r\n  it's \\ `x`\r\nFACET_SCRIPT_END\r\nEOF\r\n"
        'printf "%s|" "$#" "${0##*/}"\r\nexit 7\r\n'
    )

    rendered = render_script(here(tmp_path, script=script))
    got = run(rendered, cwd=tmp_path)

    assert got.stdout == "#SBATCH stays $HOME\n  it's \\ `x`\nFACET_SCRIPT_END\n0|k1.script|"
    assert got.returncode == 7
    assert not any("-N 4" in line for line in directives(rendered))
    assert (tmp_path / "k1.script").read_text() == split_script(script)[1]
    assert [path.name for path in tmp_path.glob("k1.script*")] == ["k1.script"]


@pytest.mark.parametrize(
    ("text", "interpreter"),
    [
        ("#!/usr/bin/env python3\nprint(1)\n", ("/usr/bin/env", "python3")),
        ("#! /bin/bash -l\n:\n", ("/bin/bash", "-l")),
        ("#!/usr/bin/env -S python3 -u\n", ("/usr/bin/env", "-S python3 -u")),
        ("echo no shebang\n", ("/bin/bash",)),
        ("#!/bin/tcsh\r\nset x = 1\r\n", ("/bin/tcsh",)),
    ],
)
def test_the_shebang_is_read_as_the_kernel_reads_it(text: str, interpreter: tuple[str, ...]) -> None:
    assert split_script(text)[0] == interpreter


def test_a_python_script_runs_under_python(tmp_path: Path) -> None:
    script = "#!/usr/bin/env python3\n#SBATCH -N 1\nimport sys\nprint('py', len(sys.argv))\nsys.exit(5)\n"

    got = run(render_script(here(tmp_path, script=script)), cwd=tmp_path)

    assert (got.returncode, got.stdout) == (5, "py 1\n")


@pytest.mark.parametrize(
    "line",
    [
        "#SBATCH -N 1",
        "#PBS -N x",
        "#BSUB -q x",
        "#OAR -l x",
        "#MSUB -l x",
        "#$ -cwd",
        "#@ class = x",
        "# flux: -N1",
        "#flux: -n1",
    ],
)
def test_the_directives_of_every_scheduler_are_dropped(line: str) -> None:
    assert (
        split_script(f"#!/bin/bash\n{line}\n# kept\necho\n{line}\n")[1]
        == f"#!/bin/bash\n# kept\necho\n{line}\n"
    )


def test_a_script_that_cannot_be_written_fails_before_the_work(tmp_path: Path) -> None:
    got = run(
        render_script(here(tmp_path, script="echo ran\n", stdout_path="/no/such/place/out")), cwd=tmp_path
    )

    assert (got.returncode, got.stdout) == (ENVIRONMENT_EXIT, "")


# --- containers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"container_runtime": "apptainer", "gpus": 1},
            "exec --nv --bind {w} --pwd {w} /i.sif python -c print( )",
        ),
        ({"container_runtime": "singularity"}, "exec --bind {w} --pwd {w} /i.sif python -c print( )"),
        (
            {"container_runtime": "docker", "gpus": 2, "variables": {"A": "1"}},
            "run --rm --user {u} --gpus all --volume {w}:{w} --workdir {w} --env A --entrypoint " + RUN,
        ),
        (
            {"container_runtime": "podman", "gpus": 2},
            "run --rm --userns=keep-id --device nvidia.com/gpu=all --volume {w}:{w} --workdir {w} "
            "--entrypoint " + RUN,
        ),
        ({"container_runtime": None}, "exec --bind {w} --pwd {w} /i.sif python -c print( )"),
    ],
)
def test_each_container_runtime_gets_its_words(tmp_path: Path, given: dict[str, Any], expected: str) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / (given["container_runtime"] or "apptainer")
    program.write_text('#!/bin/sh\necho "$@"\nexit 6\n')
    program.chmod(0o755)

    got = run(
        render_script(here(tmp_path, container_image="/i.sif", argv=("python", "-c", "print( )"), **given)),
        cwd=tmp_path,
    )

    fill = {"w": f"{tmp_path}/work dir's", "u": f"{os.getuid()}:{os.getgid()}"}
    assert (got.returncode, got.stdout) == (6, expected.format(**fill) + "\n")


def test_a_script_in_a_container_sees_the_place_it_was_written_to(tmp_path: Path) -> None:
    script = render_script(here(tmp_path, container_image="/i.sif", script="#!/bin/sh -e\necho\n"))

    assert script.endswith(
        f'exec -- apptainer exec --bind "$PWD" --bind {tmp_path} --pwd "$PWD" /i.sif '
        f"/bin/sh -e {tmp_path}/k1.script\n"
    )


@pytest.mark.parametrize(
    "given",
    [
        {
            "argv": ("python", "-c", "print('x')"),
            "modules": ("a", "b"),
            "conda": "e",
            "variables": {"A": "'"},
        },
        {"shell_command": "for i in 1 2; do echo $i; done", "setup": ("set -u",)},
        {"script": "#!/bin/bash\ncat <<EOF\nx\nEOF\n", "container_image": "i.sif", "gpus": 1},
    ],
)
def test_bash_accepts_the_whole_script(given: dict[str, Any]) -> None:
    got = subprocess.run(
        ["bash", "-n"],
        input=render_script(job(**given)),
        text=True,
        capture_output=True,
        timeout=20,
        check=False,
    )

    assert (got.returncode, got.stderr) == (0, "")
