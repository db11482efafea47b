"""What asking for less would bring: one demand at a time is dropped or halved, and placement is asked again.

`relax` answers what a task that fits nowhere must change at the least. This answers for every task what each
demand costs it in time. Nothing is guessed: a relaxation is told only when placement itself, asked with it,
ends clearly earlier, or ends at all.
"""

from collections.abc import Callable, Iterator

from orchestrator.envelope.types import Envelope, Policy, Range
from orchestrator.placement.types import Decision, Figure, Selected
from providers.types import Frozen

WORTH_S = 60
"""A gain below this, or below a twentieth of the time to the result, is not worth a change."""
WORTH_SHARE = 20


class Relaxation(Frozen):
    """One change of one envelope field, and what placement answered to it."""

    field: str
    """Path in the envelope."""
    current: Figure
    proposed: Figure
    """None: the demand is dropped."""
    selected: Selected
    sooner_s: int | None
    """Earlier completion than as asked; None: as asked it fits nowhere."""


def relaxations(
    envelope: Envelope, decision: Decision, ask: Callable[[Envelope], Decision]
) -> list[Relaxation]:
    """Return the single changes that help, the most helpful first.

    Args:
        envelope: The normalized request.
        decision: What placement answered to it.
        ask: Placement over the same records at the same instant.
    """
    found = []
    before = decision.selected
    for field, current, proposed, edited in _edits(envelope):
        after = ask(edited).selected
        if after is None:
            continue
        sooner_s = before.estimates.completion_s - after.estimates.completion_s if before else None
        if before is None or _is_worth(sooner_s or 0, before):
            found.append(
                Relaxation(field=field, current=current, proposed=proposed, selected=after, sooner_s=sooner_s)
            )
    return sorted(found, key=lambda each: (each.selected.estimates.completion_s, each.field))


def _is_worth(sooner_s: int, before: Selected) -> bool:
    return sooner_s >= max(WORTH_S, before.estimates.completion_s // WORTH_SHARE)


Edited = tuple[str, Figure, Figure, Envelope]


def _edits(envelope: Envelope) -> Iterator[Edited]:
    """Yield every single relaxation there is to ask about: smaller sizes, then demands dropped."""
    yield from _smaller(envelope)
    yield from _dropped(envelope)
    yield from _admitted(envelope)


def _smaller(envelope: Envelope) -> Iterator[Edited]:
    names = ["gpus" if envelope.gpus.min > 1 else "cpus", "memory_mib"]
    runtime_s = envelope.runtime.estimate_s if envelope.runtime else None
    for name in names:
        yield from _halved(envelope, name)
    if envelope.walltime_s.min // 2 >= max(runtime_s or 0, 60):
        yield from _halved(envelope, "walltime_s")


def _halved(envelope: Envelope, name: str) -> Iterator[Edited]:
    bounds: Range | None = getattr(envelope, name)
    if bounds is None or bounds.min < 2:
        return
    least = bounds.min // 2
    most = least if name == "walltime_s" else bounds.max
    edited = envelope.model_copy(update={name: Range(min=least, max=most)})
    yield f"{name}.min", bounds.min, least, edited


def _dropped(envelope: Envelope) -> Iterator[Edited]:
    wanted = envelope.accelerator
    if wanted is not None and wanted.types:
        other = wanted.model_copy(update={"types": (), "vendor": None})
        yield "accelerator.types", wanted.types, None, envelope.model_copy(update={"accelerator": other})
    if wanted is not None and wanted.min_memory_mib:
        other = wanted.model_copy(update={"min_memory_mib": None})
        found = envelope.model_copy(update={"accelerator": other})
        yield "accelerator.min_memory_mib", wanted.min_memory_mib, None, found
    if envelope.nodes is not None:
        yield "nodes", envelope.nodes.min, None, envelope.model_copy(update={"nodes": None})
    if envelope.architecture:
        yield "architecture", envelope.architecture, None, envelope.model_copy(update={"architecture": ()})
    if envelope.container is not None:
        runtime = envelope.container.runtime
        yield "container", runtime, None, envelope.model_copy(update={"container": None})
    for name in ("software", "parallel"):
        listed = getattr(envelope, name)
        if listed:
            words = tuple(each.name for each in listed)
            yield name, words, None, envelope.model_copy(update={name: ()})
    for name in ("network", "filesystem"):
        if getattr(envelope, name):
            yield name, getattr(envelope, name), None, envelope.model_copy(update={name: ()})


def _admitted(envelope: Envelope) -> Iterator[Edited]:
    policy = envelope.policy
    free = Policy()
    for name in ("allow_systems", "exclude_systems", "exclude_partitions"):
        words = getattr(policy, name)
        if words:
            other = policy.model_copy(update={name: getattr(free, name)})
            yield f"policy.{name}", tuple(words), None, envelope.model_copy(update={"policy": other})
