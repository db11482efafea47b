"""`#SBATCH` directives: which options stand, as sbatch itself reads them.

Source: sbatch(1) of Slurm 23.11, and observed runs of 22.05 to 25.11.
"""

from collections.abc import Callable, Mapping, Sequence

from providers.dialects.scripts.body import LAUNCHERS, program_words
from providers.dialects.scripts.layout import Layout, lay_out, remark_on_strays, with_plain_dashes
from providers.dialects.scripts.quantities import slurm_exact_s, slurm_limit_s, slurm_memory_mib
from providers.dialects.scripts.sheet import Sheet, variables_in
from providers.dialects.scripts.slurm_sizes import reckon_sizes
from providers.dialects.scripts.slurm_words import read_array, read_constraint
from providers.dialects.scripts.text import ScriptText
from providers.dialects.scripts.types import ScriptRequest, Span
from providers.dialects.scripts.words import Given, read_long_options, table, words_of

SBATCH = table(
    "account/A acctg-freq array/a batch bb bbf begin/b chdir/D cluster-constraint clusters/M comment "
    "constraint/C container container-id core-spec/S cores-per-socket cpu-freq cpus-per-gpu "
    "cpus-per-task/c deadline delay-boot dependency/d error/e exclude/x export export-file extra "
    "extra-node-info/B gid gpu-bind gpu-freq gpus/G gpus-per-node gpus-per-socket gpus-per-task gres "
    "gres-flags hint input/i job-name/J kill-on-invalid-dep licenses/L mail-type mail-user mcs-label mem "
    "mem-bind mem-per-cpu mem-per-gpu mincpus network nodefile/F nodelist/w nodes/N ntasks/n "
    "ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode oom-kill-step output/o "
    "partition/p power prefer priority profile qos/q reservation resv-ports segment signal "
    "sockets-per-node switches tasks-per-node thread-spec threads-per-core time/t time-min tmp tres-bind "
    "tres-per-task uid wait-all-nodes wckey wrap",
    "contiguous hold/H help/h ignore-pbs no-requeue overcommit/O oversubscribe/s quiet/Q reboot requeue "
    "share spread-job stepmgr test-only usage use-min-nodes verbose/v version/V wait/W",
    "exclusive get-user-env nice no-kill/k parsable propagate x11",
)
_ALIASES = {"tasks-per-node": "ntasks-per-node", "share": "oversubscribe"}
_WORDS = {
    "partition": "partition", "account": "account", "qos": "qos", "reservation": "reservation",
    "dependency": "dependency", "job-name": "job_name", "comment": "comment", "output": "output_path",
    "error": "error_path", "chdir": "workdir",
}  # fmt: skip
_WITHOUT_EFFECT = {
    "mail-type", "mail-user", "verbose", "quiet", "parsable", "test-only", "wait", "help", "usage", "version",
    "wrap", "uid", "gid",
}  # fmt: skip
_SIZED = {
    "nodes", "ntasks", "ntasks-per-node", "ntasks-per-gpu", "cpus-per-task", "cpus-per-gpu", "mincpus",
    "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "sockets-per-node", "gres", "mem",
    "mem-per-cpu", "mem-per-gpu",
}  # fmt: skip
_ENVIRONMENT = {
    "SBATCH_TIMELIMIT": "time", "SBATCH_PARTITION": "partition", "SBATCH_ACCOUNT": "account",
    "SBATCH_QOS": "qos", "SBATCH_JOB_NAME": "job-name", "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_EXCLUSIVE": "exclusive", "SBATCH_GPUS": "gpus", "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task", "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_MEM_PER_CPU": "mem-per-cpu", "SBATCH_MEM_PER_GPU": "mem-per-gpu",
    "SBATCH_CPUS_PER_GPU": "cpus-per-gpu", "SBATCH_GRES": "gres", "SBATCH_RESERVATION": "reservation",
    "SBATCH_ARRAY_INX": "array",
}  # fmt: skip


