"""`#BSUB` directives of IBM Spectrum LSF.

Source: bsub(1) of LSF 10.1. Two things are a site's setting and cannot be read from a script: the unit
of bare memory figures (LSF_UNIT_FOR_LIMITS) and whether rusage[mem] counts per slot or per host.
"""

import math
import re
from collections.abc import Sequence

from providers.dialects.scripts.layout import lay_out, remark_on_strays, with_plain_dashes
from providers.dialects.scripts.quantities import lsf_limit_s, lsf_memory_mib, whole_number
from providers.dialects.scripts.sheet import Sheet
from providers.dialects.scripts.text import ScriptText
from providers.dialects.scripts.types import ArrayAsk, MemoryAsk, ScriptRequest, Span
from providers.dialects.scripts.words import Given, read_dash_options, words_of

_VALUED = (
    "n R W M q P G J o oo e eo cwd gpu w U m app u env L sp We c C D F S v p T Ep E g k b t i is f data "
    "nnodes alloc_flags sla jsdl Zs ti hostfile network clusters stage freq outdir Q"
)
_FLAGS = "x B N r rn H K I Ip Is XF ptl ul"
_OPTIONS = dict.fromkeys(_VALUED.split(), 1) | dict.fromkeys(_FLAGS.split(), 0)
_WORDS = {
    "q": "partition", "P": "account", "o": "output_path", "oo": "output_path", "e": "error_path",
    "eo": "error_path", "cwd": "workdir", "w": "dependency", "U": "reservation",
}  # fmt: skip
_IGNORED = {"u", "B", "N", "L", "K", "env", "I", "Ip", "Is", "XF", "Q"}


def read_lsf(
    text: ScriptText, *, unit_for_limits: str | None = None, memory_per_host: bool = False
) -> ScriptRequest:
    """Return what a `#BSUB` script asks for when it is fed to bsub's standard input.

    Args:
        text: The script.
        unit_for_limits: The site's LSF_UNIT_FOR_LIMITS (KB, MB, GB, TB); None = unset.
        memory_per_host: Whether the site counts rusage[mem] per host instead of per slot.
    """
    sheet = Sheet("lsf", text)
    layout = lay_out(text, r"#BSUB(?=[\s-]|$)")
    given: list[Given] = []
    for number, rest in layout.directives:
        words = words_of(sheet, number, with_plain_dashes(sheet, number, rest))
        given.extend(read_dash_options(sheet, number, words, _OPTIONS))
    remark_on_strays(sheet, layout, "#BSUB")
    # Slots and hosts come first: the other figures count per slot or per host.
    for one in sorted(given, key=lambda option: option.name not in {"n", "nnodes"}):
        _place(sheet, one)
    _read_requirements(sheet, given, unit=unit_for_limits, per_host=memory_per_host)
    return sheet.request(layout.read_body(sheet))


def _read_requirements(sheet: Sheet, given: Sequence[Given], *, unit: str | None, per_host: bool) -> None:
    sections = [found for one in given if one.name == "R" for found in _sections(sheet, one)]
    for name, content, line in sections:
        if name == "span":
            _read_span(sheet, content, line)
    for name, content, line in sections:
        if name == "rusage":
            _read_rusage(sheet, content, line, unit=(unit or "M")[0], per_host=per_host)
        elif name == "select":
            _read_select(sheet, content, line)
    for one in given:
        if one.name == "gpu":
            _read_gpu(sheet, one.value or "", one.line)
        elif one.name == "M":
            _read_limit(sheet, one, (unit or "K")[0])


