"""The smallest change that would make an unschedulable task feasible somewhere.

Each rejection names its own remedy as an edit of the envelope, or as an act outside of it (sign in, wait).
Edits are applied and the candidate is judged again, because one obstacle may hide another. The change that
costs least wins: numbers count by how much they move, words by one each, acts outside by ten.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

from federation.types import ResourceRecord
from orchestrator.envelope.types import Accelerator, Envelope, Policy, Range
from orchestrator.placement.judge import Judged, Question, judge
from orchestrator.placement.types import Change, Closest, Figure, Rejection

ROUNDS = 5
"""Edits may uncover further obstacles this many times."""
WORD_COST = 1.0
OUTSIDE_COST = 10.0


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of one envelope field: the new envelope, from, to, and how far it goes."""

    envelope: Envelope
    field: str
    current: Figure
    proposed: Figure
    cost: float


def closest_change(question: Question, judged: Iterable[Judged]) -> Closest | None:
    """Return the cheapest change over all candidates; None when there are no candidates."""
    best: tuple[tuple[float, int, tuple[str, str, str]], Closest] | None = None
    for each in judged:
        cost, closest = _changes_for(question, each)
        order = (cost, len(closest.changes), each.record.key)
        if best is None or order < best[0]:
            best = (order, closest)
    return None if best is None else best[1]


def _changes_for(question: Question, judged: Judged) -> tuple[float, Closest]:
    """Return what helps one record and its cost: edits until it is feasible or only acts outside are left."""
    record, rejections = judged.record, judged.rejections
    envelope, changes, cost = question.envelope, dict[str, Change](), 0.0
    for _ in range(ROUNDS):
        edited = envelope
        for each in rejections:
            edit = edit_for(edited, record, each)
            if edit is not None:
                edited, cost = edit.envelope, cost + edit.cost
                changes[edit.field] = _change(edit, each.code, changes.get(edit.field))
        if edited == envelope:
            break
        envelope = edited
        again = judge(replace(question, envelope=envelope), record)
        rejections = again.rejections
        if again.best is not None:
            return cost, _closest(record, changes.values(), verified=True)
    outside = [_act(each) for each in rejections]
    cost += OUTSIDE_COST * max(1, len(outside))
    return cost, _closest(record, [*changes.values(), *outside], verified=False)


def _change(edit: Edit, code: str, before: Change | None) -> Change:
    """Return an edit as a change, from where the field stood before any edit."""
    current = edit.current if before is None else before.current
    sentence = f"Change {edit.field} from {_say(current)} to {_say(edit.proposed)}."
    return Change(field=edit.field, code=code, current=current, proposed=edit.proposed, sentence=sentence)


def _act(failed: Rejection) -> Change:
    """Return a rejection that no edit answers as an act outside of the envelope."""
    return Change(
        field=None,
        code=failed.code,
        current=failed.observed,
        proposed=failed.required,
        sentence=failed.remedy,
    )


def _closest(record: ResourceRecord, changes: Iterable[Change], *, verified: bool) -> Closest:
    return Closest(
        system=record.system,
        partition=record.partition,
        account=record.account,
        changes=tuple(changes),
        verified=verified,
    )


def _say(figure: Figure) -> str:
    if figure is None:
        return "unset"
    return ", ".join(figure) or "none" if isinstance(figure, tuple) else str(figure)


def edit_for(envelope: Envelope, record: ResourceRecord, failed: Rejection) -> Edit | None:
    """Return the edit of the envelope that answers one rejection; None when only an act outside helps."""
    numbers = {
        "gpus": "gpus",
        "gpus_per_node_shape": "gpus",
        "max_gpus": "gpus",
        "cpus": "cpus",
        "qos_limit": "cpus",
        "memory": "memory_mib",
        "nodes": "nodes",
        "max_nodes": "nodes",
        "wall_time_over_limit": "walltime_s",
        "maintenance_window": "walltime_s",
    }
    if failed.code in numbers:
        name = numbers[failed.code]
        if name == "nodes" and _follows_from_size(envelope, failed):
            return _fewer_nodes(envelope, failed)
        return _lower(envelope, name, failed.observed)
    if failed.code == "charge_over_cap":
        return _raise_cap(envelope, record, failed)
    if failed.code == "credit_exceeded":
        return _cheaper(envelope, failed)
    if failed.code == "excluded_by_policy":
        return _admit(envelope, record, failed)
    return _drop_word(envelope, record, failed)


