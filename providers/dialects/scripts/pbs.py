"""`#PBS` directives: PBS Professional (`select`, `place`) and Torque (`nodes=…:ppn=…`).

Source: qsub(1B) and pbs_resources(7B) of PBS 2022, pbs_resources(7B) of Torque 6.
"""

import math
import re
from collections.abc import Callable

from providers.dialects.scripts.layout import lay_out, remark_on_strays, with_plain_dashes
from providers.dialects.scripts.quantities import colon_s, pbs_memory_mib, whole_number
from providers.dialects.scripts.sheet import Sheet
from providers.dialects.scripts.text import ScriptText
from providers.dialects.scripts.types import ArrayAsk, Chunk, MemoryAsk, ScriptRequest, Span
from providers.dialects.scripts.words import Given, read_dash_options, words_of

_OPTIONS = dict.fromkeys("aAcCdDeGIJjkKlLmMNopPqrRSTtuvwW", 1) | dict.fromkeys(
    ("f", "h", "V", "X", "x", "z"), 0
)
_OPTIONS["I"] = 0
_WORDS = {
    "q": "partition",
    "A": "account",
    "P": "account",
    "N": "job_name",
    "o": "output_path",
    "e": "error_path",
}
_IGNORED = {"m", "M", "j", "k", "V", "z", "S", "r", "R", "v", "p"}


def read_pbs(text: ScriptText) -> ScriptRequest:
    """Return what a `#PBS` script asks for."""
    sheet = Sheet("pbs", text)
    layout = lay_out(text, r"#PBS(?=[\s-]|$)")
    resources: dict[str, tuple[str, int]] = {}
    for number, rest in layout.directives:
        words = words_of(sheet, number, with_plain_dashes(sheet, number, rest))
        for one in read_dash_options(sheet, number, words, _OPTIONS):
            _place(sheet, one, resources)
    remark_on_strays(sheet, layout, "#PBS")
    _reckon(sheet, resources)
    return sheet.request(layout.read_body(sheet))


def _place(sheet: Sheet, one: Given, resources: dict[str, tuple[str, int]]) -> None:
    value = one.value or ""
    if one.name == "l":
        for member in _members(value):
            name, _, amount = member.partition("=")
            resources[name] = (amount, one.line)
    elif one.name in _WORDS:
        sheet.put(_WORDS[one.name], value, one.line)
    elif one.name in {"J", "t"}:
        sheet.put("array", read_pbs_array(value), one.line)
    elif one.name in {"d", "D"}:
        sheet.put("workdir", value, one.line)
    elif one.name == "W" and value.startswith("depend="):
        sheet.put("dependency", value.removeprefix("depend="), one.line)
    elif one.name in _IGNORED:
        sheet.note(
            "ignored", one.line, f"-{one.name} {value}".strip(), "says nothing about what the job needs"
        )
    else:
        sheet.extra.append(f"-{one.name} {value}".strip())


def _members(value: str) -> list[str]:
    """Return the comma-joined resources of one -l; `select=` may hold colons and pluses, not commas."""
    return [member.strip() for member in value.split(",") if member.strip()]