def _place(sheet: Sheet, one: Given) -> None:
    value, line = one.value or "", one.line
    if one.name in _WORDS:
        sheet.put(_WORDS[one.name], value, line)
    elif one.name == "n":
        _read_slots(sheet, value, line)
    elif one.name == "nnodes":
        _read_hosts(sheet, value, line)
    elif one.name == "W":
        _read_run_limit(sheet, value, line)
    elif one.name == "J":
        _read_name(sheet, value, line)
    elif one.name == "x":
        sheet.flag("exclusive", line)
    elif one.name in _IGNORED:
        sheet.note("ignored", line, f"-{one.name} {value}".strip(), "says nothing about what the job needs")
    elif one.name not in {"R", "gpu", "M"}:
        sheet.extra.append(f"-{one.name} {value}".strip())


def _read_run_limit(sheet: Sheet, value: str, line: int) -> None:
    seconds = sheet.quantity(lsf_limit_s, value, line, "-W")
    if seconds:
        sheet.put("walltime_s", Span(min=seconds, max=seconds), line, why="hours:minutes")


def _read_hosts(sheet: Sheet, value: str, line: int) -> None:
    count = sheet.quantity(whole_number, value, line, "-nnodes")
    if count:
        sheet.put("nodes", Span(min=count, max=count), line)
        sheet.flag("exclusive", line)


def _read_slots(sheet: Sheet, value: str, line: int) -> None:
    low, _, high = value.partition(",")
    least = sheet.quantity(whole_number, low, line, "-n")
    most = sheet.quantity(whole_number, high, line, "-n") if high else least
    if least is not None and most is not None and least <= most:
        sheet.put("tasks", Span(min=least, max=most), line)
        sheet.put("cpus", Span(min=least, max=most), line, why="one per slot")


