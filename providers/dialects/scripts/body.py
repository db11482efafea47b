"""What the commands of a script say: modules, environments, containers, nested submissions.

Only explicit words count. A name in a variable is remarked, not resolved; text inside a
here-document belongs to another script.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from providers.dialects.scripts.types import Body, Note
from providers.dialects.scripts.words import split_words

_HEREDOC = re.compile(r"<<(-?)\s*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\2")
_SUBMIT = {"sbatch", "qsub", "bsub", "oarsub"}
_CONTAINERS = {"apptainer", "singularity", "docker", "podman", "podman-hpc", "shifter", "enroot", "ch-run"}
_RUNTIMES = {"ch-run": "charliecloud"}
_WITH_VALUE = {
    "-B", "--bind", "--env", "--env-file", "--pwd", "-H", "--home", "--overlay", "-W", "--workdir", "-S",
    "--scratch", "-v", "--volume", "-e", "-w", "--mount", "-u", "--user", "--name", "--network",
    "--entrypoint",
}  # fmt: skip
LAUNCHERS = {
    "srun",
    "mpirun",
    "mpiexec",
    "mpiexec.hydra",
    "aprun",
    "jsrun",
    "ibrun",
    "orterun",
    "flux",
    "torchrun",
}


@dataclass(slots=True)
class _Findings:
    modules: dict[str, int] = field(default_factory=dict)
    conda: tuple[str, int] | None = None
    runtime: tuple[str, int] | None = None
    image: tuple[str, int] | None = None
    submits: int = 0
    notes: list[Note] = field(default_factory=list)


def read_body(lines: Sequence[tuple[int, str]]) -> Body:
    """Return what the given numbered lines say. Comments are skipped."""
    found = _Findings()
    generated: list[str] = []
    for number, line in outside_heredocs(lines, generated):
        if line.lstrip().startswith("#"):
            continue
        for command in _commands(line):
            _read_command(found, number, command)
    where = {"software": tuple(sorted(set(found.modules.values())))} if found.modules else {}
    for name, pair in (
        ("conda_env", found.conda),
        ("container_runtime", found.runtime),
        ("image", found.image),
    ):
        if pair:
            where[name] = (pair[1],)
    return Body(
        modules=tuple(found.modules),
        conda_env=found.conda[0] if found.conda else None,
        container_runtime=found.runtime[0] if found.runtime else None,
        container_image=found.image[0] if found.image else None,
        is_launcher=found.submits > 0,
        generated=tuple(generated),
        lines=where,
        notes=tuple(found.notes),
    )


def program_words(lines: Sequence[tuple[int, str]]) -> list[str]:
    """Return the first word of every command, in order, without its path."""
    outside = [pair for pair in outside_heredocs(lines, []) if not pair[1].lstrip().startswith("#")]
    return [command[0].rpartition("/")[2] for _, line in outside for command in _commands(line)]


def outside_heredocs(lines: Sequence[tuple[int, str]], generated: list[str]) -> Iterator[tuple[int, str]]:
    """Yield joined logical lines outside here-documents, comments too; scripts in these go to `generated`."""
    end, strip_tabs = "", False
    kept: list[str] = []
    held, held_at = "", 0
    for number, line in lines:
        if end:
            bare = line.lstrip("\t") if strip_tabs else line
            if bare.strip() == end:
                if kept and kept[0].startswith("#!"):
                    generated.append("\n".join(kept) + "\n")
                end, kept = "", []
            else:
                kept.append(bare)
            continue
        if line.rstrip().endswith("\\") and not line.lstrip().startswith("#"):
            held, held_at = held + line.rstrip()[:-1] + " ", held_at or number
            continue
        whole, at = held + line, held_at or number
        held, held_at = "", 0
        if not whole.lstrip().startswith("#"):
            opened = _HEREDOC.search(whole.replace("<<<", ""))
            if opened:
                strip_tabs, end = bool(opened[1]), opened[3]
        yield at, whole
    if held:
        yield held_at, held


def _commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of a line, without assignments before it."""
    for part in re.split(r"&&|\|\||;|(?<!&)\|(?!\|)", line):
        words = split_words(part)[0]
        while words and re.match(r"^[A-Za-z_]\w*=", words[0]):
            words = words[1:]
        while words and words[0] in {"time", "exec", "nohup", "then", "do", "else", "if", "!", "{", "("}:
            words = words[1:]
        if words:
            yield words


def _read_command(found: _Findings, number: int, words: list[str]) -> None:
    program = words[0].rpartition("/")[2]
    if program in _SUBMIT or words[:2] in (["flux", "batch"], ["flux", "submit"]):
        found.submits += 1
    elif program in {"module", "ml"}:
        _read_module(found, number, words)
    elif words[1:2] == ["activate"] and program in {"conda", "source", "mamba", "micromamba"} and words[2:]:
        _read_conda(found, number, words[2])
    else:
        _read_container(found, number, words)


def _read_module(found: _Findings, number: int, words: list[str]) -> None:
    names = words[1:]
    if names and names[0] in {"load", "add", "try-load"}:
        names = names[1:]
    elif words[0] == "module" or (
        names and names[0] in {"purge", "list", "avail", "use", "unload", "swap", "show"}
    ):
        return
    for name in names:
        if name.startswith("-"):
            continue
        if "$" in name or "`" in name:
            found.notes.append(Note(line=number, text=" ".join(words), why=f"module {name} holds a variable"))
        else:
            found.modules.setdefault(name, number)


def _read_conda(found: _Findings, number: int, name: str) -> None:
    if "$" in name:
        found.notes.append(Note(line=number, text=name, why="the environment's name holds a variable"))
    else:
        found.conda = (name, number)


def _read_container(found: _Findings, number: int, words: list[str]) -> None:
    for index, word in enumerate(words):
        program = word.rpartition("/")[2]
        if word.startswith("--container-image"):
            value = word.partition("=")[2] or "".join(words[index + 1 : index + 2])
            found.runtime = ("pyxis", number)
            _take_image(found, number, value)
            return
        if program in _CONTAINERS and (index == 0 or words[0].rpartition("/")[2] in LAUNCHERS):
            _read_runtime(found, number, program, words[index + 1 :])
            return


def _read_runtime(found: _Findings, number: int, program: str, rest: list[str]) -> None:
    verbs = {"exec", "run", "shell", "start"}
    by_verb = program not in {"shifter", "ch-run"}
    if by_verb and (not rest or rest[0] not in verbs):
        return
    found.runtime = (_RUNTIMES.get(program, program), number)
    words = iter(rest[1:] if by_verb else rest)
    for word in words:
        if word.startswith("--image"):
            _take_image(found, number, word.partition("=")[2] or next(words, ""))
            return
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            _take_image(found, number, word)
            return


def _take_image(found: _Findings, number: int, image: str) -> None:
    if "$" in image or not image:
        found.notes.append(Note(line=number, text=image, why="the container image is named by a variable"))
    else:
        found.image = (image, number)
