"""The rules a candidate must pass, each on the minimum request; every failure is told, never the first only.

A rule is a function of the request and one record that returns rejections. What is not known fails a rule
only where the request demands it by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import islice

from federation.types import Health, ResourceRecord
from orchestrator.envelope.types import Envelope
from orchestrator.placement.capacity import (
    Layout,
    NodeKind,
    memory_matches,
    suitable_kinds,
    type_matches,
)
from orchestrator.placement.charge import cap_for, charge_for, credit_for
from orchestrator.placement.compatibility import compatibility
from orchestrator.placement.sizing import checked, closes_too_soon, limit_codes, node_counts, targets
from orchestrator.placement.types import Rejection, rejection

MAX_LAYOUTS_SCANNED = 64


@dataclass(frozen=True, slots=True)
class Asked:
    """One request against one record, with what the rules share."""

    envelope: Envelope
    record: ResourceRecord
    kinds: tuple[NodeKind, ...]
    now: datetime
    budgets: Mapping[str, Decimal] = field(default_factory=dict)
    exclude_systems: frozenset[str] = frozenset()

    @property
    def usable_kinds(self) -> tuple[NodeKind, ...]:
        """Return the kinds the minimum may use; where no accelerator fits, all with GPUs."""
        gpus = self.envelope.gpus.min
        fitting = suitable_kinds(self.kinds, self.envelope, gpus=gpus)
        return fitting or tuple(kind for kind in self.kinds if kind.gpus) or self.kinds

    def smallest_layout(self) -> Layout | None:
        """Return the minimum on the fewest nodes within every cap, else on the fewest; None = nowhere."""
        layouts = node_counts(
            targets(self.envelope)[0], envelope=self.envelope, kinds=self.usable_kinds, record=self.record
        )
        first: Layout | None = None
        for layout in islice(layouts, MAX_LAYOUTS_SCANNED):
            sized = checked(layout, self.envelope, self.record, budgets=self.budgets, now=self.now)
            if not sized.dropped:
                return layout
            first = first or layout
        return first


def failures(asked: Asked) -> tuple[Rejection, ...]:
    """Return every rejection of every rule, in the order of the rules; empty = the minimum is feasible."""
    layout = asked.smallest_layout()
    found: list[Rejection] = []
    for rule in PLAIN_RULES:
        found.extend(rule(asked))
    found.extend(capacity(asked, layout))
    found.extend(wall_time(asked, layout))
    found.extend(compatibility(asked.envelope, asked.record))
    found.extend(user_limits(asked, layout))
    found.extend(credit(asked, layout))
    return tuple(found)


def endpoint_health(asked: Asked) -> list[Rejection]:
    """Reject systems that are off, cannot be reached, or were not seen lately."""
    record = asked.record
    if record.health is Health.DISABLED:
        remedy = f"Ask an operator to enable {record.system}."
        return [rejection("system_disabled", required="enabled", observed="disabled", remedy=remedy)]
    if record.health is Health.OFFLINE:
        remedy = f"{record.system} cannot be reached; it is tried again until it answers."
        return [rejection("endpoint_offline", required="online", observed="offline", remedy=remedy)]
    if record.observed_at is None:
        remedy = f"{record.system} was never probed; probe it now."
        return [rejection("endpoint_stale", required=record.max_age_s, observed=None, remedy=remedy)]
    age_s = snapshot_age_s(record, asked.now)
    if record.health is Health.STALE or age_s > record.max_age_s:
        remedy = (
            f"{record.system} was last seen {age_s} s ago, the limit is {record.max_age_s} s; probe it now."
        )
        return [rejection("endpoint_stale", required=record.max_age_s, observed=age_s, remedy=remedy)]
    if record.circuit_open is not None:
        remedy = f"Wait until {record.system} has passed its trial, or let the task go elsewhere."
        observed = f"circuit open: {record.circuit_open}"
        return [rejection("endpoint_offline", required="circuit closed", observed=observed, remedy=remedy)]
    return []


def snapshot_age_s(record: ResourceRecord, now: datetime) -> int:
    """Return the age of a record's figures; a site's clock ahead of ours counts as just now."""
    if record.observed_at is None:
        return 0
    return max(0, int((now - record.observed_at).total_seconds()))


def authorization(asked: Asked) -> list[Rejection]:
    """Reject where the user has no connection, may not use the partition, or has no allocation."""
    record, found = asked.record, []
    if not record.is_connected:
        remedy = f"Connect your account at {record.system} (sign in again if the connection expired)."
        found.append(rejection("not_authorized", required="connection", observed="none", remedy=remedy))
    if record.access_denied is not None:
        remedy = f"Ask {record.system} for access to {record.partition}, or use another account."
        found.append(
            rejection("not_authorized", required="access", observed=record.access_denied, remedy=remedy)
        )
    if not record.has_allocation:
        code = "no_account" if record.account is None else "no_allocation"
        remedy = f"Add an allocation at {record.system} or ask its project to add you."
        found.append(rejection(code, required="allocation", observed=record.account, remedy=remedy))
    return found


def blocked_partition(asked: Asked) -> list[Rejection]:
    """Reject partitions that the operator blocked, the site closed, or the task's policy excludes."""
    record, policy, found = asked.record, asked.envelope.policy, []
    place = f"{record.system}/{record.partition}"
    if record.blocked is not None:
        remedy = f"{place} is blocked ({record.blocked}); use another partition or ask an operator."
        found.append(rejection("partition_blocked", required="open", observed=record.blocked, remedy=remedy))
    if record.partition_state.lower() != "up":
        remedy = f"The site set {place} to {record.partition_state}; wait until it is up."
        found.append(
            rejection("partition_down", required="up", observed=record.partition_state, remedy=remedy)
        )
    barred = []
    if record.system in policy.exclude_systems or record.system in asked.exclude_systems:
        barred.append(("exclude_systems", record.system))
    if policy.allow_systems is not None and record.system not in policy.allow_systems:
        barred.append(("allow_systems", record.system))
    if asked.envelope.excludes_partition(record.system, record.partition):
        barred.append(("exclude_partitions", place))
    for policy_field, name in barred:
        remedy = f"Change policy.{policy_field} so that it admits {name}."
        found.append(
            rejection("excluded_by_policy", required=f"policy.{policy_field}", observed=name, remedy=remedy)
        )
    return found


