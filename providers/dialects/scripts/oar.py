"""`#OAR` directives: a resource hierarchy whose levels multiply.

Source: oarsub(1) of OAR 2.5. `cpu` is a socket there, `core` what the other dialects call a CPU.
"""

import math
import re

from providers.dialects.scripts.layout import lay_out, remark_on_strays, with_plain_dashes
from providers.dialects.scripts.quantities import hours_first_s, whole_number
from providers.dialects.scripts.sheet import Sheet
from providers.dialects.scripts.text import ScriptText
from providers.dialects.scripts.types import ArrayAsk, Constraint, ScriptRequest, Span
from providers.dialects.scripts.words import Given, read_long_options, table, words_of

OARSUB = table(
    "resource/l property/p queue/q project name/n stdout/O stderr/E directory/d type/t array "
    "array-param-file reservation/r anterior/a notify checkpoint signal stagein "
    "import-job-key-from-file stagein-md5sum",
    "hold interactive/I resubmit use-job-key/k scanscript/S",
)
_WORDS = {
    "queue": "partition", "project": "account", "name": "job_name", "stdout": "output_path",
    "stderr": "error_path", "directory": "workdir", "anterior": "dependency", "reservation": "reservation",
}  # fmt: skip
_NODES = {"nodes", "node", "host", "network_address"}


def read_oar(text: ScriptText) -> ScriptRequest:
    """Return what a `#OAR` script asks for when submitted with `oarsub -S`."""
    sheet = Sheet("oar", text)
    layout = lay_out(text, r"#OAR(?=[\s-]|$)")
    for number, rest in layout.directives:
        words = words_of(sheet, number, with_plain_dashes(sheet, number, rest))
        for one in read_long_options(sheet, number, words, OARSUB):
            _place(sheet, one)
    remark_on_strays(sheet, layout, "#OAR")
    return sheet.request(layout.read_body(sheet))


def _place(sheet: Sheet, one: Given) -> None:
    value, line = one.value or "", one.line
    if one.name in _WORDS:
        sheet.put(_WORDS[one.name], value, line)
    elif one.name == "resource":
        _read_resources(sheet, value, line)
    elif one.name == "property":
        _read_property(sheet, value, line)
    elif one.name == "array":
        count = sheet.quantity(whole_number, value, line, "--array")
        sheet.put("array", ArrayAsk(text=value, count=count), line)
    elif one.name in {"notify", "hold", "interactive", "scanscript"}:
        sheet.note("ignored", line, one.text, "says nothing about what the job needs")
    else:
        sheet.extra.append(one.text)


def _read_resources(sheet: Sheet, value: str, line: int) -> None:
    totals: dict[str, int] = {}
    for group in value.split("+"):
        hierarchy, *rest = re.split(r",(?![^{}]*\})", group)
        for member in rest:
            key, _, amount = member.partition("=")
            if key.strip() == "walltime":
                _read_walltime(sheet, amount, line)
            else:
                sheet.note("not_understood", line, member, "only walltime may follow the hierarchy")
        if hierarchy.strip().startswith("walltime="):
            _read_walltime(sheet, hierarchy.partition("=")[2], line)
        else:
            _multiply(sheet, hierarchy, line, totals)
    for field in ("nodes", "gpus", "cpus"):
        if field in totals:
            total = totals[field]
            sheet.put(field, Span(min=total, max=total), line, why="the levels of the hierarchy multiply")
    if "gpus" in totals and totals.get("nodes"):
        sheet.put("gpus_per_node", math.ceil(totals["gpus"] / totals["nodes"]), line)


def _multiply(sheet: Sheet, hierarchy: str, line: int, totals: dict[str, int]) -> None:
    product = 1
    for level in re.split(r"/(?![^{}]*\})", hierarchy):
        condition = re.match(r"\{(.*)\}", level.strip())
        if condition:
            _read_property(sheet, condition[1], line)
        bare = re.sub(r"\{.*\}", "", level).strip()
        if not bare:
            continue
        name, _, amount = bare.partition("=")
        count = sheet.quantity(whole_number, amount, line, f"-l {name}")
        if count is None:
            return
        product *= count
        if name in _NODES:
            totals["nodes"] = totals.get("nodes", 0) + product
        elif name in {"gpu", "gpudevice", "gpu_device"}:
            totals["gpus"] = totals.get("gpus", 0) + product
        elif name in {"core", "thread"}:
            totals["cpus"] = totals.get("cpus", 0) + product
        elif name not in {"switch", "cluster", "rack"}:
            why = "a socket in OAR; how many CPUs it has is the site's" if name == "cpu" else "unknown level"
            sheet.note("not_understood", line, bare, why)


def _read_walltime(sheet: Sheet, amount: str, line: int) -> None:
    seconds = sheet.quantity(hours_first_s, amount, line, "walltime")
    if seconds:
        sheet.put("walltime_s", Span(min=seconds, max=seconds), line, why="hours[:minutes[:seconds]]")


def _read_property(sheet: Sheet, value: str, line: int) -> None:
    models = re.findall(
        r"gpu_?model\s*=\s*['\"]?([\w .-]+?)['\"]?(?=\s+(?:AND|OR)\b|\)|$)", value, re.IGNORECASE
    )
    if models:
        sheet.put("gpu_types", tuple(dict.fromkeys(models)), line)
    if not re.fullmatch(r"\(?\s*gpu_?model\s*=\s*['\"]?[\w .-]+['\"]?\s*\)?", value, re.IGNORECASE):
        sheet.put("constraint", Constraint(text=value), line)
