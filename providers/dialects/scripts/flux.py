"""`# flux:` directives, read as flux batch does.

Source: flux-batch(1) and RFC 36: the prefix may follow any characters that are no word characters, and a
directive after the first command is an error. Figures count per slot.
"""

from providers.dialects.scripts.layout import lay_out, with_plain_dashes
from providers.dialects.scripts.quantities import flux_limit_s, whole_number
from providers.dialects.scripts.sheet import Sheet
from providers.dialects.scripts.text import ScriptText
from providers.dialects.scripts.types import Constraint, ScriptRequest, Span
from providers.dialects.scripts.words import Given, read_long_options, table, words_of

FLUX_BATCH = table(
    "nodes/N nslots/n cores-per-slot/c gpus-per-slot/g time-limit/t queue/q bank/B job-name cwd output error "
    "input requires dependency begin-time urgency setopt/o setattr/S env env-remove env-file rlimit flags "
    "broker-opts conf signal log log-stderr dump add-file taskmap wrap",
    "exclusive/x label-io/l unbuffered/u verbose/v quiet dry-run",
)
_WORDS = {
    "queue": "partition", "bank": "account", "job-name": "job_name", "cwd": "workdir",
    "output": "output_path", "error": "error_path", "dependency": "dependency",
}  # fmt: skip
_COUNTS = ("nodes", "nslots", "cores-per-slot", "gpus-per-slot")


def read_flux(text: ScriptText) -> ScriptRequest:
    """Return what a `# flux:` script asks for."""
    sheet = Sheet("flux", text)
    layout = lay_out(text, r"#[^\w]*(?:flux|FLUX):")
    counts: dict[str, tuple[int, int]] = {}
    for number, rest in layout.directives:
        words = words_of(sheet, number, with_plain_dashes(sheet, number, rest))
        for one in read_long_options(sheet, number, words, FLUX_BATCH):
            _place(sheet, one, counts)
    for number, line in layout.late:
        sheet.note("refusals", number, line, "directive after the first non-prefixed line")
    _reckon(sheet, counts)
    return sheet.request(layout.read_body(sheet))


def _place(sheet: Sheet, one: Given, counts: dict[str, tuple[int, int]]) -> None:
    value, line = one.value or "", one.line
    if one.name in _WORDS:
        sheet.put(_WORDS[one.name], value, line)
    elif one.name in _COUNTS:
        count = sheet.quantity(whole_number, value, line, f"--{one.name}")
        if count is not None:
            counts[one.name] = (count, line)
    elif one.name == "time-limit":
        _place_limit(sheet, value, line)
    elif one.name == "exclusive":
        sheet.flag("exclusive", line)
    elif one.name == "requires":
        sheet.put("constraint", Constraint(text=value), line)
    elif one.name in {"label-io", "unbuffered", "verbose", "quiet", "dry-run", "log", "log-stderr"}:
        sheet.note("ignored", line, one.text, "says nothing about what the job needs")
    else:
        sheet.extra.append(one.text)


def _place_limit(sheet: Sheet, value: str, line: int) -> None:
    before = len(sheet.notes["refusals"])
    seconds = sheet.quantity(flux_limit_s, value, line, "--time-limit")
    if seconds is not None:
        sheet.put("walltime_s", Span(min=seconds, max=seconds), line, why="a bare number is minutes")
    elif len(sheet.notes["refusals"]) == before:
        sheet.flag("walltime_is_unlimited", line)


def _reckon(sheet: Sheet, counts: dict[str, tuple[int, int]]) -> None:
    nodes, slots = counts.get("nodes"), counts.get("nslots")
    if nodes:
        sheet.put("nodes", Span(min=nodes[0], max=nodes[0]), nodes[1])
    number, line = slots or nodes or (0, 0)
    if not number:
        return
    sheet.put("tasks", Span(min=number, max=number), line, why="" if slots else "one slot per node")
    if slots is None and "cores-per-slot" not in counts:
        sheet.flag("exclusive", line, why="nodes without slots: flux gives whole nodes")
    else:
        each = counts.get("cores-per-slot", (1, 0))
        why = f"{each[0]} per slot"
        sheet.put("cpus", Span(min=number * each[0], max=number * each[0]), line, each[1], why=why)
    if gpus := counts.get("gpus-per-slot"):
        why = f"{gpus[0]} per slot"
        sheet.put("gpus", Span(min=number * gpus[0], max=number * gpus[0]), line, gpus[1], why=why)
