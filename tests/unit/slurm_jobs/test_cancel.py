import pytest

from providers.dialects.slurm.cancel import build_cancel, read_cancel
from providers.errors import InvalidInput
from providers.types import BatchReply, Exec, Reply
from tests.unit.slurm_jobs.answers import answer, ref


def test_jobs_are_cancelled_by_id_together_and_by_name_where_no_id_is_known() -> None:
    batch = build_cancel([ref("7", key="a"), ref(None, key="b"), ref("4_7", key="c"), ref("20+0", key="d")])

    commands = [(each.argv, each.requires) for each in batch.operations if isinstance(each, Exec)]

    assert commands == [
        (("scontrol", "ping"), ""),
        (("scancel", "7", "4_7", "20+0"), "ping"),
        (("scancel", "--name=b"), "ping"),
    ]


def test_a_thousand_ids_go_in_a_few_commands() -> None:
    batch = build_cancel([ref(str(n), key=f"k{n}") for n in range(1, 1002)])

    sizes = [len(each.argv) - 1 for each in batch.operations if isinstance(each, Exec) and each.requires]

    assert sizes == [400, 400, 201]


def test_silence_means_taken_also_for_jobs_that_are_over() -> None:
    refs = [ref("7", key="a"), ref(None, key="b")]
    reply = BatchReply(
        replies={"cancel-ids-0": answer("cancel-ids-0"), "cancel-name-0": answer("cancel-name-0")}
    )

    assert read_cancel(reply, refs) == {"a": "", "b": ""}


def test_one_refused_job_does_not_colour_the_others() -> None:
    stderr = (
        "scancel: error: Kill job error on job id 8: Access/permission denied\n"
        "scancel: error: Kill job error on job id 9: Job/step already completing or completed\n"
    )
    refs = [ref("7", key="a"), ref("8", key="b"), ref("9", key="c")]
    reply = BatchReply(replies={"cancel-ids-0": answer("cancel-ids-0", rc=210, stderr=stderr)})

    assert read_cancel(reply, refs) == {"a": "", "b": "Access/permission denied", "c": ""}


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (answer("x", rc=None, timed_out=True), "scancel gave no answer in time."),
        (answer("x", rc=None), "scancel gave no answer in time."),
        (Reply(name="x", missing=True), "The request was not carried out."),
        (Reply(name="x", skipped=True), "The request was not carried out."),
        (answer("x", rc=210), "scancel failed with exit code 210."),
        (
            answer("x", rc=1, stderr="scancel: error: Munge encode failed\n"),
            "scancel: error: Munge encode failed",
        ),
        (
            answer("x", rc=1, stderr="scancel: error: Kill job error on job id 7: Invalid job id specified"),
            "",
        ),
        (
            answer(
                "x",
                rc=8,
                stderr="scancel: error: Kill job error on job id 7: "
                "Unable to contact slurm controller (connect failure)",
            ),
            "Unable to contact slurm controller (connect failure)",
        ),
    ],
)
def test_no_acceptance_is_told_in_words(reply: Reply, said: str) -> None:
    assert read_cancel(BatchReply(replies={"cancel-ids-0": reply}), [ref("7", key="a")]) == {"a": said}


def test_a_missing_reply_is_no_acceptance() -> None:
    assert read_cancel(BatchReply(replies={}), [ref("7", key="a")]) == {
        "a": "The request was not carried out."
    }


@pytest.mark.parametrize("job_id", ["-a", "7 8", "--state=PENDING", "x", ""])
def test_an_id_that_could_be_an_option_is_refused(job_id: str) -> None:
    with pytest.raises(InvalidInput):
        build_cancel([ref(job_id, key="a")])
