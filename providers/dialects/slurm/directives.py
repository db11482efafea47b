"""The `#SBATCH` lines of a job: every figure in Slurm's units, every field proof against injection.

Totals become per-node figures, rounded up. Fields that a directive cannot hold safely (quotes, backslashes,
control characters) are refused: Slurm's own tokenizer differs over versions in what it does with them.

Source: sbatch(1) of 20.11 to 25.11; filename patterns as in its section "filename pattern".
"""

import re
from typing import Final

from providers.dialects.body import absolute, checked_key
from providers.errors import InvalidInput
from providers.types import JobRequest

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+@:-]*", re.ASCII)
_WORDS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+@:,-]*", re.ASCII)
_CONSTRAINT = re.compile(r"[A-Za-z0-9_.+:=,&|()\[\]*!-]+", re.ASCII)
_SIGNAL = re.compile(r"(?:[RB]{1,2}:)?(?:[A-Za-z][A-Za-z0-9+]*|\d{1,2})(?:@\d{1,5})?", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_OPTION = re.compile(r"--?(?P<name>[A-Za-z][A-Za-z0-9-]*)(?:[ =].*)?", re.ASCII)
_FORBIDDEN_LONG: Final = ("clusters", "gid", "help", "test-only", "uid", "usage", "version", "wait", "wrap")
_FORBIDDEN_SHORT: Final = "hMVW"
_DAY_MINUTES: Final = 24 * 60


def directives(job: JobRequest) -> list[str]:
    """Return the options of the job, without the `#SBATCH` prefix; those of the user's script come first.

    Slurm lets the last one win, so ours cannot be overridden.

    Raises:
        InvalidInput: a field cannot be spelled in a directive; the facts name it.
    """
    key = checked_key(job.submit_key)
    lines = [_extra(each) for each in job.extra_directives]
    lines += [f"--job-name={key}", f"--comment=facet:{key}"]
    for option, value in (
        ("account", job.account),
        ("partition", job.partition),
        ("qos", job.qos),
        ("reservation", job.reservation),
    ):
        if value is not None:
            lines.append(f"--{option}={_matching(_WORDS, value, field=option)}")
    lines += [*_shape(job), f"--time={walltime(job.walltime_s)}"]
    if job.constraint is not None:
        lines.append(f'--constraint="{_matching(_CONSTRAINT, job.constraint, field="constraint")}"')
    if job.exclusive:
        lines.append("--exclusive")
    if job.signal is not None:
        lines.append(f"--signal={_matching(_SIGNAL, job.signal, field='signal')}")
    lines += ["--requeue", "--open-mode=append"] if job.requeue else ["--no-requeue"]
    lines.append(f"--chdir={_path(job.workdir, field='workdir')}")
    lines.append(f"--output={_pattern(job.stdout_path, field='stdout_path')}")
    lines.append(f"--error={_pattern(job.stderr_path, field='stderr_path')}")
    return lines


def walltime(seconds: int) -> str:
    """Return D-HH:MM:SS in whole minutes, rounded up: Slurm's limits have the granularity of a minute.

    Raises:
        InvalidInput: not positive. (0 would mean no limit to Slurm.)
    """
    minutes = _positive(-(-seconds // 60), field="walltime_s")
    days, rest = divmod(minutes, _DAY_MINUTES)
    return f"{days}-{rest // 60:02d}:{rest % 60:02d}:00"


def _shape(job: JobRequest) -> list[str]:
    nodes = _positive(job.nodes, field="nodes")
    tasks = _positive(nodes if job.tasks is None else job.tasks, field="tasks")
    if tasks < nodes:
        raise InvalidInput("a job needs at least one task per node", nodes=nodes, tasks=tasks)
    lines = [f"--nodes={nodes}", f"--ntasks={tasks}"]
    if tasks % nodes == 0:
        lines.append(f"--ntasks-per-node={tasks // nodes}")
    lines.append(f"--cpus-per-task={-(-_positive(job.cpus, field='cpus') // tasks)}")
    if job.memory_mib and job.memory_spelling == "mem-per-cpu":
        lines.append(f"--mem-per-cpu={-(-job.memory_mib // job.cpus)}M")
    elif job.memory_mib is not None and job.memory_spelling == "mem":
        if job.memory_mib < 0:
            raise InvalidInput("memory cannot be negative", memory_mib=job.memory_mib)
        lines.append(f"--mem={-(-job.memory_mib // nodes)}M" if job.memory_mib else "--mem=0")
    return lines + _gpus(job, nodes=nodes)


def _gpus(job: JobRequest, *, nodes: int) -> list[str]:
    if job.gpus < 0:
        raise InvalidInput("GPUs cannot be negative", gpus=job.gpus)
    if not job.gpus or job.gpu_spelling == "none":
        return []
    kind = f"{_matching(_WORD, job.gpu_type, field='gpu_type')}:" if job.gpu_type else ""
    if ":" in kind[:-1]:
        raise InvalidInput("a GPU type cannot hold a colon", gpu_type=job.gpu_type)
    per_node = -(-job.gpus // nodes)
    if job.gpu_spelling == "gres":
        return [f"--gres=gpu:{kind}{per_node}"]
    return [f"--gpus-per-node={kind}{per_node}"]


def _extra(option: str) -> str:
    text = option.strip()
    match = None if _CONTROL.search(option.strip("\r\n\t ")) else _OPTION.fullmatch(text)
    if match is None:
        raise InvalidInput(f"not an option of sbatch: {option[:200]!r}", field="extra_directives")
    name = match["name"]
    refused = (
        any(each.startswith(name) for each in _FORBIDDEN_LONG)
        if text.startswith("--")
        else name[0] in _FORBIDDEN_SHORT
    )
    if refused:
        raise InvalidInput(
            f"this option cannot be kept in a submitted script: {text[:200]!r}",
            field="extra_directives",
            remediation="Remove it from the script; the submission itself decides it.",
        )
    return text


def _path(path: str, *, field: str) -> str:
    return f'"{absolute(path, field=field)}"'


def _pattern(path: str, *, field: str) -> str:
    """Return a path in which Slurm replaces nothing: %j and its like are escaped as %%j."""
    return _path(path, field=field).replace("%", "%%")


def _matching(pattern: re.Pattern[str], value: str, *, field: str) -> str:
    if pattern.fullmatch(value) is None:
        raise InvalidInput(
            f"{field} cannot be spelled in a Slurm directive: {value[:200]!r}",
            problems=((f"/{field}", "characters", "holds characters that no Slurm name has"),),
        )
    return value


def _positive(number: int, *, field: str) -> int:
    if number < 1:
        raise InvalidInput(f"{field} must be at least 1", field=field, given=number)
    return number