def read_pbs_array(text: str) -> ArrayAsk:
    """Return an array: `1-100:2` (PBS), `0-9,20%5` (Torque)."""
    members, _, limit = text.partition("%")
    count, step = 0, 1
    for member in members.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?", member.strip())
        if not match or match[3] == "0":
            return ArrayAsk(text=text)
        step = int(match[3] or 1)
        count += max(0, (int(match[2]) - int(match[1])) // step + 1) if match[2] else 1
    return ArrayAsk(
        text=text, count=count, step=step, max_concurrent=int(limit) if limit.isdecimal() else None
    )


def _reckon(sheet: Sheet, resources: dict[str, tuple[str, int]]) -> None:
    place, place_line = resources.pop("place", ("", 0))
    if "excl" in place or "exclhost" in place:
        sheet.flag("exclusive", place_line)
    select, nodes = resources.pop("select", None), resources.pop("nodes", None)
    if select:
        _reckon_chunks(sheet, *select, scatter="scatter" in place)
    if nodes:
        _reckon_torque_nodes(sheet, *nodes)
    chunked = bool(select or nodes)
    for name, (amount, line) in resources.items():
        _reckon_resource(sheet, name, amount, line, chunked=chunked)


def _reckon_resource(sheet: Sheet, name: str, amount: str, line: int, *, chunked: bool) -> None:
    counted = {"ncpus": "cpus", "ngpus": "gpus", "mpiprocs": "tasks", "procs": "cpus"}
    if name == "walltime":
        _reckon_walltime(sheet, amount, line)
    elif name in {"mem", "pmem", "vmem"}:
        _reckon_memory(sheet, name, amount, line)
    elif name in counted and not chunked:
        count = sheet.quantity(whole_number, amount, line, name)
        if count is not None:
            sheet.put(counted[name], Span(min=count, max=count), line, why="a total of the job")
    elif name == "jobfs":
        mib = sheet.quantity(pbs_memory_mib, amount, line, name)
        if mib is not None:
            sheet.put("local_scratch_mib", mib, line, why="a total of the job")
    elif name in {"storage", "filesystems"}:
        sheet.put("filesystems", tuple(re.split(r"[+:]", amount)), line)
    elif name in {"feature", "wd", "pvmem", "cput", "file", "software", "naccesspolicy", "advres", "qos"}:
        sheet.extra.append(f"-l {name}={amount}" if amount else f"-l {name}")
    else:
        sheet.note(
            "not_understood", line, f"-l {name}={amount}", f"resource {name} is of this site's own making"
        )


def _reckon_walltime(sheet: Sheet, amount: str, line: int) -> None:
    seconds = sheet.quantity(colon_s, amount, line, "walltime")
    if seconds:
        sheet.put("walltime_s", Span(min=seconds, max=seconds), line)


def _reckon_memory(sheet: Sheet, name: str, amount: str, line: int) -> None:
    mib = sheet.quantity(pbs_memory_mib, amount, line, name)
    if mib is None or name == "vmem":
        if name == "vmem":
            sheet.extra.append(f"-l vmem={amount}")
        return
    cpus = sheet.values.get("cpus")
    if name == "mem":
        sheet.put("memory_asked", MemoryAsk(mib=mib, per="job"), line)
        sheet.put("memory_mib", Span(min=mib, max=mib), line, why="a total of the job")
    else:
        span = cpus if isinstance(cpus, Span) else Span(min=1, max=1)
        sheet.put("memory_asked", MemoryAsk(mib=mib, per="cpu"), line)
        sheet.put(
            "memory_mib", Span(min=mib * span.min, max=mib * span.max), line, why=f"{mib} MiB per process"
        )


def _reckon_chunks(sheet: Sheet, text: str, line: int, *, scatter: bool) -> None:
    chunks = [chunk for member in text.split("+") if (chunk := _chunk(sheet, member, line)) is not None]
    if not chunks:
        return
    sheet.put("chunks", tuple(chunks), line)
    count = sum(chunk.count for chunk in chunks)
    _total(sheet, "cpus", sum(chunk.count * chunk.cpus for chunk in chunks), line)
    _total(sheet, "gpus", sum(chunk.count * chunk.gpus for chunk in chunks), line)
    if any(chunk.tasks is not None for chunk in chunks):
        _total(sheet, "tasks", sum(chunk.count * (chunk.tasks or 1) for chunk in chunks), line)
    if all(chunk.memory_mib is not None for chunk in chunks):
        _total(sheet, "memory_mib", sum(chunk.count * (chunk.memory_mib or 0) for chunk in chunks), line)
    elif any(chunk.memory_mib is not None for chunk in chunks):
        sheet.note("warnings", line, text, "not every chunk names its memory: no total can be told")
    if scatter or count == 1:
        sheet.put("nodes", Span(min=count, max=count), line, why="one host per chunk")
    else:
        why = "chunks may share a host: place=scatter is not asked for"
        sheet.put("nodes", Span(min=1, max=count), line, why=why)
    if len({chunk.gpus for chunk in chunks}) == 1 and scatter:
        sheet.put("gpus_per_node", chunks[0].gpus, line)


def _total(sheet: Sheet, field: str, total: int, line: int) -> None:
    sheet.put(field, Span(min=total, max=total), line, why="sum over the chunks")


def _chunk(sheet: Sheet, text: str, line: int) -> Chunk | None:
    head, *rest = text.split(":")
    count = 1
    if "=" in head:
        rest = [head, *rest]
    else:
        read = sheet.quantity(whole_number, head, line, "select")
        if read is None:
            return None
        count = read
    found: dict[str, int] = {}
    readers: dict[str, tuple[str, Callable[[str], int]]] = {
        "ncpus": ("cpus", whole_number), "mpiprocs": ("tasks", whole_number), "ngpus": ("gpus", whole_number),
        "naccelerators": ("gpus", whole_number), "mem": ("memory_mib", pbs_memory_mib),
    }  # fmt: skip
    for member in rest:
        name, _, amount = member.partition("=")
        if name in readers:
            field, read_amount = readers[name]
            value = sheet.quantity(read_amount, amount, line, name)
            if value is not None:
                found[field] = value
        else:
            _chunk_word(sheet, member, name, amount, line)
    return Chunk.model_validate({"count": count, **found})


def _chunk_word(sheet: Sheet, member: str, name: str, amount: str, line: int) -> None:
    if name in {"gpu_type", "gpu_model", "accelerator_model", "gputype"} and amount:
        sheet.put("gpu_types", (amount,), line)
    elif name in {"ompthreads", "host", "vnode", "arch", "model", "system", "scratch", "gpu_mem", "cpu_type"}:
        sheet.extra.append(f"select: {member}")
    else:
        sheet.note("not_understood", line, member, f"chunk resource {name} is of this site's own making")


def _reckon_torque_nodes(sheet: Sheet, text: str, line: int) -> None:
    nodes = cpus = gpus = 0
    for member in text.split("+"):
        head, *rest = member.split(":")
        count = int(head) if re.fullmatch(r"[0-9]{1,9}", head) else 1
        if not re.fullmatch(r"[0-9]{1,9}", head):
            sheet.note("warnings", line, head, "a named host or feature counts as one node")
        ppn, per_node = 1, 0
        for word in rest:
            name, _, amount = word.partition("=")
            value = sheet.quantity(whole_number, amount, line, name) if name in {"ppn", "gpus"} else None
            if name == "ppn":
                ppn = value or 1
            elif name == "gpus":
                per_node = value or 0
            else:
                sheet.note("not_understood", line, word, f"node property {word} is of this site's own making")
        nodes, cpus, gpus = nodes + count, cpus + count * ppn, gpus + count * per_node
    sheet.put("nodes", Span(min=nodes, max=nodes), line)
    for field, total in (("tasks", cpus), ("cpus", cpus), ("gpus", gpus)):
        if field != "gpus" or total:
            sheet.put(field, Span(min=total, max=total), line, why="per node times nodes")
    if gpus and nodes:
        sheet.put("gpus_per_node", math.ceil(gpus / nodes), line)
