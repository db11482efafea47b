"""Invented but plausible values for task and event pages, to draw templates without a database."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from portal.web.presenters import decisions, event_log, submission, tasks
from portal.web.presenters.shared import Page, SystemRef
from portal.web.presenters.timeline import AttemptFacts, timeline
from tests.web.samples import ANVIL, DELTA, DELTAAI, HANDLE, LAPTOP, NOW, VISTA, ago


def candidate(
    ref: SystemRef,
    part: str,
    wait: tuple[int, int],
    stage: int,
    run: int,
    *,
    rank: int,
    note: str = "",
    charge: str = "2.5 SU",
) -> decisions.Candidate:
    return decisions.Candidate(
        ref=ref,
        partition=part,
        account="cis230010-gpu",
        chosen=rank == 1,
        feasible=True,
        rank=rank,
        shape="1 node · 4 GPUs · 32 CPUs · 1 h",
        estimates=decisions.Estimates(*wait, stage, 0, run, wait[0] + stage + run, "free, nobody ahead"),
        finish_at=NOW + timedelta(seconds=wait[0] + stage + run),
        bar=None,
        charge=charge,
        reasons=(),
        note=note,
    )


def out(ref: SystemRef, part: str, *reasons: decisions.Reason) -> decisions.Candidate:
    return decisions.Candidate(ref, part, "", False, False, None, "", None, None, None, "", reasons)


_FEASIBLE = (
    candidate(ANVIL, "gpu", (4, 40), 0, 2280, rank=1),
    candidate(
        DELTA,
        "gpuA40x4",
        (120, 900),
        240,
        4260,
        rank=2,
        note="Sized down from 8 to 4 GPUs: no node holds more.",
    ),
    candidate(DELTAAI, "ghx4", (9400, 30_000), 0, 1500, rank=3, charge="1.2 SU"),
)
_BARS = decisions.time_bars([c.estimates for c in _FEASIBLE if c.estimates])
FEASIBLE = tuple(
    decisions.Candidate(**{name: getattr(c, name) for name in c.__dataclass_fields__} | {"bar": bar})
    for c, bar in zip(_FEASIBLE, _BARS, strict=True)
)
REJECTED = (
    out(
        VISTA,
        "gh-dev",
        decisions.Reason(
            "Its figures are 18 min old; at most 5 min are trusted.",
            "Wait for the next probe, or place by hand.",
            "endpoint_stale",
        ),
        decisions.Reason(
            "Wall time of 3 h is over its limit of 2 h.", "Ask for 2 h or less.", "wall_time_over_limit"
        ),
    ),
    out(
        DELTA,
        "gpuH200x8",
        decisions.Reason("The partition is draining for maintenance.", "", "partition_down"),
    ),
    out(LAPTOP, "local", decisions.Reason("It has no GPU; 1 is needed.", "", "accelerator_absent")),
)
DECISION = decisions.DecisionView(
    "dec_01jnh4w7t1",
    NOW,
    "earliest completion",
    "Anvil finishes first: four A100 are free on one node now and its input is already there.",
    FEASIBLE,
    REJECTED,
    "",
    14,
    2,
    ("The figures of Anvil were refreshed right before this decision.",),
)
NOWHERE = decisions.DecisionView(
    "dec_01jnh4w7t2",
    NOW,
    "earliest completion",
    "",
    (),
    REJECTED,
    "Ask for 2 h instead of 3 h: Vista gh-dev would then take it.",
    14,
)

ATTEMPTS = (
    AttemptFacts(
        handle="att_1",
        number=1,
        ref=DELTA,
        partition="gpuA100x4",
        state="failed",
        cause="node_failure",
        job_id="8840011",
        shape="1 node · 4 GPUs · 1 h",
        planned_at=ago(minutes=52),
        queued_at=ago(minutes=51),
        started_at=ago(minutes=40),
        ended_at=ago(minutes=22),
        predicted_start_at=ago(minutes=42),
        predicted_end_at=ago(minutes=4),
        state_raw="NODE_FAIL",
        reason="The node gpub042 went down while the job ran.",
        observed_at=ago(minutes=22),
    ),
    AttemptFacts(
        handle="att_2",
        number=2,
        ref=ANVIL,
        partition="gpu",
        state="running",
        cause="",
        job_id="1204881",
        shape="1 node · 4 GPUs · 1 h",
        planned_at=ago(minutes=21),
        queued_at=ago(minutes=21),
        started_at=ago(minutes=18),
        ended_at=None,
        predicted_start_at=ago(minutes=20),
        predicted_end_at=NOW + timedelta(minutes=18),
        state_raw="RUNNING",
        reason="",
        observed_at=ago(seconds=9),
        waited_s=180,
        forecast="expected 60 s, 9 of 10 within 6 min · free, others ahead",
    ),
)


FINISHED = (
    ATTEMPTS[0],
    replace(ATTEMPTS[1], state="succeeded", state_raw="COMPLETED", ended_at=ago(minutes=1)),
)


def event(
    sequence: int, type_: str, minutes: int, summary: str, detail: str, look: str, icon: str
) -> tasks.EventRow:
    return tasks.EventRow(sequence, type_, ago(minutes=minutes), summary, detail, look, icon, HANDLE, ANVIL)


EVENTS = (
    event(48_248, "task.started", 18, "started on Anvil", "waited 3 min, expected 1 min", "accent", "play"),
    event(48_241, "task.submitted", 21, "submitted to Anvil gpu as job 1204881", "", "note", "send"),
    event(48_240, "task.placed", 21, "placed on Anvil gpu", "4 A100 free on one node now", "note", "route"),
    event(
        48_238,
        "task.retrying",
        22,
        "will be tried again",
        "attempt 1 of 3 was lost to a node failure",
        "warn",
        "rotate-ccw",
    ),
    event(48_201, "task.started", 40, "started on Delta", "waited 11 min, expected 9 min", "accent", "play"),
    event(48_184, "task.accepted", 52, "accepted", "", "", "circle-dot"),
)
LOG = "".join(
    f"step {n:>5}   energy {-41_233.4 + n * 0.37:12.3f}   temp {299.2 + n % 7 * 0.21:7.2f}\n"
    for n in range(4100, 4126)
)


def task_page(**more: Any) -> tasks.TaskPage:
    base: dict[str, Any] = {
        "handle": HANDLE,
        "name": "md-equil-041",
        "objective": "Equilibrate system 41 before production.",
        "state": "running",
        "headline": "Running on Anvil for 18 min; should end in about 18 min.",
        "created_at": ago(minutes=52),
        "changed_at": ago(minutes=18),
        "ref": ANVIL,
        "partition": "gpu",
        "account": "cis230010-gpu",
        "shape": "4 GPUs · 32 CPUs · 1 h",
        "command": (
            "#!/bin/bash\n#SBATCH --gpus=4\n#SBATCH --time=01:00:00\n\n"
            "module load gromacs\nsrun gmx_mpi mdrun -deffnm equil -ntomp 8\n"
        ),
        "is_script": True,
        "expected_start_at": ago(minutes=18),
        "expected_end_at": NOW + timedelta(minutes=18),
        "charge": "2.5 SU",
        "attempts": ATTEMPTS,
        "timeline": timeline(ATTEMPTS, now=NOW),
        "decision": DECISION,
        "envelope": (
            tasks.EnvelopeLine("gpus", "4", "4", "#SBATCH --gpus=4"),
            tasks.EnvelopeLine("walltime_s", "01:00:00", "3600", "#SBATCH --time"),
            tasks.EnvelopeLine("cpus", "", "32", "8 CPUs for each GPU, as the partition gives by default"),
            tasks.EnvelopeLine("accelerator.types", "a100, h100", "a100, h100", ""),
        ),
        "environment": {"modules": "gromacs/2024.3", "variables": "OMP_NUM_THREADS=8"},
        "manifest": None,
        "log": tasks.LogTail("stdout", 2, LOG, 318_000, 320_112, follow=True),
        "events": EVENTS,
        "may_cancel": True,
        "may_replan": True,
        "is_final": False,
    }
    return tasks.TaskPage(**{**base, **more})


TASK = task_page()
DONE = task_page(
    attempts=FINISHED,
    timeline=timeline(FINISHED, now=NOW),
    state="succeeded",
    headline="Succeeded on Anvil after 36 min of running.",
    is_final=True,
    may_cancel=False,
    may_replan=False,
    manifest=tasks.ManifestView(
        0,
        2171,
        "2.41 SU",
        (
            tasks.ManifestFile("equil.gro", 8_410_112, "9f2c1e6ab34d77aa", ""),
            tasks.ManifestFile("equil.log", 320_112, "", ""),
        ),
        "/anvil/scratch/mira/facet/att_2",
    ),
    log=tasks.LogTail("stdout", 2, LOG, 0, 2112, follow=False),
)


def row(name: str, state: str, ref: SystemRef | None, part: str, hint: str, minutes: int) -> tasks.TaskRow:
    return tasks.TaskRow(
        f"task_{name}",
        name,
        state,
        ref,
        part,
        "4 GPUs · 1 h" if ref else "",
        1 if ref else 0,
        ago(minutes=minutes),
        ago(minutes=minutes // 2),
        hint,
        group=("grp_1", "docking") if state == "running" else None,
        may_cancel=state in {"running", "pending", "submitted", "attention"},
    )


TASK_ROWS = (
    row("md-equil-041", "running", ANVIL, "gpu", "should end in about 18 min", 52),
    row(
        "finetune-llama-s3",
        "pending",
        DELTAAI,
        "ghx4",
        "waits for others of higher priority; should start in 2 h 36 min",
        61,
    ),
    row("cfd-wing-sweep", "submitted", DELTA, "gpuA100x4", "", 66),
    row("screen-batch-17", "succeeded", ANVIL, "gpu", "ran 12 min", 120),
    row(
        "infer-embed-corpus",
        "failed",
        DELTA,
        "gpuA40x4",
        "ran out of memory at 48 GiB; 2 of 2 attempts used",
        200,
    ),
    row("h200-probe", "unschedulable", None, "", "no H200 is open to you; A100 would do on Anvil", 400),
    row(
        "old-sweep", "attention", VISTA, "gh-dev", "the job has not been seen for 2 h; cancel it or wait", 700
    ),
    row("typo", "cancelled", ANVIL, "gpu", "cancelled by you", 1500),
)
TASK_LIST = tasks.TaskListPage(
    Page(TASK_ROWS, next_query="cursor=8"),
    tasks.TaskFilters(),
    (
        "accepted",
        "placing",
        "pending",
        "running",
        "succeeded",
        "failed",
        "cancelled",
        "unschedulable",
        "attention",
    ),
    (ANVIL, DELTA, DELTAAI, VISTA),
    any_tasks=True,
    groups=(("grp_1", "docking"),),
    counts={"active": 4, "running": 1, "pending": 1, "attention": 1},
)
TO_CANCEL = tasks.BulkCancelPage(TASK_ROWS[:3], 1, True, tasks.TaskFilters(state="active"), "/tasks/")
NO_TASKS = tasks.TaskListPage(Page(()), tasks.TaskFilters(), (), (), any_tasks=False)
MANY_EVENTS = tuple(replace(each, sequence=each.sequence - 100 * lap) for lap in range(3) for each in EVENTS)
EVENT_LIST = event_log.EventListPage(
    Page(MANY_EVENTS, next_query="cursor=1"),
    ("task.accepted", "task.started"),
    ("task.*",),
    event_log.EventFilters(type="task.*", about="md"),
)
DRAFT = submission.Draft(
    "slurm",
    0.92,
    (
        submission.DraftLine("GPUs", "4", "#SBATCH --gpus=4"),
        submission.DraftLine("Wall time", "1 h", "#SBATCH --time=01:00:00"),
    ),
    (("#SBATCH --wibble=3", "no option of sbatch"),),
    (),
)
PREVIEW = submission.Preview(DECISION)
PROBLEMS = submission.Preview(
    None, (submission.Problem("gpus_min", "GPUs", "A whole number, please; “four” is not one."),)
)
ANSWER = submission.WhereAnswer(
    DECISION,
    relaxations=(
        submission.RelaxationRow(
            "Take any type of GPU, not only a100", SystemRef("delta", "Delta", 2), "gpu", 0, 3600, 2520, "a=1"
        ),
        submission.RelaxationRow("Change policy", SystemRef("delta", "Delta", 2), "gpu", 600, 3600, None, ""),
    ),
    asked={"envelope": {"gpus": 4}},
)

TEMPLATES = (
    submission.TemplateRow("tpl_1", "train", "mira", True, "", "python train.py", NOW),
    submission.TemplateRow("tpl_2", "relax", "kofi", False, "everyone", "", NOW),
)
