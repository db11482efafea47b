"""What would help, in sentences, each with the address that asks anew with the change made. Pure."""

from collections.abc import Iterable, Mapping
from urllib.parse import urlencode

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from orchestrator.placement.types import Closest, Figure
from orchestrator.placement.whatif import Relaxation
from portal.web.presenters.shared import SystemRef
from portal.web.presenters.submission import RelaxationRow
from portal.web.templatetags.units import duration, memory

MOST = 5

_DROPPED: Mapping[str, str | Promise] = {
    "accelerator.types": gettext_lazy("Take any type of GPU, not only %(was)s"),
    "accelerator.min_memory_mib": gettext_lazy("Ask for no least memory per GPU"),
    "nodes": gettext_lazy("Leave the number of nodes open"),
    "architecture": gettext_lazy("Take any processor, not only %(was)s"),
    "container": gettext_lazy("Run without the container"),
    "software": gettext_lazy("Do without %(was)s being installed"),
    "parallel": gettext_lazy("Do without %(was)s being installed"),
    "network": gettext_lazy("Take any network, not only %(was)s"),
    "filesystem": gettext_lazy("Take any file system, not only %(was)s"),
    "policy.allow_systems": gettext_lazy("Let it run elsewhere than %(was)s"),
    "policy.exclude_systems": gettext_lazy("Let it run on %(was)s, too"),
    "policy.exclude_partitions": gettext_lazy("Let it run in %(was)s, too"),
}
_SMALLER: Mapping[str, str | Promise] = {
    "gpus.min": gettext_lazy("Let it start with fewer GPUs: %(now)s, not %(was)s"),
    "cpus.min": gettext_lazy("Let it start with fewer CPUs: %(now)s, not %(was)s"),
    "memory_mib.min": gettext_lazy("Ask for %(now)s of memory, not %(was)s"),
    "walltime_s.min": gettext_lazy("Ask for %(now)s of wall time, not %(was)s"),
}
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "accelerator.types": ("accelerator_types",),
    "accelerator.min_memory_mib": ("accelerator_memory",),
    "nodes": ("nodes_min", "nodes_max"),
    "architecture": ("architecture",),
    "container": ("container_runtime", "container_image"),
    "software": ("software",),
    "policy.allow_systems": ("allow_systems",),
    "policy.exclude_systems": ("exclude_systems",),
    "gpus.min": ("gpus_min",),
    "cpus.min": ("cpus_min",),
    "memory_mib.min": ("memory_min",),
    "walltime_s.min": ("walltime_min", "walltime_max"),
}
"""The fields of the form that speak for a field of the envelope."""


def relaxation_rows(
    found: Iterable[Relaxation], refs: Mapping[str, SystemRef], asked: Mapping[str, str]
) -> tuple[RelaxationRow, ...]:
    """Return the most helpful changes, ready to read; `asked` is the question as the address has it."""
    return tuple(_row(each, refs, asked) for each in list(found)[:MOST])


def _row(each: Relaxation, refs: Mapping[str, SystemRef], asked: Mapping[str, str]) -> RelaxationRow:
    chosen = each.selected
    return RelaxationRow(
        change=change_words(each),
        ref=refs.get(chosen.system) or SystemRef(chosen.system, chosen.system, 0),
        partition=chosen.partition,
        wait_s=chosen.estimates.wait_s.p50,
        finish_in_s=chosen.estimates.completion_s,
        sooner_s=each.sooner_s,
        query=changed_query(each, asked),
    )


def change_words(each: Relaxation) -> str:
    """Return the change as something to do; a field without words keeps its path."""
    words = _DROPPED.get(each.field) if each.proposed is None else _SMALLER.get(each.field)
    if words is None:
        return _("Change %(field)s") % {"field": each.field}
    return str(words) % {"was": _say(each.field, each.current), "now": _say(each.field, each.proposed)}


def _say(field: str, figure: Figure) -> str:
    if isinstance(figure, tuple):
        return ", ".join(figure)
    if field.startswith("walltime_s") and isinstance(figure, int):
        return duration(figure)
    if field.startswith("memory_mib") and isinstance(figure, int):
        return memory(figure)
    return str(figure)


def changed_query(each: Relaxation, asked: Mapping[str, str]) -> str:
    """Return the question with the change made; "" where the form has no field for it."""
    changed = _changed(each.field, each.proposed, asked)
    return urlencode(changed) if changed is not None else ""


def closest_query(closest: Closest | None, asked: Mapping[str, str]) -> str:
    """Return the question with every change of the smallest one made; "" where the form cannot make them."""
    changed: dict[str, str] | None = dict(asked)
    for each in closest.changes if closest and closest.verified else ():
        changed = _changed(each.field, each.proposed, changed or {}) if each.field else None
        if changed is None:
            return ""
    return urlencode(changed) if closest and closest.verified and changed else ""


def _changed(field: str, proposed: Figure, asked: Mapping[str, str]) -> dict[str, str] | None:
    """Return what is typed once a field is changed; None where the form has no field for it."""
    names = _FIELDS.get(field)
    if names is None:
        return None
    kept = {name: value for name, value in asked.items() if name not in names}
    if isinstance(proposed, int):
        kept[names[0]] = _typed(field, proposed)
        kept |= _kept_most(field, asked)
    elif isinstance(proposed, tuple):
        kept[names[0]] = ", ".join(proposed)
    return kept


def _typed(field: str, figure: int) -> str:
    """Return a figure as the form takes it; what was the only size becomes the most of a range."""
    if field.startswith("walltime_s"):
        return f"{figure // 3600}:{figure % 3600 // 60:02}:{figure % 60:02}"
    return f"{figure}MiB" if field.endswith("memory_mib") or field.startswith("memory_mib") else str(figure)


def _kept_most(field: str, asked: Mapping[str, str]) -> dict[str, str]:
    """Return the upper end, so that less may start without more being given up; wall time has none."""
    name = field.removesuffix(".min").removesuffix("_mib")
    if name == "walltime_s":
        return {}
    least, most = asked.get(f"{name}_min"), asked.get(f"{name}_max")
    return {f"{name}_max": most or least or ""} if most or least else {}
