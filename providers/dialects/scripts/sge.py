"""`#$` directives of Grid Engine and its descendants. They count anywhere in the script.

Source: qsub(1) and complex(5) of SGE 8.1. Whether a resource counts per slot or per job is the site's
definition (consumable YES or JOB): memory is read per slot, GPUs per job, and both are remarked.
"""

import re

from providers.dialects.scripts.layout import lay_out, remark_on_strays, with_plain_dashes
from providers.dialects.scripts.pbs import read_pbs_array
from providers.dialects.scripts.quantities import colon_s, sge_memory_mib, whole_number
from providers.dialects.scripts.sheet import Sheet
from providers.dialects.scripts.text import ScriptText
from providers.dialects.scripts.types import ArrayAsk, MemoryAsk, ScriptRequest, Span
from providers.dialects.scripts.words import Given, read_dash_options, words_of

_VALUED = "N l t tc wd o e j q P A S v M m r R p a c ckpt dl hold_jid hold_jid_ad b now w ar jc js"
_FLAGS = "cwd V h clear hard soft notify terse sync"
_OPTIONS = dict.fromkeys(_VALUED.split(), 1) | dict.fromkeys(_FLAGS.split(), 0) | {"pe": 2}
_WORDS = {
    "N": "job_name", "q": "partition", "P": "account", "A": "account", "wd": "workdir", "o": "output_path",
    "e": "error_path", "hold_jid": "dependency", "hold_jid_ad": "dependency", "ar": "reservation",
}  # fmt: skip
_IGNORED = {"M", "m", "V", "v", "S", "j", "r", "notify", "terse", "b", "now", "w", "p", "cwd", "hard"}
_MEMORY = {"h_vmem", "s_vmem", "mem_free", "virtual_free", "mem", "vmem", "ram_free", "m_mem_free", "h_rss"}
_GPUS = {"gpu", "gpus", "ngpus", "num_gpu", "gpu_card", "cuda"}
_ONE_NODE = re.compile(r"smp|shm|shared|thread|openmp|multicore|serial|local|onenode|single", re.IGNORECASE)


def read_sge(text: ScriptText) -> ScriptRequest:
    """Return what a `#$` script asks for."""
    sheet = Sheet("sge", text)
    layout = lay_out(text, r"#\$(?=[\s-]|$)", anywhere=True)
    given: list[Given] = []
    for number, rest in layout.directives:
        words = words_of(sheet, number, with_plain_dashes(sheet, number, rest))
        given.extend(read_dash_options(sheet, number, words, _OPTIONS))
    remark_on_strays(sheet, layout, "#$")
    # Slots come first: memory counts per slot.
    for one in sorted(given, key=lambda option: option.name != "pe"):
        _place(sheet, one)
    return sheet.request(layout.read_body(sheet))


def _place(sheet: Sheet, one: Given) -> None:
    value, line = one.value or "", one.line
    if one.name in _WORDS:
        sheet.put(_WORDS[one.name], value, line)
    elif one.name == "pe":
        _read_environment(sheet, value, line)
    elif one.name == "l":
        for member in filter(None, value.split(",")):
            _read_resource(sheet, member.strip(), line)
    elif one.name in {"t", "tc"}:
        _read_array(sheet, one)
    elif one.name in _IGNORED:
        sheet.note("ignored", line, f"-{one.name} {value}".strip(), "says nothing about what the job needs")
    else:
        sheet.extra.append(f"-{one.name} {value}".strip())


def _read_array(sheet: Sheet, one: Given) -> None:
    known = sheet.values.get("array")
    known = known if isinstance(known, ArrayAsk) else ArrayAsk(text="")
    value = one.value or ""
    if one.name == "t":
        update = read_pbs_array(value).model_dump(exclude={"max_concurrent"})
    else:
        update = {"max_concurrent": sheet.quantity(whole_number, value, one.line, "-tc")}
    sheet.values["array"] = known.model_copy(update=update)
    sheet.lines["array"] = tuple(sorted({*sheet.lines.get("array", ()), one.line}))


def _read_environment(sheet: Sheet, value: str, line: int) -> None:
    name, _, slots = value.partition(" ")
    low, dash, high = slots.partition("-")
    least = sheet.quantity(whole_number, low, line, "-pe")
    most = sheet.quantity(whole_number, high, line, "-pe") if dash and high else least
    if least is None or most is None or least > most:
        return
    sheet.put("cpus", Span(min=least, max=most), line, why="one per slot")
    sheet.put("tasks", Span(min=least, max=most), line)
    if _ONE_NODE.search(name):
        sheet.put("nodes", Span(min=1, max=1), line, why=f"parallel environment {name} keeps to one host")
    else:
        why = f"how parallel environment {name} spreads slots is the site's definition"
        sheet.note("warnings", line, f"-pe {value}", why)


def _read_resource(sheet: Sheet, member: str, line: int) -> None:
    name, _, amount = member.partition("=")
    if name in {"h_rt", "s_rt"}:
        seconds = sheet.quantity(colon_s, amount, line, name)
        if seconds and not (name == "s_rt" and "walltime_s" in sheet.values):
            sheet.put("walltime_s", Span(min=seconds, max=seconds), line)
    elif name in _MEMORY:
        mib = sheet.quantity(sge_memory_mib, amount, line, name)
        if mib is not None:
            _put_memory(sheet, name, mib, line)
    elif name in _GPUS:
        count = sheet.quantity(whole_number, amount or "1", line, name)
        if count is not None:
            sheet.put("gpus", Span(min=count, max=count), line, why=f"{count} for the job")
            why = "per job or per slot is the site's definition of the complex; read per job"
            sheet.note("warnings", line, member, why)
    elif name in {"gpu_type", "gpu_model", "cuda_name"} and amount:
        sheet.put("gpu_types", (amount,), line)
    elif name in {"exclusive", "excl"}:
        sheet.flag("exclusive", line)
    elif name in {"hostname", "h", "arch", "h_cpu", "s_cpu", "h_fsize", "h_stack"}:
        sheet.extra.append(f"-l {member}")
    else:
        sheet.note("not_understood", line, f"-l {member}", f"resource {name} is of this site's own making")


def _put_memory(sheet: Sheet, name: str, mib: int, line: int) -> None:
    slots = sheet.values.get("cpus")
    span = slots if isinstance(slots, Span) else Span(min=1, max=1)
    total = Span(min=mib * span.min, max=mib * span.max)
    known = sheet.values.get("memory_mib")
    if isinstance(known, Span) and known.max >= total.max:
        return
    sheet.values.pop("memory_mib", None)
    sheet.values.pop("memory_asked", None)
    sheet.put("memory_asked", MemoryAsk(mib=mib, per="slot"), line)
    sheet.put("memory_mib", total, line, why=f"{name} is {mib} MiB per slot")