def architecture(asked: Asked) -> list[Rejection]:
    """Reject processors the task was not built for."""
    wanted, have = asked.envelope.architecture, asked.record.architecture
    if not wanted or have in wanted:
        return []
    remedy = f"{asked.record.system} is {have or 'unknown'}; add it to architecture if the work runs on it."
    return [rejection("architecture_mismatch", required=wanted, observed=have, remedy=remedy)]


def accelerator(asked: Asked) -> list[Rejection]:
    """Reject partitions without GPUs, with GPUs of another type, or of too little memory."""
    wanted, place = asked.envelope.accelerator, f"{asked.record.system}/{asked.record.partition}"
    if asked.envelope.gpus.min == 0:
        return []
    with_gpus = [kind for kind in asked.kinds if kind.gpus]
    if not with_gpus:
        remedy = f"{place} has no GPUs; choose a GPU partition or set gpus.min to 0."
        return [rejection("accelerator_absent", required=asked.envelope.gpus.min, observed=0, remedy=remedy)]
    have = tuple(sorted({kind.gpu_type or "unknown" for kind in with_gpus}))
    right_type = [kind for kind in with_gpus if type_matches(kind, wanted)]
    if wanted is None or any(memory_matches(kind, wanted) for kind in right_type):
        return []
    if not right_type:
        remedy = (
            f"{place} has {', '.join(have)}; add one of them to accelerator.types if the work runs on it."
        )
        required = wanted.types or (wanted.vendor or "any",)
        return [rejection("accelerator_type", required=required, observed=have, remedy=remedy)]
    most = max((kind.gpu_memory_mib or 0 for kind in right_type), default=0)
    remedy = f"The GPUs of {place} have {most or 'unknown'} MiB; lower accelerator.min_memory_mib to fit."
    return [
        rejection("accelerator_memory", required=wanted.min_memory_mib, observed=most or None, remedy=remedy)
    ]


