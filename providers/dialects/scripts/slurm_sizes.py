"""Slurm's sizes as totals: nodes, tasks, CPUs, GPUs and memory from options that count per something.

A script may leave any of them out; what cannot be told stays None. Each product says how it came about.
"""

import math
from collections.abc import Mapping

from providers.dialects.scripts.quantities import slurm_memory_mib
from providers.dialects.scripts.sheet import Sheet
from providers.dialects.scripts.slurm_words import GpuWords, read_count, read_gpus, read_gres, read_nodes
from providers.dialects.scripts.types import MemoryAsk, Span
from providers.dialects.scripts.words import Given

Options = Mapping[str, Given]
_MEMORY = (("mem", "node"), ("mem-per-cpu", "cpu"), ("mem-per-gpu", "gpu"))


class Sizes:
    """The options of one script while they are being added up."""

    def __init__(self, sheet: Sheet, options: Options) -> None:
        self.sheet = sheet
        self.options = options
        self.nodes = self._nodes()
        self.counts = {name: self._count(name) for name in options if name not in {"nodes", "gres"}}
        self.gpus_by = self._gpu_options()

    def line(self, *names: str) -> tuple[int, ...]:
        """Return the lines of the options that were given."""
        return tuple(self.options[name].line for name in names if name in self.options)

    def _nodes(self) -> Span | None:
        one = self.options.get("nodes")
        return self.sheet.quantity(read_nodes, one.value, one.line, "--nodes") if one else None

    def _count(self, name: str) -> int | None:
        one = self.options[name]
        if name.startswith(("gpus", "mem")):
            return None
        return self.sheet.quantity(read_count, one.value, one.line, f"--{name}")

    def _gpu_options(self) -> dict[str, GpuWords]:
        found: dict[str, GpuWords] = {}
        for name in ("gres", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gpus"):
            one = self.options.get(name)
            if one is None:
                continue
            words = self.sheet.quantity(
                read_gres if name == "gres" else read_gpus, one.value, one.line, f"--{name}"
            )
            if words is None:
                continue
            for other in words.others:
                kept = "kept as an extra option; not a whole GPU"
                self.sheet.note("not_understood", one.line, f"--gres={other}", kept)
                self.sheet.extra.append(f"--gres={other}")
            if name != "gres" or words.count or not words.others:
                found[name] = words
        return found


def reckon_sizes(sheet: Sheet, options: Options) -> None:
    """Fill nodes, tasks, CPUs, GPUs and memory of the sheet."""
    sizes = Sizes(sheet, options)
    _reckon_per_node_gpus(sizes)
    _reckon_nodes(sizes)
    _reckon_tasks(sizes)
    _reckon_gpus(sizes)
    _reckon_cpus(sizes)
    _reckon_memory(sizes)


def _reckon_per_node_gpus(sizes: Sizes) -> None:
    sheet, found = sizes.sheet, sizes.gpus_by
    types = tuple(dict.fromkeys(kind for words in found.values() for kind in words.types))
    if types:
        sheet.put("gpu_types", types, *sizes.line(*found))
    for name, words in found.items():
        if len(set(words.types)) > 1:
            one = sizes.options[name]
            why = "asks for both types at once; read as any of them"
            sheet.note("not_understood", one.line, one.text, why)
    if "gres" in found and "gpus-per-node" in found and found["gres"].count != found["gpus-per-node"].count:
        why = "conflicting GPU directives: --gres and --gpus-per-node differ; --gpus-per-node counts"
        sheet.note("conflicts", sizes.line("gres")[0], f"--gres={sizes.options['gres'].value}", why)
    per_node = found.get("gpus-per-node") or found.get("gres")
    sockets = sizes.counts.get("sockets-per-node")
    if per_node is None and "gpus-per-socket" in found and sockets:
        per_node = GpuWords(count=found["gpus-per-socket"].count * sockets)
    if per_node is not None:
        sheet.put("gpus_per_node", per_node.count, *sizes.line("gres", "gpus-per-node", "gpus-per-socket"))


def _reckon_nodes(sizes: Sizes) -> None:
    sheet = sizes.sheet
    total, per_node = sizes.gpus_by.get("gpus"), sheet.values.get("gpus_per_node")
    tasks, per = sizes.counts.get("ntasks"), sizes.counts.get("ntasks-per-node")
    if sizes.nodes is not None:
        sheet.put("nodes", sizes.nodes, *sizes.line("nodes"))
    elif total is not None and isinstance(per_node, int) and per_node > 0 and total.count > 0:
        sizes.nodes = _fixed(math.ceil(total.count / per_node))
        why = f"{total.count} GPUs at {per_node} per node"
        sheet.put("nodes", sizes.nodes, *sizes.line("gpus", "gpus-per-node", "gres"), why=why)
    elif tasks and per:
        sizes.nodes = _fixed(math.ceil(tasks / per))
        why = f"{tasks} tasks at {per} per node"
        sheet.put("nodes", sizes.nodes, *sizes.line("ntasks", "ntasks-per-node"), why=why)


def _reckon_tasks(sizes: Sizes) -> None:
    sheet, counts = sizes.sheet, sizes.counts
    if (tasks := counts.get("ntasks")) is not None:
        sheet.put("tasks", _fixed(tasks), *sizes.line("ntasks"))
    elif (per_node := counts.get("ntasks-per-node")) is not None:
        nodes = sizes.nodes or _fixed(1)
        lines = sizes.line("ntasks-per-node", "nodes")
        sheet.put("tasks", _times(nodes, per_node), *lines, why=f"{per_node} per node")
    if (cpus := counts.get("cpus-per-task")) is not None:
        sheet.put("cpus_per_task", cpus, *sizes.line("cpus-per-task"))


def _reckon_gpus(sizes: Sizes) -> None:
    sheet, found = sizes.sheet, sizes.gpus_by
    per_node, tasks = sheet.values.get("gpus_per_node"), sheet.values.get("tasks")
    if "gpus" in found:
        total = found["gpus"].count
        sheet.put("gpus", _fixed(total), *sizes.line("gpus"))
        nodes = sizes.nodes
        if isinstance(per_node, int) and nodes and not nodes.min * per_node <= total <= nodes.max * per_node:
            why = f"--gpus={total} does not fit {per_node} per node on {nodes.min}-{nodes.max} nodes"
            sheet.note("conflicts", sizes.line("gpus")[0], f"--gpus={total}", why)
    elif isinstance(per_node, int):
        nodes = sizes.nodes or _fixed(1)
        why = f"{per_node} per node" + ("" if sizes.nodes else ", one node")
        lines = sizes.line("gres", "gpus-per-node", "gpus-per-socket", "nodes")
        sheet.put("gpus", _times(nodes, per_node), *lines, why=why)
    elif "gpus-per-task" in found:
        each = found["gpus-per-task"].count
        span = tasks if isinstance(tasks, Span) else _fixed(1)
        lines = sizes.line("gpus-per-task", "ntasks", "ntasks-per-node")
        sheet.put("gpus", _times(span, each), *lines, why=f"{each} per task")
    per_gpu, gpus = sizes.counts.get("ntasks-per-gpu"), sheet.values.get("gpus")
    if per_gpu and isinstance(gpus, Span) and not isinstance(tasks, Span):
        sheet.put("tasks", _times(gpus, per_gpu), *sizes.line("ntasks-per-gpu"), why=f"{per_gpu} per GPU")


def _reckon_cpus(sizes: Sizes) -> None:
    sheet, counts = sizes.sheet, sizes.counts
    tasks, gpus, each = sheet.values.get("tasks"), sheet.values.get("gpus"), counts.get("cpus-per-task")
    cpus: Span | None = None
    if counts.get("cpus-per-gpu") is not None and isinstance(gpus, Span) and each is None:
        cpus = _times(gpus, counts["cpus-per-gpu"] or 0)
        sheet.put("cpus", cpus, *sizes.line("cpus-per-gpu", "gpus"), why=f"{counts['cpus-per-gpu']} per GPU")
    elif isinstance(tasks, Span):
        cpus = _times(tasks, each or 1)
        why = f"{each} per task" if each else "one per task"
        lines = sizes.line("ntasks", "ntasks-per-node", "cpus-per-task")
        sheet.put("cpus", cpus, *lines, why=why)
    elif each is not None:
        cpus = _times(sizes.nodes or _fixed(1), each)
        sheet.put(
            "cpus", cpus, *sizes.line("cpus-per-task", "nodes"), why=f"{each} per task, one task per node"
        )
    least = counts.get("mincpus")
    if least is not None and sizes.nodes and (cpus is None or cpus.min < least * sizes.nodes.min):
        floor = least * sizes.nodes.min
        span = Span(min=floor, max=max(floor, cpus.max if cpus else least * sizes.nodes.max))
        sheet.put("cpus", span, *sizes.line("mincpus", "nodes"), why=f"at least {least} per node")


def _reckon_memory(sizes: Sizes) -> None:
    sheet = sizes.sheet
    named = [(name, per) for name, per in _MEMORY if name in sizes.options]
    if len(named) > 1:
        why = "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive"
        sheet.note("refusals", max(sizes.line(*(name for name, _ in named))), "", why)
        return
    for name, per in named:
        one = sizes.options[name]
        mib = sheet.quantity(slurm_memory_mib, one.value, one.line, f"--{name}")
        if mib == 0:
            sheet.flag("memory_is_all", one.line, why="all memory of each node")
        elif mib is not None:
            sheet.put("memory_asked", MemoryAsk.model_validate({"mib": mib, "per": per}), one.line)
            _total_memory(sizes, mib, per, name)


def _total_memory(sizes: Sizes, mib: int, per: str, name: str) -> None:
    sheet = sizes.sheet
    basis: object = {"node": sizes.nodes, "cpu": sheet.values.get("cpus"), "gpu": sheet.values.get("gpus")}[
        per
    ]
    unknown = not isinstance(basis, Span)
    span = basis if isinstance(basis, Span) else _fixed(1)
    why = f"{mib} MiB per {per}" + (
        f", the number of {per}s is not given: reckoned for one" if unknown else ""
    )
    sheet.put("memory_mib", _times(span, mib), *sizes.line(name), why=why)


def _fixed(count: int) -> Span:
    return Span(min=count, max=count)


def _times(span: Span, each: int) -> Span:
    return Span(min=span.min * each, max=span.max * each)
