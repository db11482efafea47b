from providers.contracts import Dialect
from providers.dialects.slurm.dialect import SlurmDialect
from providers.dialects.slurm.observe import build_observe
from providers.dialects.slurm.probe import build_probe
from providers.dialects.slurm.submit import SUBMIT
from providers.types import BatchReply, Exec, JobRequest, JobState
from tests.unit.slurm_jobs.answers import KEY, NOW, answer, both, queue_record, ref

JOB = JobRequest(
    submit_key=KEY,
    name="Train the LLM",
    walltime_s=3600,
    workdir="/scratch/w",
    stdout_path="/scratch/w/out",
    stderr_path="/scratch/w/err",
    argv=("true",),
)


def test_the_dialect_keeps_the_contract() -> None:
    dialect: Dialect = SlurmDialect()

    assert dialect.name == "slurm"
    assert dialect.probe(full=True) == build_probe(full=True)
    assert dialect.probe(full=False) == build_probe(full=False)
    assert dialect.observe([ref("7")], since=NOW, now=NOW) == build_observe([ref("7")], since=NOW, now=NOW)


def test_a_job_goes_in_is_lost_sight_of_and_is_found_again_by_its_name() -> None:
    dialect: Dialect = SlurmDialect()
    submit = dialect.submit(JOB).operations[-1]
    assert isinstance(submit, Exec)
    assert submit.stdin == dialect.script(JOB)
    assert f"#SBATCH --job-name={KEY}\n#SBATCH --comment=facet:{KEY}\n" in submit.stdin

    doubtful = dialect.read_submit(BatchReply(replies={SUBMIT: answer(SUBMIT, rc=None, timed_out=True)}))
    lost = ref(None, at=None)
    found = dialect.read_observe(both([lost], queue=queue_record(id="91", state="PENDING")), [lost], now=NOW)[
        KEY
    ]

    assert doubtful.outcome == "doubtful"
    assert found is not None
    assert (found.job_id, found.state) == ("91", JobState.QUEUED)


def test_a_cancellation_goes_by_id_or_by_name() -> None:
    dialect: Dialect = SlurmDialect()
    refs = [ref("7", key="a"), ref(None, key="b")]

    commands = [
        each.argv for each in dialect.cancel(refs).operations if isinstance(each, Exec) and each.requires
    ]
    taken = BatchReply(
        replies={"cancel-ids-0": answer("cancel-ids-0"), "cancel-name-0": answer("cancel-name-0", rc=1)}
    )

    assert commands == [("scancel", "7"), ("scancel", "--name=b")]
    assert dialect.read_cancel(taken, refs) == {"a": "", "b": "scancel failed with exit code 1."}