def capacity(asked: Asked, layout: Layout | None) -> list[Rejection]:
    """Reject where the nodes that are up cannot hold the minimum, whatever else runs there."""
    record, place = asked.record, f"{asked.record.system}/{asked.record.partition}"
    if layout is not None:
        if record.max_nodes is None or layout.nodes <= record.max_nodes:
            return []
        remedy = f"{place} gives a job at most {record.max_nodes} nodes; the minimum needs {layout.nodes}."
        return [rejection("nodes", required=layout.nodes, observed=record.max_nodes, remedy=remedy)]
    up = [kind for kind in asked.usable_kinds if kind.up]
    if not up:
        remedy = f"No suitable node of {place} is up; wait or choose another partition."
        return [rejection("nodes", required=1, observed=0, remedy=remedy)]
    return _short_of(asked, up) or [_wrong_layout(asked, up)]


def _short_of(asked: Asked, up: list[NodeKind]) -> list[Rejection]:
    """Return one rejection for every resource whose total over all nodes is too small."""
    least, place = asked.envelope.minimum(), f"{asked.record.system}/{asked.record.partition}"
    count = sum(kind.up for kind in up)
    have = {
        "gpus": (least.gpus, sum(kind.gpus * kind.up for kind in up)),
        "cpus": (least.cpus, sum(kind.cpus * kind.up for kind in up)),
        "memory": (least.memory_mib or 0, sum(kind.memory_mib * kind.up for kind in up)),
        "nodes": (least.nodes or 1, count),
    }
    words = {"memory": "memory_mib"}
    return [
        rejection(
            code,
            required=required,
            observed=observed,
            remedy=f"{place} has {observed} {words.get(code, code)} on {count} nodes that are up; "
            f"lower {words.get(code, code)}.min from {required} to {observed} or less.",
        )
        for code, (required, observed) in have.items()
        if required > observed
    ]


