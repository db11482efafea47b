"""Which dialect a script is written in, and the one door to all readers.

sbatch itself also obeys `#PBS` lines, after its own: a script with both is Slurm's, and there the
`#PBS` values win.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from providers.dialects.scripts.body import outside_heredocs
from providers.dialects.scripts.cobalt import read_cobalt
from providers.dialects.scripts.flux import read_flux
from providers.dialects.scripts.lsf import read_lsf
from providers.dialects.scripts.oar import read_oar
from providers.dialects.scripts.pbs import read_pbs
from providers.dialects.scripts.sge import read_sge
from providers.dialects.scripts.slurm import read_slurm
from providers.dialects.scripts.text import ScriptText, read_text
from providers.dialects.scripts.types import DIALECTS, Dialect, Note, ScriptRequest
from providers.errors import InvalidInput

_PREFIXES: Mapping[Dialect, str] = {
    "slurm": r"#SBATCH",
    "pbs": r"#PBS(?=[\s-]|$)",
    "lsf": r"#BSUB(?=[\s-]|$)",
    "flux": r"#[^\w]*(?:flux|FLUX):",
    "cobalt": r"#COBALT(?=[\s-]|$)",
    "oar": r"#OAR(?=[\s-]|$)",
    "sge": r"#\$(?=[\s-])",
}
_READERS: Mapping[Dialect, Callable[[ScriptText], ScriptRequest]] = {
    "slurm": read_slurm,
    "pbs": read_pbs,
    "lsf": read_lsf,
    "flux": read_flux,
    "cobalt": read_cobalt,
    "oar": read_oar,
    "sge": read_sge,
}
_OVERLAID = (
    "nodes", "tasks", "cpus", "gpus", "gpus_per_node", "gpu_types", "memory_mib", "memory_asked",
    "walltime_s", "partition", "account", "job_name", "output_path", "error_path", "array", "dependency",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sniffed:
    """The dialect that decides (None: no directives), others whose directives stand there too, and why."""

    dialect: Dialect | None
    others: tuple[Dialect, ...]
    reason: str


def sniff(text: ScriptText) -> Sniffed:
    """Return which scheduler's directives a script holds. Here-documents are other scripts."""
    lines = [line for _, line in outside_heredocs(list(text.numbered()), [])]
    counts = {
        dialect: sum(bool(re.match(prefix, line)) for line in lines) for dialect, prefix in _PREFIXES.items()
    }
    found = [dialect for dialect in _PREFIXES if counts[dialect]]
    if not found:
        known = "#SBATCH, #PBS, #BSUB, # flux:, #COBALT, #OAR, #$"
        return Sniffed(None, (), f"no directives of any scheduler were found ({known})")
    first = "slurm" if "slurm" in found else max(found, key=lambda dialect: counts[dialect])
    others = tuple(dialect for dialect in found if dialect != first)
    reason = f"{counts[first]} directive lines of {first}"
    if others:
        reason += f"; also {', '.join(others)}"
    return Sniffed(first, others, reason)


def read_script(raw: object, *, dialect: str | None = None) -> ScriptRequest:
    """Return what a batch script asks for.

    Args:
        raw: The script's text (or UTF-8 bytes).
        dialect: Read these directives; None = those that are found.

    Raises:
        InvalidInput: empty, binary or no text; an unknown dialect; no directives and no dialect named.
    """
    text = read_text(raw)
    if dialect is not None and dialect not in DIALECTS:
        message = f"Unknown dialect {str(dialect)[:40]!r}; known are {', '.join(DIALECTS)}."
        raise InvalidInput(message, problems=(("/dialect", "unknown_dialect", message),))
    sniffed = sniff(text)
    chosen = next((known for known in DIALECTS if known == dialect), sniffed.dialect)
    if chosen is None:
        message = f"The script cannot be read as a request: {sniffed.reason}."
        remedy = "Add directives, name the dialect, or send an envelope."
        raise InvalidInput(message, problems=(("/script", "no_directives", message),), remediation=remedy)
    present = {str(name) for name in (sniffed.dialect, *sniffed.others) if name}
    if chosen == "slurm" and "pbs" in present:
        return _with_pbs(text, has_own="slurm" in present)
    request = _READERS[chosen](text)
    return _with_strangers(request, sorted(present - {chosen}))


def _with_strangers(request: ScriptRequest, strangers: Sequence[str]) -> ScriptRequest:
    """Return the request with a remark on every other dialect whose directives stand there."""
    ignored, unread = list(request.ignored), list(request.not_understood)
    for name in strangers:
        if request.dialect == "slurm" and name == "lsf":
            why = "sbatch translates #BSUB lines too, in its own way; they are not read here: drop them"
            unread.append(Note(line=0, text="#BSUB", why=why))
        else:
            ignored.append(
                Note(line=0, text=name, why=f"{name} directives are comments to {request.dialect}")
            )
    return request.model_copy(update={"ignored": tuple(ignored), "not_understood": tuple(unread)})


def _with_pbs(text: ScriptText, *, has_own: bool) -> ScriptRequest:
    """Return the request of a script that sbatch would read with its `#PBS` lines laid over its own."""
    own = read_slurm(text)
    if "--ignore-pbs" in own.extra:
        return _with_strangers(own, ["pbs"])
    pbs = read_pbs(text)
    update: dict[str, object] = {}
    conflicts: list[Note] = []
    for field in _OVERLAID:
        new, old = getattr(pbs, field), getattr(own, field)
        if new in (None, ()):
            continue
        update[field] = new
        if old not in (None, ()) and old != new:
            line = (pbs.lines.get(field) or (0,))[-1]
            why = f"#PBS overrides #SBATCH line {own.lines.get(field, ())} under sbatch"
            conflicts.append(Note(line=line, text=field, why=why))
    warnings = _lost_by_translation(pbs)
    if not has_own:
        why = "only #PBS directives: read as PBS means them, sbatch translates most"
        warnings = (Note(line=0, text="#PBS", why=why), *warnings)
    update |= {
        "lines": own.lines | {field: pbs.lines[field] for field in update if field in pbs.lines},
        "reasons": own.reasons | {field: pbs.reasons[field] for field in update if field in pbs.reasons},
        "chunks": pbs.chunks,
        "exclusive": own.exclusive or pbs.exclusive,
        "conflicts": own.conflicts + tuple(conflicts) + pbs.conflicts,
        "warnings": own.warnings + warnings,
        "refusals": tuple(dict.fromkeys(own.refusals + pbs.refusals)),
        "ignored": own.ignored + pbs.ignored,
        "not_understood": tuple(dict.fromkeys(own.not_understood + pbs.not_understood)),
    }
    return own.model_copy(update=update)


def _lost_by_translation(pbs: ScriptRequest) -> tuple[Note, ...]:
    if any(chunk.gpus for chunk in pbs.chunks):
        line = (pbs.lines.get("gpus") or (0,))[0]
        return (Note(line=line, text="ngpus", why="ngpus is lost when sbatch translates PBS"),)
    return ()


def read_generated(request: ScriptRequest) -> Sequence[ScriptRequest]:
    """Return the requests of scripts that this script writes through here-documents."""
    found = []
    for text in request.body.generated:
        try:
            found.append(read_script(text))
        except InvalidInput:  # a written file without directives is no batch script
            continue
    return tuple(found)
