"""What cannot be read or done is refused in Slurm's words, and nothing is silently ignored."""

import pytest

from tests.unit.sandbox.conftest import Site

FAILED = "sbatch: error: Batch job submission failed: "


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ("-p", "nosuch"),
            f"sbatch: error: invalid partition specified: nosuch\n{FAILED}Invalid partition name specified\n",
        ),
        (("-A", "wrong"), f"{FAILED}Invalid account or account/partition combination specified\n"),
        (("-q", "wrong"), f"{FAILED}Invalid qos specification\n"),
        (("--gres=gpu:5",), f"{FAILED}Requested node configuration is not available\n"),
        (("--gres=gpu:h100:1",), f"{FAILED}Requested node configuration is not available\n"),
        (("--gres=fpga:1",), f"{FAILED}Invalid generic resource (gres) specification\n"),
        (
            ("--mem=900G",),
            (
                "sbatch: error: Memory specification can not be satisfied\n"
                f"{FAILED}Requested node configuration is not available\n"
            ),
        ),
        (("-N", "3"), f"{FAILED}Requested node configuration is not available\n"),
        (("-C", "nofeat"), f"{FAILED}Invalid feature specification\n"),
        (("-p", "closed"), f"{FAILED}Required partition not available (inactive or drain)\n"),
        (("--reservation=none",), f"{FAILED}Requested reservation is invalid\n"),
        (("-a", "5-1"), f"{FAILED}Invalid job array specification\n"),
        (("-d", "afterwards:1"), f"{FAILED}Job dependency problem\n"),
        (("-t", "soon"), "sbatch: error: Invalid --time specification\n"),
        (("-n", "0"), 'sbatch: error: Invalid numeric value "0" for --ntasks.\n'),
        (
            ("--colour",),
            "sbatch: unrecognized option '--colour'\nTry \"sbatch --help\" for more information\n",
        ),
        (("-L", "matlab"), f"{FAILED}Invalid license specification\n"),
    ],
)
def test_a_submission_is_refused(site: Site, options: tuple[str, ...], words: str) -> None:
    done = site.run("sbatch", *options, stdin="#!/bin/sh\ntrue\n")

    assert (done.returncode, done.stdout, done.stderr) == (1, "", words)
    assert site.ask("squeue", "-h") == ""


def test_a_refused_shape_burns_an_id_and_leaves_a_failed_record(site: Site) -> None:
    site.run("sbatch", "--gres=gpu:5", stdin="#!/bin/sh\n")

    assert site.ask("sacct", "-nXP", "-o", "JobID,State,ExitCode") == "1|FAILED|1:0\n"
    assert site.submit("true") == "2"


def test_a_submit_limit_is_named_before_the_refusal(site: Site) -> None:
    for _ in range(2):
        site.submit("sleep 60", "-p", "debug")

    assert site.run("sbatch", "-p", "debug", stdin="#!/bin/sh\n").stderr == (
        "sbatch: error: QOSMaxSubmitJobPerUserLimit\n"
        f"{FAILED}Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n"
    )
    assert site.ask("squeue", "-h", "-o", "%t %r").splitlines() == ["PD QOSMaxJobsPerUserLimit", "R None"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("", "sbatch: error: Batch script is empty!\n"),
        ("echo hello\n", "sbatch: error: This does not look like a batch script.  The first\n"),
        ("#!/bin/sh\r\ntrue\r\n", "sbatch: error: Batch script contains DOS line breaks (\\r\\n)\n"),
        ("#!/bin/sh\n#SBATCH --colour=red\n", "sbatch: unrecognized option '--colour'\n"),
    ],
)
def test_a_script_that_is_none_is_refused(site: Site, script: str, words: str) -> None:
    done = site.run("sbatch", stdin=script)

    assert done.returncode == 1
    assert done.stderr.startswith(words)