def _wrong_layout(asked: Asked, up: list[NodeKind]) -> Rejection:
    """Return why totals that exist cannot be laid out: too much on one node, or no even share."""
    least, place = asked.envelope.minimum(), f"{asked.record.system}/{asked.record.partition}"
    widest = {
        "cpus": max(kind.cpus for kind in up),
        "memory": max(kind.memory_mib for kind in up),
        "gpus": max(kind.gpus for kind in up),
    }
    nodes = asked.envelope.nodes.max if asked.envelope.nodes else sum(kind.up for kind in up)
    for code, total in (("cpus", least.cpus), ("memory", least.memory_mib or 0)):
        if -(-total // nodes) > widest[code]:
            most = widest[code] * nodes
            remedy = f"{nodes} nodes of {place} hold at most {most}; allow more nodes or lower the minimum."
            return rejection(code, required=total, observed=most, remedy=remedy)
    asked_nodes = f"on {nodes} nodes" if asked.envelope.nodes else "in even shares"
    remedy = (
        f"Nodes of {place} have {widest['gpus']} GPUs; {least.gpus} with {least.cpus} CPUs cannot be spread "
        f"{asked_nodes}: widen nodes or gpus."
    )
    return rejection(
        "gpus_per_node_shape", required=least.gpus, observed=widest["gpus"] * nodes, remedy=remedy
    )


def wall_time(asked: Asked, layout: Layout | None) -> list[Rejection]:
    """Reject where the least wall time exceeds the cap or runs into maintenance."""
    record, wanted, found = asked.record, asked.envelope.walltime_s.min, []
    caps = [cap for cap in (record.max_walltime_s, record.limits.max_walltime_s) if cap is not None]
    place = f"{record.system}/{record.partition}"
    if caps and wanted > min(caps):
        most = max(0, min(caps))
        remedy = f"{place} runs jobs for at most {most} s; lower walltime_s.min from {wanted} s."
        found.append(rejection("wall_time_over_limit", required=wanted, observed=most, remedy=remedy))
    if layout is not None and closes_too_soon(layout, record, now=asked.now):
        first = min(window.start_at for window in record.maintenance if _is_ahead(window.end_at, asked.now))
        left_s = max(0, int((first - asked.now) / timedelta(seconds=1)))
        remedy = f"Maintenance at {place} begins in {left_s} s; ask for less wall time or wait until it ends."
        found.append(rejection("maintenance_window", required=wanted, observed=left_s, remedy=remedy))
    return found


def _is_ahead(end_at: datetime | None, now: datetime) -> bool:
    return end_at is None or end_at > now


def user_limits(asked: Asked, layout: Layout | None) -> list[Rejection]:
    """Reject what the site would not accept from this user; limits on running jobs only delay."""
    record, limits, found = asked.record, asked.record.limits, []
    running = [limits.max_running_jobs, *(group.max_jobs for group in record.groups)]
    if any(most is not None and most < 1 for most in (limits.max_submit_jobs, *running)):
        place = f"{record.system}/{record.partition}"
        remedy = f"{place} admits no job under this account and QoS; use others, or another partition."
        found.append(rejection("max_jobs", required=1, observed=0, remedy=remedy))
    elif limits.max_submit_jobs is not None and limits.submitted_jobs >= limits.max_submit_jobs:
        remedy = f"You have {limits.submitted_jobs} of {limits.max_submit_jobs} jobs there; let some end."
        found.append(
            rejection(
                "max_jobs", required=limits.submitted_jobs + 1, observed=limits.max_submit_jobs, remedy=remedy
            )
        )
    if layout is None:
        return found
    asked_for = {"max_gpus": layout.gpus, "max_nodes": layout.nodes, "qos_limit": layout.cpus}
    allowed = {
        "max_gpus": (limits.max_gpus_per_job, limits.max_gpus_per_user),
        "max_nodes": (limits.max_nodes_per_job, limits.max_nodes_per_user),
        "qos_limit": (limits.max_cpus_per_job, limits.max_cpus_per_user),
    }
    words = {"max_gpus": "GPUs", "max_nodes": "nodes", "qos_limit": "CPUs"}
    for code in limit_codes(layout, record):
        most = max(0, min(bound for bound in allowed[code] if bound is not None))
        remedy = f"{record.system} lets you use {most} {words[code]} at once; ask for {most} or fewer."
        found.append(rejection(code, required=asked_for[code], observed=most, remedy=remedy))
    return found


def credit(asked: Asked, layout: Layout | None) -> list[Rejection]:
    """Reject where the charge of the smallest shape exceeds what the task may use on that site."""
    if layout is None:
        return []
    record, found = asked.record, []
    charge = charge_for(layout, record)
    left, cap = credit_for(record, asked.budgets), cap_for(record, asked.envelope)
    unit = charge.unit or "units"
    if left is not None and charge.amount > left:
        remedy = f"It needs {charge.amount} {unit} at {record.system}, {left} are left; add credit."
        found.append(
            rejection("credit_exceeded", required=str(charge.amount), observed=str(left), remedy=remedy)
        )
    if cap is not None and charge.amount > cap:
        remedy = (
            f"Raise policy.max_charge.{record.system} from {cap} to {charge.amount} {unit}, or ask for less."
        )
        found.append(
            rejection("charge_over_cap", required=str(charge.amount), observed=str(cap), remedy=remedy)
        )
    return found


PLAIN_RULES: tuple[Callable[[Asked], list[Rejection]], ...] = (
    endpoint_health,
    authorization,
    blocked_partition,
    architecture,
    accelerator,
)
"""Rules that need no layout; the others follow them in `failures`."""
