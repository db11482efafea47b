"""One system in full: nodes by shape, the queue, this user's limits, maintenance. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import exp

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from federation.shown import SnapshotShown
from federation.types import Maintenance, NodeView, ResourceRecord, UserLimits
from orchestrator.outcomes import RunReliability
from orchestrator.placement.calibration import Reliability
from portal.web.presenters.access import ProbeRow, access_view
from portal.web.presenters.federation import (
    ForecastRow,
    LimitRow,
    MaintenanceRow,
    NodeGroup,
    NodeSquare,
    QueueRow,
    SystemPage,
)
from portal.web.presenters.from_decision import WAIT_KINDS
from portal.web.presenters.history import HistoryView
from portal.web.presenters.records import (
    SystemFacts,
    Waits,
    accelerator,
    is_seen,
    partition_rows,
    system_card,
    unique_nodes,
)
from portal.web.presenters.shared import SystemRef
from portal.web.templatetags.units import count, duration, memory
from providers.types import JobState, QueueJob

MAX_NODE_SQUARES = 300
MAX_QUEUE_ROWS = 20
MAX_QUEUE_ROWS_ASKED = 500


def node_groups(records: Sequence[ResourceRecord]) -> tuple[NodeGroup, ...]:
    """Return the nodes by shape, the most common first; at most MAX_NODE_SQUARES are drawn per shape."""
    by_shape: dict[str, list[NodeView]] = defaultdict(list)
    for node in unique_nodes(records):
        by_shape[_shape(node)].append(node)
    return tuple(
        NodeGroup(
            label=label,
            squares=tuple(_square(node) for node in nodes[:MAX_NODE_SQUARES]),
            free=sum(_look(node) in "fm" for node in nodes),
            total=len(nodes),
            hidden=max(len(nodes) - MAX_NODE_SQUARES, 0),
        )
        for label, nodes in sorted(by_shape.items(), key=lambda item: (-len(item[1]), item[0]))
    )


def _shape(node: NodeView) -> str:
    gpus = f"{node.gpus} × {accelerator(node)}, " if node.gpus else ""
    return gpus + _("%(cpus)s CPUs, %(memory)s") % {
        "cpus": count(node.cpus),
        "memory": memory(node.memory_mib),
    }


def _look(node: NodeView) -> str:
    if not node.is_up:
        return "d"
    if node.is_idle:
        return "f"
    has_room = node.is_usable and node.cpus_free > 0 and (node.gpus_free > 0 or not node.gpus)
    return "m" if has_room else "b"


def _square(node: NodeView) -> NodeSquare:
    look = _look(node)
    if look == "d":
        return NodeSquare(node.name, look, _("%(node)s: down or set aside") % {"node": node.name})
    free = [_("%(free)d of %(all)d CPUs") % {"free": node.cpus_free, "all": node.cpus}]
    if node.gpus:
        free.insert(0, _("%(free)d of %(all)d GPUs") % {"free": node.gpus_free, "all": node.gpus})
    return NodeSquare(
        node.name, look, _("%(node)s: %(free)s free") % {"node": node.name, "free": ", ".join(free)}
    )


def queue_rows(
    jobs: Sequence[QueueJob], ours: Mapping[str, str], remote_user: str | None, *, most: int = MAX_QUEUE_ROWS
) -> tuple[tuple[QueueRow, ...], int]:
    """Return the first rows of the queue and how many more there are: ours first, then by priority.

    Args:
        jobs: as the scheduler shows them.
        ours: task handle by job id, of this user's active attempts.
        remote_user: who this user is there.
        most: rows to return.
    """
    ordered = sorted(jobs, key=lambda job: _place(job, ours, remote_user))
    rows = tuple(_queue_row(job, ours.get(job.job_id)) for job in ordered[:most])
    return rows, max(len(ordered) - most, 0)


def _place(job: QueueJob, ours: Mapping[str, str], user: str | None) -> tuple[bool, bool, bool, int, str]:
    waits = job.state in {JobState.QUEUED, JobState.HELD}
    return (
        job.job_id not in ours,
        job.user is None or job.user != user,
        not waits,
        -(job.priority or 0),
        job.job_id,
    )


def _queue_row(job: QueueJob, task: str | None) -> QueueRow:
    size = [ngettext("%d node", "%d nodes", job.nodes) % job.nodes]
    size.append(
        ngettext("%d GPU", "%d GPUs", job.gpus) % job.gpus
        if job.gpus
        else ngettext("%d CPU", "%d CPUs", job.cpus) % job.cpus
    )
    times = f" × {job.array_pending}" if job.array_pending > 1 else ""
    return QueueRow(
        job_id=job.job_id,
        user=job.user or "",
        partition=", ".join(job.partitions),
        state=job.state.value,
        size=", ".join(size) + times,
        walltime_s=job.walltime_s,
        submitted_at=job.submit_at,
        start_at=job.start_at,
        reason=job.reason if job.reason not in {"None", ""} else "",
        task=task,
    )


def limit_rows(limits: Iterable[tuple[str, UserLimits]]) -> tuple[LimitRow, ...]:
    """Return this user's limits by partition, only those that exist."""
    rows: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for partition, limit in limits:
        for name, most, used in (
            (_("Jobs waiting or running"), limit.max_submit_jobs, count(limit.submitted_jobs)),
            (_("Jobs running"), limit.max_running_jobs, count(limit.running_jobs)),
            (_("GPUs at once"), limit.max_gpus_per_user, count(limit.gpus_in_use)),
            (_("GPUs in one job"), limit.max_gpus_per_job, ""),
            (_("Nodes in one job"), limit.max_nodes_per_job, ""),
            (_("Nodes at once"), limit.max_nodes_per_user, ""),
            (_("CPUs in one job"), limit.max_cpus_per_job, ""),
        ):
            if most is not None:
                rows[name, count(most), used].append(partition)
        if limit.max_walltime_s is not None:
            rows[_("Wall time of a job"), duration(limit.max_walltime_s), ""].append(partition)
    return tuple(
        LimitRow(name, value, used, ", ".join(dict.fromkeys(where)))
        for (name, value, used), where in rows.items()
    )