def read_slurm(
    text: ScriptText, *, environment: Mapping[str, str] | None = None, argv: Sequence[str] = ()
) -> ScriptRequest:
    """Return what sbatch would read from a script: command line over environment over directives.

    Args:
        text: The script.
        environment: `SBATCH_*` variables of the submission; None = a clean environment.
        argv: Options of the sbatch command, as words.
    """
    sheet = Sheet("slurm", text)
    layout = lay_out(text, "#SBATCH")
    given = _directives(sheet, layout)
    for name, option in _ENVIRONMENT.items():
        if environment and name in environment:
            given.append(Given(option, environment[name] or None, 0))
    given.extend(read_long_options(sheet, 0, argv, SBATCH))
    remark_on_strays(sheet, layout, "#SBATCH")
    _fill(sheet, given)
    body = layout.read_body(sheet)
    _remark_on_idle_tasks(sheet, layout)
    return sheet.request(body)


def _directives(sheet: Sheet, layout: Layout) -> list[Given]:
    given: list[Given] = []
    for number, rest in layout.directives:
        if rest.split()[:1] in (["hetjob"], ["packjob"]):
            why = "a heterogeneous job: only its first component is read"
            sheet.note("not_understood", number, f"#SBATCH{rest}", why)
            break
        words = words_of(sheet, number, with_plain_dashes(sheet, number, rest))
        given.extend(read_long_options(sheet, number, words, SBATCH))
    return given


def _fill(sheet: Sheet, given: Sequence[Given]) -> None:
    last: dict[str, Given] = {}
    for one in given:
        name = _ALIASES.get(one.name, one.name)
        settled = Given(name, one.value, one.line)
        if name in last and last[name].value != settled.value:
            sheet.note(
                "warnings", one.line, one.text, f"replaces line {last[name].line}; the last one counts"
            )
        last.pop(name, None)
        last[name] = settled
    for name, one in last.items():
        if one.value:
            sheet.variables.extend(v for v in variables_in(one.value) if not v.startswith("SLURM_"))
        _place(sheet, name, one)
    _fill_times(sheet, last)
    reckon_sizes(sheet, {name: one for name, one in last.items() if name in _SIZED})


def _place(sheet: Sheet, name: str, one: Given) -> None:
    value, line = one.value or "", one.line
    if name in _WORDS:
        sheet.put(_WORDS[name], value, line)
    elif name == "exclusive":
        sheet.put("exclusive", value not in {"user", "mcs", "topo"}, line)
        if value:
            sheet.extra.append(one.text)
    elif name == "constraint":
        sheet.put("constraint", read_constraint(value), line)
    elif name == "array":
        sheet.put("array", read_array(value), line)
    elif name == "tmp":
        mib = sheet.quantity(slurm_memory_mib, value, line, "--tmp")
        if mib is not None:
            sheet.put("local_scratch_mib", mib, line, why="per node")
    elif name in _WITHOUT_EFFECT:
        sheet.note("ignored", line, one.text, "says nothing about what the job needs")
    elif name not in _SIZED | {"time", "time-min"}:
        sheet.extra.append(one.text)


def _fill_times(sheet: Sheet, last: Mapping[str, Given]) -> None:
    limit = _time(sheet, last.get("time"), slurm_limit_s)
    least = _time(sheet, last.get("time-min"), slurm_limit_s)
    if limit is not None:
        lines = [last[name].line for name in ("time", "time-min") if name in last]
        low = least if least is not None and least <= limit else limit
        rounded = slurm_exact_s(last["time"].value or "") != limit
        why = "Slurm limits count in whole minutes" if rounded else ""
        sheet.put("walltime_s", Span(min=low, max=limit), *lines, why=why)


def _time(sheet: Sheet, one: Given | None, read: Callable[[str], int | None]) -> int | None:
    if one is None:
        return None
    before = len(sheet.notes["refusals"])
    seconds = sheet.quantity(read, one.value, one.line, f"--{one.name}")
    if seconds is None and len(sheet.notes["refusals"]) == before and one.name == "time":
        sheet.flag("walltime_is_unlimited", one.line)
        sheet.note("warnings", one.line, one.text, "no limit asked for: the partition's or QoS's limit holds")
    return seconds


def _remark_on_idle_tasks(sheet: Sheet, layout: Layout) -> None:
    tasks = sheet.values.get("tasks")
    programs = program_words(layout.body)
    interpreted = any(word.startswith(("python", "Rscript", "julia", "matlab")) for word in programs)
    if isinstance(tasks, Span) and tasks.min > 1 and interpreted and not LAUNCHERS & set(programs):
        why = f"{tasks.min} tasks but a single process: probably 1 task with {tasks.min} CPUs"
        sheet.note("warnings", 0, "", why)
