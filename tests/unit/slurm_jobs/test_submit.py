import pytest

from providers.dialects.slurm.submit import CLAIM, SUBMIT, build_submit, find_job_id, read_submit
from providers.types import BatchReply, Exec, JobRequest, MakeDirs, Reply, SubmitResult
from tests.unit.slurm_jobs.answers import DATA, answer

FAILED = "sbatch: error: Batch job submission failed: "


def result(reply: Reply) -> SubmitResult:
    return read_submit(BatchReply(replies={SUBMIT: reply}))


def test_directories_come_before_one_sbatch_with_the_script_on_its_input() -> None:
    job = JobRequest(
        submit_key="k1",
        name="n",
        walltime_s=60,
        workdir="/scratch/w",
        stdout_path="/scratch/w/logs/o",
        stderr_path="/scratch/w/logs/e",
        argv=("true",),
    )

    batch = build_submit(job)

    *directories, claim, submit = batch.operations
    assert [each.path for each in directories if isinstance(each, MakeDirs)] == [
        "/scratch/w",
        "/scratch/w/logs",
        "/scratch/w/logs/.facet",
    ]
    assert isinstance(claim, Exec)
    assert claim.argv == ("mkdir", "--", "/scratch/w/logs/.facet/submitted-k1-1")
    assert isinstance(submit, Exec)
    assert (submit.argv, submit.cwd, submit.timeout_s) == (("sbatch", "--parsable"), "/scratch/w", 30.0)
    assert (submit.stdin or "").startswith("#!/bin/bash\n#SBATCH --job-name=k1\n")
    assert batch.deadline_s > submit.timeout_s
    assert submit.requires == claim.name


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ("mkdir: cannot create directory '/w/.facet/submitted-k1-1': File exists", "doubtful"),
        ("mkdir: cannot create directory '/w/.facet/submitted-k1-1': Permission denied", "rejected"),
    ],
)
def test_a_submission_that_was_carried_out_before_is_in_doubt_and_not_done_again(
    said: str, outcome: str
) -> None:
    claim = answer(CLAIM, "", stderr=said, rc=1)
    skipped = answer(SUBMIT, "", rc=None, skipped=True)

    got = read_submit(BatchReply(replies={CLAIM: claim, SUBMIT: skipped}))

    assert got.outcome == outcome
    assert ("before" in got.explained) == (outcome == "doubtful")


@pytest.mark.parametrize(
    ("stdout", "job_id"),
    [
        ("40\n", "40"),
        ("39;ora25\n", "39"),
        ("Submitted batch job 40\n", "40"),
        ("Submitted batch job 4410233 on cluster seahorse\n", "4410233"),
        ("*** 50 jobs allowed ***\n12\nWelcome\n77;delta\n", "77"),
        ('{"meta": {}, "job_id": 812, "step_id": "batch"}\n', "812"),
        ('banner\n{"job_id": "813"}', "813"),
        ('{"job_id": true}', None),
        ('{"job_id": 0}', None),
        ("{cut", None),
        ("0\n", None),
        ("Enforcing max jobs per user (50)...OK\n", None),
        ("", None),
    ],
)
def test_the_id_is_found_among_whatever_a_site_prints(stdout: str, job_id: str | None) -> None:
    assert find_job_id(stdout) == job_id


def test_an_accepted_job_keeps_the_sites_warnings() -> None:
    got = result(answer(SUBMIT, "123;delta\n", stderr="sbatch: warning: charged to grp1\n"))

    assert got == SubmitResult(
        outcome="accepted", job_id="123", said="sbatch: warning: charged to grp1\n123;delta"
    )


@pytest.mark.parametrize(
    ("words", "retryable", "explained"),
    [
        (
            "sbatch: error: QOSMaxSubmitJobPerUserLimit\n" + FAILED + "Job violates accounting/QOS policy "
            "(job submit limit, user's size and/or time limits)",
            True,
            "As many jobs as allowed are already submitted; it fits again when some of them end.",
        ),
        (
            "sbatch: error: QOSMaxWallDurationPerJobLimit\n" + FAILED + "Job violates accounting/QOS policy "
            "(job submit limit, user's size and/or time limits)",
            False,
            "The job asks for more wall time per job than the QoS allows.",
        ),
        (
            FAILED + "Invalid account or account/partition combination specified",
            False,
            "This account does not exist, is not yours, or may not use this partition.",
        ),
        (
            "sbatch: error: invalid partition specified: nosuch\n"
            + FAILED
            + "Invalid partition name specified",
            False,
            "There is no such partition here.",
        ),
        (
            FAILED + "Invalid qos specification",
            False,
            "This QoS does not exist, or the account may not use it.",
        ),
        (
            FAILED + "Requested time limit is invalid (missing or exceeds some limit)",
            False,
            "The wall time is longer than the partition or QoS allows.",
        ),
        (
            "sbatch: error: Memory specification can not be satisfied\n"
            + FAILED
            + "Requested node configuration is not available",
            False,
            "No node of the partition has this shape: fewer GPUs, CPUs or less memory per node are needed.",
        ),
        (
            FAILED + "Required partition not available (inactive or drain)",
            True,
            "The partition takes no jobs just now (inactive, drained or down).",
        ),
        (
            FAILED + "Required node not available (down, drained or reserved)",
            True,
            "What the job needs is down, drained or reserved just now.",
        ),
        (
            FAILED + "Invalid generic resource (gres) specification",
            False,
            "The site knows no such GPU type or generic resource.",
        ),
        (
            FAILED + "Invalid job array specification",
            False,
            "The array's indexes are beyond what the site allows; split the array.",
        ),
        (
            FAILED + "Slurm temporarily unable to accept job, sleeping and retrying",
            True,
            "The scheduler is too busy or too full to take jobs just now.",
        ),
        (
            "sbatch: error: Munge encode failed: Failed to connect\n"
            + FAILED
            + "Protocol authentication error",
            True,
            "The site's authentication service did not answer, so the scheduler never got the request.",
        ),
        (
            FAILED + "The stars are not right",
            False,
            "The scheduler refuses the job: The stars are not right",
        ),
        (
            "sbatch: unrecognized option '--nope'\nTry \"sbatch --help\" for more information",
            False,
            "An option in the script is not known to this version of Slurm.",
        ),
    ],
)
def test_a_refusal_is_explained_and_says_whether_it_may_pass(
    words: str, retryable: bool, explained: str
) -> None:
    got = result(answer(SUBMIT, rc=1, stderr=words + "\n"))

    assert got == SubmitResult(outcome="rejected", said=words, explained=explained, retryable=retryable)