def _lower(envelope: Envelope, name: str, most: Figure) -> Edit | None:
    """Lower a range's minimum to what is there; a node count that does not fit is dropped."""
    bounds: Range | None = getattr(envelope, name)
    if name == "gpus" and isinstance(most, int) and envelope.nodes is not None and most >= envelope.gpus.min:
        return _edit(envelope, "nodes", None, change=(_range(envelope.nodes), None), cost=WORD_COST)
    if not isinstance(most, int) or most < 1 or bounds is None:
        return None
    if most >= bounds.min:
        most = bounds.min // 2
        if most < 1:
            return None
    lowered = Range(min=most, max=bounds.max)
    cost = (bounds.min - most) / max(bounds.min, 1)
    return _edit(envelope, name, lowered, change=(bounds.min, most), cost=cost, label=f"{name}.min")


def _follows_from_size(envelope: Envelope, failed: Rejection) -> bool:
    """Whether it is GPUs or CPUs, not the range of nodes itself, that need more nodes than there may be."""
    most = failed.observed
    return envelope.nodes is None or (isinstance(most, int) and most >= envelope.nodes.min)


def _fewer_nodes(envelope: Envelope, failed: Rejection) -> Edit | None:
    """Lower what decides the number of nodes, in proportion to the nodes there are: GPUs, else CPUs."""
    needed, most = failed.required, failed.observed
    if not isinstance(needed, int) or not isinstance(most, int) or needed < 1:
        return None
    name = "gpus" if envelope.gpus.min > 0 else "cpus"
    least: int = getattr(envelope, name).min
    return _lower(envelope, name, least * most // needed)


def _range(bounds: Range) -> str:
    return str(bounds.min) if bounds.is_fixed else f"{bounds.min} to {bounds.max}"


def _edit(
    envelope: Envelope,
    name: str,
    value: object,
    *,
    change: tuple[Figure, Figure],
    cost: float,
    label: str | None = None,
) -> Edit:
    """Return the envelope with one field replaced; `change` is what a person sees: from, to."""
    current, proposed = change
    return Edit(envelope.model_copy(update={name: value}), label or name, current, proposed, cost)


def _raise_cap(envelope: Envelope, record: ResourceRecord, failed: Rejection) -> Edit:
    cap, needed = envelope.policy.max_charge[record.system], Decimal(str(failed.required))
    caps = {**envelope.policy.max_charge, record.system: needed}
    policy = envelope.policy.model_copy(update={"max_charge": caps})
    cost = float((needed - cap) / needed) if needed else WORD_COST
    return _edit(
        envelope,
        "policy",
        policy,
        change=(str(cap), str(needed)),
        cost=cost,
        label=f"policy.max_charge.{record.system}",
    )


def _cheaper(envelope: Envelope, failed: Rejection) -> Edit | None:
    """Shorten the wall time to what the credit pays for."""
    needed, left = Decimal(str(failed.required)), Decimal(str(failed.observed))
    if needed <= 0 or left <= 0:
        return None
    return _lower(envelope, "walltime_s", int(envelope.walltime_s.min * left / needed) - 1)


def _admit(envelope: Envelope, record: ResourceRecord, failed: Rejection) -> Edit | None:
    policy, name = envelope.policy, str(failed.required).removeprefix("policy.")
    kept: dict[str, object] = {}
    if name == "allow_systems":
        kept["allow_systems"] = (*(policy.allow_systems or ()), record.system)
    elif name == "exclude_systems" and record.system in policy.exclude_systems:
        kept["exclude_systems"] = tuple(slug for slug in policy.exclude_systems if slug != record.system)
    elif name == "exclude_partitions":
        barred = {record.partition, f"{record.system}/{record.partition}"}
        kept["exclude_partitions"] = tuple(each for each in policy.exclude_partitions if each not in barred)
    else:
        return None
    changed: Policy = policy.model_copy(update=kept)
    before, after = getattr(policy, name), getattr(changed, name)
    return _edit(envelope, "policy", changed, change=(before, after), cost=WORD_COST, label=f"policy.{name}")


def _drop_word(envelope: Envelope, record: ResourceRecord, failed: Rejection) -> Edit | None:
    """Accept what the record has, or drop the demand it cannot meet."""
    code = failed.code
    if code == "architecture_mismatch" and record.architecture is not None:
        wider = (*envelope.architecture, record.architecture)
        return _edit(envelope, "architecture", wider, change=(envelope.architecture, wider), cost=WORD_COST)
    if code in {"accelerator_type", "accelerator_memory"} and envelope.accelerator is not None:
        return _other_accelerator(envelope, envelope.accelerator, failed)
    if code == "accelerator_absent":
        none = Range(min=0, max=envelope.gpus.max)
        return _edit(
            envelope, "gpus", none, change=(envelope.gpus.min, 0), cost=2 * WORD_COST, label="gpus.min"
        )
    if code == "container_unsupported" and envelope.container is not None and record.containers:
        other = envelope.container.model_copy(
            update={"runtime": (*envelope.container.runtime, *record.containers)}
        )
        return _edit(
            envelope,
            "container",
            other,
            change=(envelope.container.runtime, other.runtime),
            cost=WORD_COST,
            label="container.runtime",
        )
    if code == "container_unsupported":
        return _edit(envelope, "container", None, change=(failed.required, None), cost=WORD_COST)
    return _drop_from_list(envelope, failed)


def _other_accelerator(envelope: Envelope, wanted: Accelerator, failed: Rejection) -> Edit | None:
    if failed.code == "accelerator_memory":
        if not isinstance(failed.observed, int):
            return None
        lower = wanted.model_copy(update={"min_memory_mib": failed.observed})
        asked = max(wanted.min_memory_mib or 1, 1)
        cost = (asked - failed.observed) / asked
        return _edit(
            envelope,
            "accelerator",
            lower,
            change=(wanted.min_memory_mib, failed.observed),
            cost=cost,
            label="accelerator.min_memory_mib",
        )  # fmt: skip
    have = tuple(t for t in failed.observed if t != "unknown") if isinstance(failed.observed, tuple) else ()
    if not have:
        return None
    types = (*wanted.types, *have) if wanted.types else ()
    wider = wanted.model_copy(update={"types": types, "vendor": None})
    before: Figure = wanted.types or wanted.vendor
    return _edit(
        envelope,
        "accelerator",
        wider,
        change=(before, types or have),
        cost=WORD_COST,
        label="accelerator.types",
    )


def _drop_from_list(envelope: Envelope, failed: Rejection) -> Edit | None:
    word = str(failed.required)
    if failed.code in {"software_missing", "software_version"}:
        for name in ("software", "parallel"):
            listed = getattr(envelope, name)
            kept = tuple(each for each in listed if f"{each.name} {each.version or ''}".strip() != word)
            if len(kept) < len(listed):
                label = f"{name}.{word.split(maxsplit=1)[0]}"
                return _edit(envelope, name, kept, change=(word, None), cost=WORD_COST, label=label)
    names = {"network_missing": "network", "filesystem_missing": "filesystem"}
    if failed.code in names:
        name = names[failed.code]
        words = getattr(envelope, name)
        kept = tuple(each for each in words if each != word)
        return _edit(envelope, name, kept, change=(words, kept), cost=WORD_COST)
    return None
