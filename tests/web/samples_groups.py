"""Groups as pages show them: one that runs and is being cancelled, one list, one that is empty."""

from datetime import timedelta

from portal.web.presenters import groups
from portal.web.presenters.from_group import shares
from portal.web.presenters.shared import Page
from portal.web.presenters.timeline import actual_span, frame_of, predicted_span
from tests.web.samples import ANVIL, DELTA, NOW
from tests.web.samples_tasks import ATTEMPTS, EVENTS

FRAME = frame_of(ATTEMPTS, now=NOW)
assert FRAME is not None
SPAN, EXPECTED = actual_span(ATTEMPTS[-1], FRAME, names_system=True), predicted_span(ATTEMPTS[-1], FRAME)
assert SPAN is not None
assert EXPECTED is not None
SHARES = shares(["succeeded", "running", "running", "accepted"])
LANES = (
    groups.ChildLane(
        "task_a", "dock-1", "running", "Anvil · gpu", "", groups.ChildSpan(ANVIL, EXPECTED),
        (groups.ChildSpan(ANVIL, SPAN),),
    ),
    groups.ChildLane("task_b", "dock-2", "accepted", "", "after dock-1", None, ()),
)  # fmt: skip
GROUP = groups.GroupPage(
    handle="grp_1",
    name="docking",
    objective="Screen the ligands.",
    state="running",
    headline="1 of 4 ended, 2 running; round 1 is open.",
    diversity="on different systems, while that pays",
    require="every child of a round",
    created_at=NOW - timedelta(hours=1),
    finished_at=None,
    total=104,
    shares=SHARES,
    frame=FRAME,
    rounds=(
        groups.RoundView(1, "done", 1, 1, LANES[:1]),
        groups.RoundView(2, "open", 0, 1, LANES[1:]),
        groups.RoundView(3, "waiting", 0, 1, ()),
    ),
    hidden=4,
    systems=(
        groups.SystemStanding(ANVIL, 2, 0, 1, 1, 2, 1, "1 SU"),
        groups.SystemStanding(DELTA, 1, 0, 0, 1, 1, 1),
    ),
    results=(groups.ChildResult("task_a", "dock-1", "succeeded", ANVIL, 0, 3, 2048, "anvil:/x", "1 SU"),),
    files=3,
    bytes=2048,
    story=EVENTS,
    is_cancelling=True,
    may_cancel=False,
    is_final=False,
)
ROW = groups.GroupRow(
    "grp_1", "docking", "running", 4, SHARES, (ANVIL, DELTA), 2, 1, NOW, None, "1 of 4 ended, 2 running."
)
GROUP_LIST = groups.GroupListPage(
    Page((ROW,), "cursor=grp_1", ""), "dock", "running", ("running",), any_groups=True
)
NO_GROUP = groups.GroupListPage(Page(()), "", "", ("running",), any_groups=False)
