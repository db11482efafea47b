"""Jobs that ended: asked for since the last look, read with their limits, and missed without harm."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from providers.dialects.slurm.finished import read_finished, show_finished
from providers.dialects.slurm.probe import build_probe, read_probe
from providers.errors import UnparsableOutput
from providers.types import BatchReply, Exec, FinishedJob, Probe, Reply
from tests.unit.slurm_read.recordings import recorded

NOW = datetime(2026, 11, 29, 21, tzinfo=UTC)
ONE = "bob|gpu|COMPLETED|2026-11-29T20:00:00|900|60"


def probe(finished: Reply) -> Probe:
    """Return the recorded full probe of a real cluster, with another answer of sacct."""
    replies = dict(BatchReply.model_validate_json(recorded("probe/full-22.05.8.json")).replies)
    return read_probe(BatchReply(replies=replies | {"finished": finished}), now=NOW)


def answer(text: str) -> Reply:
    return Reply(name="finished", rc=0, stdout=text)


def test_the_first_question_goes_six_hours_back_by_the_sites_own_clock() -> None:
    asked = show_finished(None)

    assert asked[:5] == ("sacct", "-a", "-X", "-n", "-P")
    assert asked[asked.index("-S") + 1] == "now-6hours"


def test_later_questions_begin_where_the_last_answer_ended_in_utc() -> None:
    eastern = timezone(timedelta(hours=-5))

    asked = show_finished(datetime(2026, 11, 29, 15, 30, 7, tzinfo=eastern))

    assert asked[asked.index("-S") + 1] == "2026-11-29T20:30:07"


def test_only_the_full_probe_asks_and_within_the_same_request() -> None:
    since = datetime(2026, 11, 29, 20, tzinfo=UTC)

    def asked(*, full: bool) -> list[tuple[str, ...]]:
        operations = build_probe(full=full, since=since).operations
        return [each.argv for each in operations if isinstance(each, Exec)]

    assert show_finished(since) in asked(full=True)
    assert not any("sacct" in argv for argv in asked(full=False))


def test_a_finished_job_is_read_field_by_field_and_the_first_to_end_comes_first() -> None:
    later = "eve|ai|TIMEOUT|2026-11-29T20:30:00|3625|60"

    assert read_finished(f"{later}\n{ONE}\n") == (
        FinishedJob(
            user="bob",
            partition="gpu",
            ended_at=datetime(2026, 11, 29, 20, tzinfo=UTC),
            elapsed_s=900,
            walltime_s=3600,
        ),
        FinishedJob(
            user="eve",
            partition="ai",
            ended_at=datetime(2026, 11, 29, 20, 30, tzinfo=UTC),
            elapsed_s=3625,
            walltime_s=3600,
        ),
    )


@pytest.mark.parametrize(
    "line",
    [
        "bob|gpu|CANCELLED by 7|2026-11-29T20:00:00|0|60",
        "bob|gpu|COMPLETED|2026-11-29T20:00:00|900|UNLIMITED",
        "bob|gpu|COMPLETED|2026-11-29T20:00:00|900|525600",
        "bob|gpu|COMPLETED|2026-11-29T20:00:00|900|Partition_Limit",
        "bob|gpu|RUNNING|Unknown|900|60",
        "bob|gpu|NODE_FAIL|2026-11-29T20:00:00|900|60",
    ],
    ids=["never started", "no limit", "the placeholder of none", "limit not told", "not over", "comes again"],
)
def test_a_job_that_tells_nothing_of_limits_is_passed_over(line: str) -> None:
    assert len(read_finished(f"{line}\n{ONE}\n")) == 1


def test_a_login_banner_is_passed_over() -> None:
    assert len(read_finished(f"Welcome to Anvil | be kind\n\n{ONE}\n")) == 1


@pytest.mark.parametrize("line", [f"{ONE}|7", "bob|gpu", "bob|gpu|COMPLETED|2026-11-29T20:00:00|long|60"])
def test_other_columns_are_not_guessed_at(line: str) -> None:
    with pytest.raises(UnparsableOutput):
        read_finished(f"{ONE}\n{line}\n")


def test_of_an_answer_that_was_cut_the_whole_records_count() -> None:
    cut = Reply(name="finished", rc=None, stdout=f"{ONE}\n{ONE}\nbob|gpu|COMP", truncated=True)

    found = probe(cut)

    assert (len(found.finished or ()), found.finished_unknown) == (2, "")


def test_an_accounting_that_does_not_answer_costs_the_finished_jobs_alone() -> None:
    found = probe(Reply(name="finished", rc=1, stderr="sacct: error: Connection refused"))

    assert found.finished is None
    assert found.finished_unknown == (
        "accounting tells no finished jobs: 'finished' failed with exit status 1"
    )
    assert (found.accounting_up, found.warnings, len(found.jobs)) == (True, (), 19)


def test_accounting_that_hides_what_the_queue_shows_is_told_from_a_quiet_site() -> None:
    own, anybody = answer("alice|gpu|COMPLETED|2026-11-29T20:00:00|900|60\n"), answer(f"{ONE}\n")

    assert probe(own).finished_unknown == "accounting shows no finished jobs but our own"
    assert len(probe(own).finished or ()) == 1
    assert (probe(anybody).finished_unknown, probe(answer("")).finished_unknown) == ("", "")