@pytest.mark.parametrize(
    "reply",
    [
        answer(SUBMIT, rc=None, timed_out=True),
        answer(SUBMIT, rc=0, truncated=True),
        answer(SUBMIT, rc=None),
        answer(SUBMIT, rc=0, stdout="thank you\n"),
        answer(SUBMIT, rc=-9),
        answer(SUBMIT, rc=137),
        answer(SUBMIT, rc=137, stderr=FAILED + "Invalid qos specification"),
        answer(SUBMIT, rc=1),
        answer(SUBMIT, rc=1, stderr="sbatch: error: something new"),
        answer(SUBMIT, rc=1, stderr=FAILED + "Socket timed out on send/recv operation"),
        answer(SUBMIT, rc=1, stderr=FAILED + "Unable to contact slurm controller (connect failure)"),
        answer(SUBMIT, rc=1, stderr=FAILED + "Zero Bytes were transmitted or received"),
        answer(SUBMIT, rc=1, stderr=FAILED + "Protocol authentication error"),
    ],
)
def test_whatever_is_no_sure_answer_is_doubtful(reply: Reply) -> None:
    got = result(reply)

    assert (got.outcome, got.job_id, got.retryable) == ("doubtful", None, False)
    assert "may exist" in got.explained


@pytest.mark.parametrize(
    "reply",
    [
        answer(SUBMIT, "77\n", rc=None, timed_out=True),
        answer(SUBMIT, "77\n", timed_out=True),
        answer(SUBMIT, "77\n", truncated=True),
        answer(SUBMIT, "77\n", rc=1, stderr=FAILED + "Invalid qos specification"),
    ],
)
def test_an_id_in_an_answer_that_is_not_whole_is_kept_but_stays_doubtful(reply: Reply) -> None:
    got = result(reply)

    assert (got.outcome, got.job_id) == ("doubtful", "77")


def test_a_missing_answer_is_doubtful() -> None:
    assert read_submit(BatchReply(replies={})).outcome == "doubtful"


def test_what_never_ran_is_a_refusal() -> None:
    no_directory = Reply(name="mkdir-0", rc=1, stderr="Permission denied: /scratch/w")

    got = read_submit(BatchReply(replies={"mkdir-0": no_directory, SUBMIT: Reply(name=SUBMIT, missing=True)}))

    assert got == SubmitResult(
        outcome="rejected",
        said="Permission denied: /scratch/w",
        explained="sbatch or the working directory is not there, so nothing was submitted.",
    )
    assert result(Reply(name=SUBMIT, skipped=True)).retryable


def test_long_words_are_bounded_and_keep_their_end() -> None:
    got = result(answer(SUBMIT, rc=1, stderr="x" * 9000 + FAILED + "Invalid qos specification"))

    assert len(got.said) == 2001
    assert got.said.endswith("Invalid qos specification")


@pytest.mark.parametrize("version", ["20.11", "22.05", "25.11"])
def test_recorded_submissions_are_understood(version: str) -> None:
    text = (DATA / f"{version}_sbatch.stdout_stderr.txt").read_text()
    accepted = [line for line in text.splitlines() if not line.startswith("sbatch:")]
    refused = [line for line in text.splitlines() if line.startswith("sbatch: error: Batch job")]

    assert all(result(answer(SUBMIT, line + "\n")).outcome == "accepted" for line in accepted)
    assert len(refused) >= 4
    for line in refused:
        got = result(answer(SUBMIT, rc=1, stderr=line))
        assert (got.outcome, got.retryable) == ("rejected", "inactive or drain" in line)
        assert not got.explained.startswith("The scheduler refuses")