def maintenance_rows(records: Iterable[ResourceRecord]) -> tuple[MaintenanceRow, ...]:
    """Return the windows that keep jobs away, earliest first, each once."""
    windows: dict[tuple[str, datetime], tuple[Maintenance, set[str]]] = {}
    for record in records:
        for window in record.maintenance:
            _kept, nodes = windows.setdefault((window.name, window.start_at), (window, set()))
            nodes |= window.node_names or {node.name for node in record.nodes}
    return tuple(
        MaintenanceRow(window.name or _("Maintenance"), window.start_at, window.end_at, len(nodes))
        for _key, (window, nodes) in sorted(windows.items(), key=lambda item: item[0][1])
    )


_MEASURES = {"runtime": gettext_lazy("Runtime"), "charge": gettext_lazy("Charge")}
_BASES = {
    "declared": gettext_lazy("as declared"),
    "history": gettext_lazy("learned from earlier runs"),
    "assumed": gettext_lazy("assumed from the wall time"),
}


def forecast_rows(
    waits: Iterable[Reliability], runs: Iterable[RunReliability], slug: str
) -> tuple[ForecastRow, ...]:
    """Return how good the forecasts at one system were: waits, then runtimes and charges, as given."""
    rows = [
        ForecastRow(
            partition=found.partition,
            measure=_("Wait"),
            kind=str(WAIT_KINDS[found.wait_class]),
            n=found.n,
            within_minute=round(100 * found.within_minute_frac),
            within_twice=round(100 * found.within_twice_frac),
            factor=round(exp(found.mean_abs_log_error), 1),
            p90_held=round(100 * found.p90_coverage_frac),
        )
        for found in waits
        if found.system == slug
    ]
    rows += [
        ForecastRow(
            partition=run.partition,
            measure=str(_MEASURES[run.measure]),
            kind=str(_BASES.get(run.basis, run.basis)),
            n=run.n,
            within_minute=None if run.within_minute_frac is None else round(100 * run.within_minute_frac),
            within_twice=round(100 * run.within_twice_frac),
            factor=round(exp(run.mean_abs_log_error), 1),
            p90_held=round(100 * run.p90_coverage_frac),
        )
        for run in runs
        if run.system == slug
    ]
    return tuple(rows)


def system_page(
    system: SystemFacts,
    records: Sequence[ResourceRecord],
    ref: SystemRef,
    waits: Waits,
    *,
    jobs: Sequence[QueueJob],
    ours: Mapping[str, str],
    calibration: Iterable[Reliability],
    runs: Iterable[RunReliability] = (),
    history: HistoryView | None = None,
    probes: Iterable[SnapshotShown] = (),
    whole_queue: bool = False,
) -> SystemPage:
    """Return one system in full."""
    most = MAX_QUEUE_ROWS_ASKED if whole_queue else MAX_QUEUE_ROWS
    queue, hidden = queue_rows(jobs, ours, system.remote_user, most=most)
    return SystemPage(
        card=system_card(system, records, ref, waits),
        partitions=partition_rows(records, ref, waits, seen=is_seen(system)),
        node_groups=node_groups(records),
        queue=queue,
        queue_hidden=hidden,
        limits=limit_rows((record.partition, record.limits) for record in records),
        maintenance=maintenance_rows(records),
        forecasts=forecast_rows(calibration, runs, system.slug),
        remote_user=system.remote_user or "",
        profile_revision=f"r{system.revision}" if system.revision else "",
        warnings=system.warnings,
        history=history,
        access=access_view(records, _offer_words()),
        probes=tuple(ProbeRow(p.taken_at, p.duration_s, p.state, p.error or "") for p in probes),
        max_age_s=min((record.max_age_s for record in records), default=None),
    )


def _offer_words() -> tuple[str, str, str, str, str]:
    return (_("Processor"), _("Containers"), _("Network"), _("File systems"), _("Software"))


def devices(records: Iterable[ResourceRecord]) -> tuple[dict[str, int], dict[str, int]]:
    """Return GPUs and CPUs by partition."""
    gpus, cpus = {}, {}
    for record in records:
        gpus[record.partition] = sum(node.gpus for node in record.nodes)
        cpus[record.partition] = sum(node.cpus for node in record.nodes)
    return gpus, cpus