def test_directives_end_at_the_first_command_and_yield_to_the_command_line(site: Site) -> None:
    script = (
        "#!/bin/bash\n#SBATCH -J mine --exclusiv\n##SBATCH -N 9\n#SBATCH -t 2:30 # so\ntrue\n#SBATCH -N 9\n"
    )

    site.run("sbatch", "-H", "-p", "cpu", "-J", "yours", stdin=script)

    assert site.ask("squeue", "-h", "-o", "%j %D %l %h") == "yours 1 3:00 NO\n"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("squeue", "-O", "JobID,Colour"), "squeue: error: Invalid job format specification: Colour\n"),
        (("squeue", "-o", "%i %H"), "squeue: error: Unrecognized job format specification: %H\n"),
        (
            ("squeue", "--json"),
            "squeue: unrecognized option '--json'\nTry \"squeue --help\" for more information\n",
        ),
        (("squeue", "-j", "99999"), "slurm_load_jobs error: Invalid job id specified\n"),
        (("squeue", "-u", "nobody-here"), "squeue: error: Invalid user: nobody-here\n"),
        (("sinfo", "-O", "Colour"), "sinfo: error: Invalid node format specification: Colour\n"),
        (("sacct", "--format=JobID,Planned"), 'sacct: error: Invalid field requested: "Planned"\n'),
        (("scontrol", "show", "node", "zz9"), "Node zz9 not found\n"),
        (("scontrol", "show", "job", "99999"), "slurm_load_jobs error: Invalid job id specified\n"),
        (("scontrol", "dance"), "invalid keyword: dance\n"),
        (
            ("scontrol", "update", "NodeName=g01", "State=DRAIN", "Reason=x"),
            "slurm_update error: Access/permission denied\n",
        ),
        (("sacctmgr", "add", "user", "x"), "sacctmgr: error: add: Access/permission denied\n"),
    ],
)
def test_an_unknown_request_is_an_error(site: Site, argv: tuple[str, ...], words: str) -> None:
    done = site.run(*argv)

    assert (done.returncode, done.stdout, done.stderr) == (1, "", words)


def test_an_unknown_id_among_known_ones_is_passed_over(site: Site) -> None:
    job = site.submit("sleep 30")

    assert site.ask("squeue", "-h", "-j", f"{job},99999", "-o", "%i") == f"{job}\n"
    assert site.ask("sacct", "-nX", "-j", "99999") == ""


def test_a_test_only_submission_says_when_and_where_and_queues_nothing(site: Site) -> None:
    done = site.run("sbatch", "--test-only", "-p", "cpu", "-n", "20", "--wrap", "true")

    assert done.returncode == 0
    assert done.stderr.startswith("sbatch: Job 1 to start at ")
    assert done.stderr.endswith(" using 20 processors on nodes c[01-02] in partition cpu\n")
    assert site.ask("squeue", "-h") == ""
    refused = site.run("sbatch", "--test-only", "-A", "wrong", "--wrap", "true")
    assert (refused.returncode, refused.stderr) == (
        1,
        "allocation failure: Invalid account or account/partition combination specified\n",
    )


def test_an_administrator_drains_a_node_and_gives_it_back(site: Site) -> None:
    site.ask("scontrol", "update", "NodeName=c01", "State=DRAIN", "Reason=fan", user="root")
    assert site.ask("sinfo", "-h", "-p", "cpu", "-o", "%t %N").splitlines() == ["drain c01", "idle c02"]

    site.ask("scontrol", "update", "NodeName=c01", "State=RESUME", user="root")
    assert site.ask("sinfo", "-h", "-p", "cpu", "-o", "%t %N") == "idle c[01-02]\n"


def test_a_held_job_starts_when_released(site: Site) -> None:
    job = site.submit("true", "-H")
    assert site.ask("squeue", "-h", "-o", "%t %r %Q") == "PD JobHeldUser 0\n"

    site.ask("scontrol", "release", job)

    site.wait(job, "COMPLETED")
