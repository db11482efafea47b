"""From the recorded decision to what a person reads: the same for a preview and for a task. Pure."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from orchestrator.placement import types as placement
from portal.web.presenters.decisions import (
    Candidate,
    DecisionView,
    Estimates,
    Reason,
    TimeBar,
    time_bars,
)
from portal.web.presenters.shared import SystemRef
from portal.web.templatetags.units import count, duration

NOW_S = 30
"""A start within this is said as "now"."""

CODE_WORDS: Mapping[str, str | Promise] = {
    "endpoint_offline": gettext_lazy("It cannot be reached."),
    "endpoint_stale": gettext_lazy("Its figures are too old."),
    "system_disabled": gettext_lazy("It is switched off here."),
    "not_authorized": gettext_lazy("You have no access."),
    "no_account": gettext_lazy("You have no account."),
    "no_allocation": gettext_lazy("You have no allocation."),
    "partition_blocked": gettext_lazy("It is blocked."),
    "partition_down": gettext_lazy("The partition is not up."),
    "excluded_by_policy": gettext_lazy("Your policy leaves it out."),
    "architecture_mismatch": gettext_lazy("Another processor."),
    "accelerator_type": gettext_lazy("Another type of GPU."),
    "accelerator_memory": gettext_lazy("Too little GPU memory."),
    "accelerator_absent": gettext_lazy("No GPUs."),
    "gpus": gettext_lazy("Too few GPUs."),
    "cpus": gettext_lazy("Too few CPUs."),
    "memory": gettext_lazy("Too little memory."),
    "nodes": gettext_lazy("Too few nodes."),
    "gpus_per_node_shape": gettext_lazy("The GPUs do not divide over its nodes."),
    "wall_time_over_limit": gettext_lazy("Too short a wall-time limit."),
    "maintenance_window": gettext_lazy("Maintenance comes first."),
    "container_unsupported": gettext_lazy("No such container runtime."),
    "software_missing": gettext_lazy("Software is missing."),
    "software_version": gettext_lazy("Another version of the software."),
    "network_missing": gettext_lazy("No such network."),
    "filesystem_missing": gettext_lazy("No such file system."),
    "max_jobs": gettext_lazy("Too many jobs of yours."),
    "max_gpus": gettext_lazy("More GPUs than you may hold."),
    "max_nodes": gettext_lazy("More nodes than you may hold."),
    "qos_limit": gettext_lazy("Your QoS does not allow it."),
    "credit_exceeded": gettext_lazy("Not enough credit."),
    "charge_over_cap": gettext_lazy("Dearer than the cap."),
}

OBJECTIVE_WORDS: Mapping[str, str | Promise] = {
    "earliest_completion": gettext_lazy("earliest completion"),
    "soonest_start": gettext_lazy("soonest start"),
    "lowest_charge": gettext_lazy("lowest charge"),
    "risk_averse": gettext_lazy("least risk of a late end"),
}

WAIT_KINDS: Mapping[placement.WaitClass, str | Promise] = {
    placement.WaitClass.CERTAIN: gettext_lazy("free, nobody ahead"),
    placement.WaitClass.RISKY: gettext_lazy("free, others ahead"),
    placement.WaitClass.PLANNED: gettext_lazy("when others end"),
    placement.WaitClass.HIDDEN: gettext_lazy("queue hidden"),
}

Refs = Mapping[str, SystemRef]


def decision_view(
    decision: placement.Decision,
    refs: Refs,
    *,
    attempt: int | None = None,
) -> DecisionView:
    """Return the decision for reading.

    Args:
        decision: as recorded, or as a preview gave it.
        refs: how pages name the systems; one that is missing keeps its slug, without a colour of its own.
        attempt: number of the attempt it led to.
    """
    feasible = sorted((c for c in decision.candidates if c.feasible), key=lambda c: c.rank or 0)
    estimates = {id(c): _estimates(c.estimates) for c in feasible if c.estimates}
    bars = dict(zip(estimates, time_bars(tuple(estimates.values())), strict=True))
    return DecisionView(
        handle=decision.id,
        generated_at=decision.generated_at,
        objective=str(OBJECTIVE_WORDS.get(decision.objective, decision.objective)),
        why=_why(decision, refs),
        feasible=tuple(_feasible(c, decision, refs, estimates.get(id(c)), bars.get(id(c))) for c in feasible),
        rejected=tuple(_rejected(c, refs) for c in decision.candidates if not c.feasible),
        smallest_change=_smallest_change(decision.closest, refs),
        data_age_s=max((c.estimates.wait.snapshot_age_s for c in feasible if c.estimates), default=None),
        attempt=attempt,
        warnings=decision.warnings,
    )


def shape_words(shape: placement.Shape | Mapping[str, int | None] | None) -> str:
    """Return a shape as one line: "1 node · 4 GPUs · 32 CPUs · 1 h"; "" for none."""
    if not shape:
        return ""
    facts = shape if isinstance(shape, Mapping) else shape.model_dump()
    nodes, gpus, cpus = (facts.get(key) or 0 for key in ("nodes", "gpus", "cpus"))
    parts = [ngettext("%(n)s node", "%(n)s nodes", nodes) % {"n": count(nodes)}]
    if gpus:
        parts.append(ngettext("%(n)s GPU", "%(n)s GPUs", gpus) % {"n": count(gpus)})
    parts.append(ngettext("%(n)s CPU", "%(n)s CPUs", cpus) % {"n": count(cpus)})
    return " · ".join([*parts, duration(facts.get("walltime_s"))])


def charge_words(charge: placement.Charge | None) -> str:
    """Return an amount in its unit: "2.5 SU"; "" where the site charges nothing."""
    if charge is None or charge.unit is None:
        return ""
    return f"{charge.amount.normalize():f} {charge.unit}"


def place_name(system: str, partition: str, refs: Refs) -> str:
    """Return a place as one reads it aloud: "Anvil gpu"."""
    return f"{_ref(system, refs).name} {partition}"


def _ref(slug: str, refs: Refs) -> SystemRef:
    return refs.get(slug) or SystemRef(slug, slug, 0)


def _estimates(e: placement.Estimates) -> Estimates:
    return Estimates(
        wait_p50_s=e.wait_s.p50,
        wait_p90_s=e.wait_s.p90,
        preparation_s=e.preparation_s,
        transfer_s=e.transfer_s,
        runtime_s=e.runtime_s,
        completion_s=e.completion_s,
        wait_kind=str(WAIT_KINDS[e.wait.wait_class]),
    )


def _feasible(
    c: placement.Candidate,
    decision: placement.Decision,
    refs: Refs,
    estimates: Estimates | None,
    bar: TimeBar | None,
) -> Candidate:
    finish = decision.generated_at + timedelta(seconds=c.estimates.completion_s) if c.estimates else None
    notes = [c.sizing.why if c.sizing and _was_sized(c.sizing) else "", c.tie_break or ""]
    return Candidate(
        ref=_ref(c.system, refs),
        partition=c.partition,
        account=c.account or "",
        chosen=_is_chosen(c, decision.selected),
        feasible=True,
        rank=c.rank,
        shape=shape_words(c.shape),
        estimates=estimates,
        finish_at=finish,
        bar=bar,
        charge=charge_words(c.estimates.charge if c.estimates else None),
        reasons=(),
        note=" ".join(note for note in notes if note),
    )


def _was_sized(sizing: placement.Sizing) -> bool:
    """Return whether the granted size is not simply what was asked for."""
    return (sizing.from_.gpus, sizing.from_.cpus) != (sizing.to.gpus, sizing.to.cpus)


def _is_chosen(c: placement.Candidate, selected: placement.Selected | None) -> bool:
    return selected is not None and (c.system, c.partition, c.account, c.qos) == (
        selected.system,
        selected.partition,
        selected.account,
        selected.qos,
    )


def _rejected(c: placement.Candidate, refs: Refs) -> Candidate:
    return Candidate(
        ref=_ref(c.system, refs),
        partition=c.partition,
        account=c.account or "",
        chosen=False,
        feasible=False,
        rank=None,
        shape="",
        estimates=None,
        finish_at=None,
        bar=None,
        charge="",
        reasons=reasons(c.rejections),
    )


def reasons(rejections: Iterable[placement.Rejection]) -> tuple[Reason, ...]:
    """Return rejections as sentences; a code without words keeps its own name."""
    return tuple(Reason(str(CODE_WORDS.get(r.code, r.code)), r.remedy, r.code) for r in rejections)


def _why(decision: placement.Decision, refs: Refs) -> str:
    """Return why the chosen one won, in one or two sentences; "" when nothing was chosen."""
    chosen, second = decision.selected, decision.runner_up
    if chosen is None:
        return ""
    wait_s = chosen.estimates.wait_s.p50
    said = _("%(place)s is chosen: it should start %(start)s and run for %(run)s.") % {
        "place": place_name(chosen.system, chosen.partition, refs),
        "start": _("now") if wait_s < NOW_S else _("in %(wait)s") % {"wait": duration(wait_s)},
        "run": duration(chosen.estimates.runtime_s),
    }
    if second is None or decision.margin_s is None:
        return said
    return f"{said} {_runner_up(second, decision.margin_s, refs)}"


def _runner_up(second: placement.Selected, margin_s: int, refs: Refs) -> str:
    place = place_name(second.system, second.partition, refs)
    if margin_s <= 0:
        return _("%(place)s would not be later, but comes second by the tie-break.") % {"place": place}
    return _("%(place)s comes second, %(margin)s later.") % {"place": place, "margin": duration(margin_s)}


def _smallest_change(closest: placement.Closest | None, refs: Refs) -> str:
    if closest is None:
        return ""
    place = place_name(closest.system, closest.partition, refs)
    sentences = " ".join(change.sentence for change in closest.changes)
    if closest.verified:
        return _("%(place)s comes closest. %(changes)s Then it would run there.") % {
            "place": place,
            "changes": sentences,
        }
    return _("%(place)s comes closest. %(changes)s") % {"place": place, "changes": sentences}
