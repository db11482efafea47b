"""`#COBALT` directives: they must follow the `#!` line at once.

Source: qsub(1) of Cobalt 1.0 as documented by the Argonne facility.
"""

from providers.dialects.scripts.layout import lay_out, remark_on_strays, with_plain_dashes
from providers.dialects.scripts.quantities import minutes_or_hms_s, whole_number
from providers.dialects.scripts.sheet import Sheet
from providers.dialects.scripts.text import ScriptText
from providers.dialects.scripts.types import ScriptRequest, Span
from providers.dialects.scripts.words import Given, read_long_options, table, words_of

COBALT = table(
    "nodecount/n proccount time/t queue/q project/A attrs jobname outputprefix/O output/o error/e debuglog "
    "cwd env mode dependencies notify/M kernel inputfile/i geometry umask user_list run_users",
    "held/h preemptable disable_preboot interactive/I debug version verbose/v",
)
_WORDS = {
    "queue": "partition", "project": "account", "jobname": "job_name", "output": "output_path",
    "error": "error_path", "cwd": "workdir", "dependencies": "dependency",
}  # fmt: skip


def read_cobalt(text: ScriptText) -> ScriptRequest:
    """Return what a `#COBALT` script asks for. Cobalt gives whole nodes."""
    sheet = Sheet("cobalt", text)
    layout = lay_out(text, r"#COBALT(?=[\s-]|$)")
    for number, rest in layout.directives:
        words = words_of(sheet, number, with_plain_dashes(sheet, number, rest))
        for one in read_long_options(sheet, number, words, COBALT):
            _place(sheet, one)
    remark_on_strays(sheet, layout, "#COBALT")
    return sheet.request(layout.read_body(sheet))


def _place(sheet: Sheet, one: Given) -> None:
    value, line = one.value or "", one.line
    if one.name in _WORDS:
        sheet.put(_WORDS[one.name], value, line)
    elif one.name == "nodecount":
        count = sheet.quantity(whole_number, value, line, "-n")
        if count:
            sheet.put("nodes", Span(min=count, max=count), line)
            sheet.flag("exclusive", line, why="Cobalt gives whole nodes")
    elif one.name == "proccount":
        count = sheet.quantity(whole_number, value, line, "--proccount")
        if count:
            sheet.put("tasks", Span(min=count, max=count), line)
    elif one.name == "time":
        seconds = sheet.quantity(minutes_or_hms_s, value, line, "-t")
        if seconds:
            why = "" if ":" in value else "a bare number is minutes"
            sheet.put("walltime_s", Span(min=seconds, max=seconds), line, why=why)
    elif one.name == "attrs":
        _read_attributes(sheet, value, line)
    elif one.name in {"notify", "verbose", "debug", "outputprefix"}:
        sheet.note("ignored", line, one.text, "says nothing about what the job needs")
    else:
        sheet.extra.append(one.text)


def _read_attributes(sheet: Sheet, value: str, line: int) -> None:
    """Read `name=value` pairs joined by colons: filesystems are needs, the rest is the site's."""
    for member in filter(None, value.split(":")):
        name, _, amount = member.partition("=")
        if name == "filesystems" and amount:
            sheet.put("filesystems", tuple(amount.split(",")), line)
        else:
            sheet.extra.append(f"--attrs {member}")