def _read_name(sheet: Sheet, value: str, line: int) -> None:
    match = re.fullmatch(r"([^\[\]]*)\[([0-9,:-]+)\](?:%([0-9]{1,9}))?", value)
    sheet.put("job_name", match[1] if match else value, line)
    if match is None:
        return
    count, step = 0, 1
    for member in match[2].split(","):
        found = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?", member)
        if not found or found[3] == "0":
            sheet.put("array", ArrayAsk(text=value), line)
            return
        step = int(found[3] or 1)
        count += max(0, (int(found[2]) - int(found[1])) // step + 1) if found[2] else 1
    at_once = int(match[3]) if match[3] else None
    sheet.put("array", ArrayAsk(text=value, count=count, step=step, max_concurrent=at_once), line)


def _sections(sheet: Sheet, one: Given) -> list[tuple[str, str, int]]:
    """Return the (name, content, line) of a resource requirement string."""
    text = one.value or ""
    found = [(match[1], match[2], one.line) for match in re.finditer(r"(\w+)\s*\[([^\]]*)\]", text)]
    rest = re.sub(r"\w+\s*\[[^\]]*\]", "", text).strip()
    if rest:
        found.append(("select", rest, one.line))
    for name, content, line in found:
        if name not in {"select", "rusage", "span", "order", "same", "affinity", "cu"}:
            sheet.note("not_understood", line, f"{name}[{content}]", "unknown section of -R")
        elif name in {"order", "same", "affinity", "cu"}:
            sheet.extra.append(f'-R "{name}[{content}]"')
    return found


def _read_span(sheet: Sheet, content: str, line: int) -> None:
    slots = sheet.values.get("cpus")
    key, _, value = content.partition("=")
    if not isinstance(slots, Span) or not re.fullmatch(r"[0-9]{1,9}", value) or not int(value):
        sheet.note("not_understood", line, f"span[{content}]", "no number of hosts follows from it")
    elif key.strip() == "hosts":
        sheet.put("nodes", Span(min=int(value), max=int(value)), line, why="span[hosts]")
    elif key.strip() == "ptile":
        each = int(value)
        span = Span(min=math.ceil(slots.min / each), max=math.ceil(slots.max / each))
        sheet.put("nodes", span, line, why=f"{each} slots per host")


def _read_rusage(sheet: Sheet, content: str, line: int, *, unit: str, per_host: bool) -> None:
    for member in re.split(r"[,:]", content):
        name, _, amount = (part.strip() for part in member.partition("="))
        if name == "mem":
            mib = sheet.quantity(lambda text: lsf_memory_mib(text, unit=unit), amount, line, "rusage[mem]")
            if mib is not None:
                _put_memory(sheet, mib, line, per_host=per_host)
        elif name in {"ngpus_excl_p", "ngpus_physical", "ngpus", "ngpus_shared"}:
            _put_gpus(sheet, amount, line, f"rusage[{name}]")
        elif name == "scratch":
            mib = sheet.quantity(
                lambda text: lsf_memory_mib(text, unit=unit), amount, line, "rusage[scratch]"
            )
            if mib is not None:
                slots = sheet.values.get("cpus")
                each = slots.max if isinstance(slots, Span) and not per_host else 1
                sheet.put("local_scratch_mib", mib * each, line, why=f"{mib} MiB per slot")
        elif name not in {"duration", "decay"}:
            sheet.note("not_understood", line, member, f"resource {name} is of this site's own making")


def _put_memory(sheet: Sheet, mib: int, line: int, *, per_host: bool) -> None:
    basis = sheet.values.get("nodes" if per_host else "cpus")
    span = basis if isinstance(basis, Span) else Span(min=1, max=1)
    per = "node" if per_host else "slot"
    sheet.put("memory_asked", MemoryAsk.model_validate({"mib": mib, "per": per}), line)
    total = Span(min=mib * span.min, max=mib * span.max)
    sheet.put("memory_mib", total, line, why=f"{mib} MiB per {'host' if per_host else 'slot'}")
    why = "per slot or per host is the site's setting; the unit too unless written"
    sheet.note("warnings", line, f"rusage[mem] {mib} MiB", why)


def _put_gpus(sheet: Sheet, amount: str, line: int, option: str, *, per_task: bool = False) -> None:
    count = sheet.quantity(whole_number, amount, line, option)
    if count is None:
        return
    basis = sheet.values.get("tasks" if per_task else "nodes")
    span = basis if isinstance(basis, Span) else Span(min=1, max=1)
    per = "task" if per_task else "host"
    known = "" if isinstance(basis, Span) else f", the number of {per}s is not given: reckoned for one"
    sheet.put("gpus", Span(min=count * span.min, max=count * span.max), line, why=f"{count} per {per}{known}")
    if not per_task:
        sheet.put("gpus_per_node", count, line)


def _read_gpu(sheet: Sheet, value: str, line: int) -> None:
    named = False
    for member in [] if value.strip() == "-" else value.split(":"):
        key, _, amount = (part.strip() for part in member.partition("="))
        if key == "num":
            number, _, per = amount.partition("/")
            _put_gpus(sheet, number, line, "-gpu num", per_task=per == "task")
            named = True
        elif key == "gmodel" and amount:
            sheet.put("gpu_types", (amount,), line)
        else:
            sheet.extra.append(f"-gpu {member.strip()}")
    if not named:
        _put_gpus(sheet, "1", line, "-gpu")


def _read_select(sheet: Sheet, content: str, line: int) -> None:
    for model in re.findall(r"gpu_model\d*\s*==?\s*['\"]?([\w.-]+)", content):
        sheet.put("gpu_types", (model,), line)
    if "gpu_model" not in content:
        sheet.extra.append(f'-R "select[{content}]"')


def _read_limit(sheet: Sheet, one: Given, unit: str) -> None:
    value = (one.value or "").rstrip("!")
    mib = sheet.quantity(lambda text: lsf_memory_mib(text, unit=unit), value, one.line, "-M")
    if mib is None:
        return
    sheet.put("memory_limit_mib", mib, one.line, why="a limit, not a reservation")
    if mib >= 16 * 1024**2:
        why = f"a limit of {mib} MiB: the unit is probably another than {unit}B"
        sheet.note("warnings", one.line, f"-M {value}", why)
    if "memory_mib" not in sheet.values:
        sheet.put("memory_mib", Span(min=mib, max=mib), one.line, why="the limit -M; nothing is reserved")
