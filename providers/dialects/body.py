"""What a batch script does once it runs: environment, working directory, and the work itself.

Every dialect puts its own directives above it. Shell injection has no way in: names are matched against
patterns, values are quoted onto one line, and only what is meant as shell (set-up lines, a shell command, a
user's script) is shell. The work replaces the batch shell (`exec`) where it can, so signals asked for with
`B:` reach it, and its exit code is the job's.

A bad working directory would end COMPLETED under Slurm (it falls back to /tmp): the script checks for itself.
"""

import re
from shlex import quote as shell_quote
from typing import Final

from providers.errors import InvalidInput
from providers.types import JobRequest

WORKDIR_EXIT: Final = 121
"""The working directory could not be entered; the work never began."""
ENVIRONMENT_EXIT: Final = 122
"""A module, a conda environment or the script's copy could not be set up; the work never began."""

KEY_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", re.ASCII)
"""A submit key: it is a job name in comma-separated lists, part of a comment and of file names."""

_EXITS: Final[dict[int, str]] = {
    WORKDIR_EXIT: "The working directory could not be entered on the compute node; the work never began.",
    ENVIRONMENT_EXIT: "The environment (module, conda or script) could not be set up; the work never began.",
    126: "The program is there but cannot be executed (exit code 126).",
    127: "The program was not found on the compute node (exit code 127).",
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NO_PATH = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_SHEBANG = re.compile(r"#![ \t]*(?P<program>\S+)(?:[ \t]+(?P<argument>.*\S))?[ \t]*")
_DIRECTIVE = re.compile(r"#(?:SBATCH|PBS|BSUB|COBALT|OAR|MSUB|BB|DW|\$|@)|#\s?(?i:flux):")
_USES_MODULES = re.compile(r"(?m)^[^#\n]*\b(?:module|ml)\s")
_DELIMITER: Final = "FACET_SCRIPT_END"

_WRITE_SCRIPT: Final = 'facet_part=$(mktemp -- "$facet_script.XXXXXX") && cat >"$facet_part"'
_SCRIPT_FAILED: Final = f"facet_fail {ENVIRONMENT_EXIT} 'the script could not be written beside its output'"
_FAIL: Final = """\
facet_fail() {
    printf 'facet: %s\\n' "$2" >&2
    exit "$1"
}"""
_MODULE_COMMAND: Final = """\
if ! type module >/dev/null 2>&1; then
    for facet_file in "${LMOD_PKG:-/}/init/bash" "${MODULESHOME:-/}/init/bash" \\
        /etc/profile.d/z00_lmod.sh /etc/profile.d/lmod.sh /etc/profile.d/modules.sh; do
        if [ -r "$facet_file" ]; then
            . "$facet_file"
            break
        fi
    done
    unset facet_file
fi
export -f module ml 2>/dev/null || true"""


def body_lines(job: JobRequest) -> list[str]:
    """Return the script after its directives: environment, working directory, then the work.

    Raises:
        InvalidInput: a field cannot be rendered safely, or there is not exactly one kind of work.
    """
    return [_FAIL, *_environment(job), *_enter_workdir(job), *_resume(job), *_work(job)]


def checked_key(key: str) -> str:
    """Return the key.

    Raises:
        InvalidInput: it could not be a job name, or not be looked up by one.
    """
    if KEY_PATTERN.fullmatch(key) is None:
        raise InvalidInput(
            f"submit_key cannot name a job: {key[:200]!r}",
            problems=(("/submit_key", "characters", "holds characters that no job name has"),),
        )
    return key


def absolute(path: str, *, field: str) -> str:
    """Return the path.

    Raises:
        InvalidInput: it is relative, or a batch script cannot hold it.
    """
    if not path.startswith("/") or _NO_PATH.search(path) or '"' in path or "\\" in path:
        raise InvalidInput(
            f"{field} must be an absolute path without quotes, backslashes or control characters",
            problems=((f"/{field}", "path", f"cannot be used in a batch script: {path[:200]!r}"),),
        )
    return path


def quote(text: str) -> str:
    """Return the text as one shell word on one physical line, whatever it holds.

    Raises:
        InvalidInput: it holds a NUL or is not Unicode text, which no program can be given.
    """
    if "\0" in text:
        raise InvalidInput("a NUL character cannot be passed to a program")
    _check_encodable(text)
    if not _CONTROL.search(text):
        return shell_quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + _CONTROL.sub(lambda match: f"\\{ord(match[0]):03o}", escaped) + "'"


def explain_exit(code: int | None) -> str:
    """Return a sentence on the exit code of a program that failed; None: it is not known."""
    if code is None:
        return "The program failed; its exit code is not known yet."
    return _EXITS.get(code, f"The program ended with exit code {code}.")


# --- before the work ------------------------------------------------------------------------------


def _environment(job: JobRequest) -> list[str]:
    lines: list[str] = []
    shell = "\n".join([*job.setup, job.shell_command or "", job.script or ""])
    if job.modules or _USES_MODULES.search(shell):
        lines.append(_MODULE_COMMAND)
    for module in job.modules:
        _check_word(module, field="modules")
        lines.append(
            f"module load {quote(module)} || "
            f"facet_fail {ENVIRONMENT_EXIT} {quote(f'module {module} could not be loaded')}"
        )
    if job.conda is not None:
        _check_word(job.conda, field="conda")
        lines.append(
            f'{{ eval "$("${{CONDA_EXE:-conda}}" shell.bash hook)" && conda activate {quote(job.conda)}; }} '
            "|| "
            f"facet_fail {ENVIRONMENT_EXIT} {quote(f'conda environment {job.conda} could not be activated')}"
        )
    for name, value in job.variables.items():
        if _VARIABLE.fullmatch(name) is None:
            raise InvalidInput(f"not a name of a variable: {name[:200]!r}", field="variables")
        lines.append(f"export {name}={quote(value)}")
    lines += [line for at, path in job.links for line in _link(at, path)]
    lines += [_unix_lines(line) for line in job.setup]
    return lines


def _link(at: str, path: str) -> list[str]:
    """Return what puts an input where the work expects it; an input that is gone stops the job."""
    source, target = absolute(at, field="inputs"), absolute(path, field="inputs")
    lines = [
        f"[ -e {quote(source)} ] || facet_fail {ENVIRONMENT_EXIT} {quote(f'the input {at} is not there')}"
    ]
    if source != target:
        why = quote(f"the input {path} could not be put in its place")
        lines.append(
            f"{{ mkdir -p -- {quote(target.rpartition('/')[0] or '/')} && "
            f"ln -sfn -- {quote(source)} {quote(target)}; }} || facet_fail {ENVIRONMENT_EXIT} {why}"
        )
    return lines


def _enter_workdir(job: JobRequest) -> list[str]:
    path = absolute(job.workdir, field="workdir")
    why = quote(f"cannot enter the working directory {path}")
    return [f"cd -- {quote(path)} || facet_fail {WORKDIR_EXIT} {why}"]


# --- the work -------------------------------------------------------------------------------------


def _work(job: JobRequest) -> list[str]:
    given = [each for each in (job.argv, job.shell_command, job.script) if each is not None]
    if len(given) != 1:
        raise InvalidInput("a job has exactly one of argv, shell_command and script", given=len(given))
    if job.argv is not None:
        if not job.argv or not job.argv[0]:
            raise InvalidInput("a command needs a program", field="argv")
        command = " ".join(quote(each) for each in job.argv)
        return [_become(job, command)]
    if job.shell_command is not None:
        text = _unix_lines(job.shell_command)
        if job.container_image:
            return [_become(job, f"/bin/sh -c {quote(text)}")]
        return [f"eval {quote(text)}"]
    return _script_work(job, job.script or "")


def _resume(job: JobRequest) -> list[str]:
    """Return what runs instead of the work where it goes on from a checkpoint."""
    if job.resume_argv is None and job.resume_shell is None:
        return []
    instead = job.model_copy(
        update={"argv": job.resume_argv, "shell_command": job.resume_shell, "script": None}
    )
    return ['if [ -n "${FACET_RESUME:-}" ]; then', *_work(instead), "exit", "fi"]


def _script_work(job: JobRequest, text: str) -> list[str]:
    interpreter, body = split_script(text)
    directory = absolute(job.stdout_path, field="stdout_path").rpartition("/")[0] or "/"
    path = f"{directory.rstrip('/')}/{checked_key(job.submit_key)}.script"
    delimiter = _DELIMITER
    while delimiter in body.split("\n"):
        delimiter += "_"
    command = " ".join(quote(each) for each in (*interpreter, path))
    return [
        f"facet_script={quote(path)}",
        f"{_WRITE_SCRIPT} <<'{delimiter}' || {_SCRIPT_FAILED}",
        body.removesuffix("\n"),
        delimiter,
        f'mv -f -- "$facet_part" "$facet_script" || {_SCRIPT_FAILED}',
        _become(job, command),
    ]


def _become(job: JobRequest, command: str) -> str:
    """Return the last line: the batch shell becomes the command, so that it receives the shell's signals.

    A trap set by the user's own set-up lines would be lost that way; then the shell stays.
    """
    stays = any("trap" in line for line in job.setup)
    whole = _contained(job, command) if job.container_image else command
    return whole if stays else f"exec -- {whole}"


def split_script(text: str) -> tuple[tuple[str, ...], str]:
    """Return the interpreter (program and at most one argument, as the kernel reads `#!`) and the script.

    A byte-order mark and DOS line ends are taken off; the directives of any scheduler are dropped where a
    scheduler reads them, in the comments before the first command. Everything else stays as it is.

    Raises:
        InvalidInput: the script is empty, or holds a NUL.
    """
    body = _unix_lines(text.removeprefix("\ufeff"))
    if not body.strip():
        raise InvalidInput("the script is empty", field="script")
    lines = body.split("\n")
    shebang = _SHEBANG.fullmatch(lines[0])
    interpreter: tuple[str, ...] = ("/bin/bash",)
    if shebang:
        interpreter = (shebang["program"], *([shebang["argument"]] if shebang["argument"] else []))
    head = next(
        (n for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")), len(lines)
    )
    kept = [line for line in lines[:head] if _DIRECTIVE.match(line) is None]
    return interpreter, "\n".join([*kept, *lines[head:]])


def _contained(job: JobRequest, command: str) -> str:
    """Return the command run inside the job's container, in the same working directory."""
    image = job.container_image or ""
    runtime = job.container_runtime or "apptainer"
    _check_word(image, field="container_image")
    logs = absolute(job.stdout_path, field="stdout_path").rpartition("/")[0] or "/"
    is_inside = f"{logs}/".startswith(f"{job.workdir.rstrip('/')}/")
    binds = ['"$PWD"', *([quote(logs)] if job.script is not None and not is_inside else [])]
    match runtime:
        case "apptainer" | "singularity":
            flags = [*(["--nv"] if job.gpus else []), *(f"--bind {each}" for each in binds), '--pwd "$PWD"']
            return " ".join([runtime, "exec", *flags, quote(image), command])
        case "podman" | "docker":
            gpus = "--gpus all" if runtime == "docker" else "--device nvidia.com/gpu=all"
            user = '--user "$(id -u):$(id -g)"' if runtime == "docker" else "--userns=keep-id"
            flags = [
                "--rm",
                user,
                *([gpus] if job.gpus else []),
                *(f"--volume {each}:{each}" for each in binds),
                '--workdir "$PWD"',
                *(f"--env {name}" for name in job.variables),
                "--entrypoint ''",
            ]
            return " ".join([runtime, "run", *flags, quote(image), command])
        case _:
            raise InvalidInput(f"no such container runtime: {runtime[:100]!r}", field="container_runtime")


# --- checks ---------------------------------------------------------------------------------------


def _unix_lines(text: str) -> str:
    if "\0" in text:
        raise InvalidInput("a NUL character cannot stand in a script")
    _check_encodable(text)
    return text.replace("\r\n", "\n").removesuffix("\r")


def _check_encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as cause:
        raise InvalidInput("the text is not valid Unicode") from cause


def _check_word(text: str, *, field: str) -> None:
    """Refuse what would be read as an option, or as nothing."""
    if not text.strip() or text.startswith("-") or _CONTROL.search(text):
        raise InvalidInput(f"{field} cannot be used: {text[:200]!r}", field=field)
