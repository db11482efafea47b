"""A small grammar of requests in plain words: "4 A100s for 2 hours, 64 GB memory, lammps >= 2023".

Each phrase that is understood is taken out of the text; what is left is the residue, reported and
never guessed at. The result is JSON in the envelope's input form, checked like anybody's.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from orchestrator.envelope.accelerators import KNOWN_ACCELERATORS, read_accelerator_word
from orchestrator.envelope.parts import RUNTIMES
from orchestrator.envelope.spellings import duration_s, memory_mib
from providers.dialects.scripts.quantities import Misspelled

_WORDS_TO_SIXTEEN = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
)
_NUMBERS = {word: number for number, word in enumerate(_WORDS_TO_SIXTEEN.split())} | {
    "a": 1,
    "an": 1,
    "single": 1,
    "a single": 1,
}
_N = rf"(\d{{1,7}}|{'|'.join(sorted(_NUMBERS, key=len, reverse=True))})"
_COUNT = (
    r"(?:(?P<least>at least|minimum|min\.?)\s+|(?P<most>up to|at most|maximum|max\.?)\s+)?"
    rf"(?<![\w.])(?P<n>{_N})(?:\s*(?:-|to|\u2013)\s*(?P<m>\d{{1,7}}))?"
)
_SIZE = r"(\d{1,6}(?:\.\d{1,3})?)\s*([kmgtp]i?b?)\b"
_MODEL = (
    r"(?:nvidia\s+|amd\s+|intel\s+|tesla\s+)?(?P<model>"
    + "|".join(sorted(KNOWN_ACCELERATORS, key=len, reverse=True))
    + r"|rtx[ -]?\d{4}(?:[ -]?ti)?|titan[ -]rtx|max[ -]1550)(?:[- ](?:sxm\d?|pcie))?"
)
_UNIT = r"(?:days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)"
_PACKAGES = frozenset(
    [
        "lammps",
        "gromacs",
        "namd",
        "amber",
        "openfoam",
        "vasp",
        "cp2k",
        "pytorch",
        "tensorflow",
        "jax",
        "quantum-espresso",
        "nwchem",
        "paraview",
        "openmm",
        "alphafold",
        "siesta",
        "wrf",
        "petsc",
        "trilinos",
        "kokkos",
        "cuda",
        "rocm",
        "python",
        "julia",
        "matlab",
    ]
)
_MPI = ("openmpi", "mpich", "mvapich2", "intel-mpi", "cray-mpich")
_NETWORKS = ("infiniband", "slingshot", "omnipath", "roce", "nvlink")
_FILESYSTEMS = ("lustre", "gpfs", "beegfs", "vast", "daos")
_ARCHITECTURES = {
    "x86_64": "x86_64", "x86-64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64",
    "ppc64le": "ppc64le",
}  # fmt: skip
_OBJECTIVES = {
    r"cheap(?:est|ly)?|lowest (?:charge|cost)": "lowest_charge",
    r"start(?:s|ing)? (?:as )?soon(?:est)?(?: as possible)?|soonest start": "soonest_start",
    r"risk[- ]averse|least risk|(?:most )?reliabl[ey]": "risk_averse",
    r"finish(?:ed)? (?:as )?soon(?:est)?(?: as possible)?|earliest completion": "earliest_completion",
}
_FILLER = frozenset(
    [
        "a",
        "about",
        "an",
        "and",
        "any",
        "at",
        "be",
        "by",
        "can",
        "could",
        "each",
        "for",
        "from",
        "gpu",
        "gpus",
        "have",
        "i",
        "i'd",
        "in",
        "is",
        "it",
        "job",
        "like",
        "me",
        "my",
        "need",
        "need:",
        "needs",
        "of",
        "on",
        "or",
        "our",
        "per",
        "please",
        "request",
        "require",
        "requires",
        "run",
        "running",
        "should",
        "some",
        "task",
        "that",
        "the",
        "this",
        "to",
        "total",
        "training",
        "use",
        "using",
        "want",
        "we",
        "with",
        "work",
        "would",
    ]
)


@dataclass(slots=True)
class Reading:
    """What the grammar made of a text: input-form JSON, the phrase behind each field, and what is left."""

    text: str
    envelope: dict[str, object] = field(default_factory=dict)
    phrases: dict[str, str] = field(default_factory=dict)
    residue: tuple[str, ...] = ()
    understood_words: int = 0
    per_node: dict[str, tuple[int, int]] = field(default_factory=dict)

    def take(self, pattern: str, use: Callable[[re.Match[str]], None], *, limit: int = 20) -> None:
        """Use and blank out every match of a pattern, from left to right."""
        for _ in range(limit):
            match = re.search(pattern, self.text, re.IGNORECASE)
            if match is None:
                return
            use(match)
            self.understood_words += len(match[0].split())
            self.text = self.text[: match.start()] + " ; " + self.text[match.end() :]

    def put(self, name: str, value: object, phrase: str) -> None:
        """Set a field of the envelope; the phrases behind it add up."""
        self.envelope[name] = value
        said = " ".join(phrase.split())
        self.phrases[name] = f"{self.phrases[name]}, {said!r}" if name in self.phrases else f"{said!r}"

    def add(self, name: str, value: object, phrase: str) -> None:
        """Append to a list field; what is there already is not repeated."""
        listed = self.envelope.get(name)
        known = list(listed) if isinstance(listed, list) else []
        if value not in known:
            self.put(name, [*known, value], phrase)

    def merge(self, name: str, key: str, value: object, phrase: str) -> None:
        """Set one member of an object field; lists grow."""
        was = self.envelope.get(name)
        known = dict(was) if isinstance(was, dict) else {}
        old = known.get(key)
        if isinstance(old, list) and isinstance(value, list):
            value = [*old, *(item for item in value if item not in old)]
        self.put(name, {**known, key: value}, phrase)


def read_request(text: str, *, systems: Collection[str] = ()) -> Reading:
    """Return what the grammar understands of a text.

    Args:
        text: A request in English, at most 20,000 characters are read.
        systems: Names that "on", "avoid" and "prefer" may mean.
    """
    reading = Reading(text=f" {text[:20_000]} ")
    _read_systems(reading, systems)
    _read_software(reading)
    _read_time(reading)
    _read_accelerators(reading)
    _read_memory(reading)
    _read_counts(reading)
    _read_words(reading)
    _multiply_per_node(reading)
    left = re.findall(r"[^\s;,.!?()]+(?:\.[^\s;,.!?()]+)*", reading.text)
    reading.residue = tuple(word for word in left if word.lower() not in _FILLER)
    return reading


def _number(text: str) -> int:
    return _NUMBERS[text.lower()] if text.lower() in _NUMBERS else int(text)


def _span(match: re.Match[str]) -> tuple[int, int]:
    low = _number(match["n"])
    high = int(match["m"]) if match["m"] else low
    return (1, high) if match["most"] else (min(low, high), max(low, high))


def _size_mib(number: str, unit: str) -> int:
    return memory_mib(f"{number}{unit[0]}")


def _put_span(reading: Reading, name: str, span: tuple[int, int], phrase: str, per: str | None) -> None:
    if per:
        reading.per_node[name] = span
        reading.put(name, {"min": span[0], "max": span[1]}, phrase)
    else:
        reading.put(name, {"min": span[0], "max": span[1]}, phrase)


_PER = r"(?P<per>\s*(?:per|/|on each|in each|a)\s*node|\s+each(?!\s+(?:of|with)))?"


def _read_accelerators(reading: Reading) -> None:
    def counted(match: re.Match[str]) -> None:
        _put_span(reading, "gpus", _span(match), match[0], match["per"])
        _named(reading, match)

    def named(match: re.Match[str]) -> None:
        _named(reading, match)

    size = rf"(?:[ -]*\(?(?P<size>{_SIZE})\)?)?"
    reading.take(rf"{_COUNT}\s*(?:x|\u00d7)?\s*{_MODEL}(?:'?s)?{size}(?:\s*gpus?)?\b{_PER}", counted)
    reading.take(rf"(?<![\w-]){_MODEL}(?:'?s)?{size}(?:\s*gpus?)?(?![\w-])", named)

    def gpus_of(match: re.Match[str]) -> None:
        _put_span(reading, "gpus", _span(match), match[0], match["per"])
        if match["size"] or match["size2"]:
            _device_memory(reading, match["size"] or match["size2"], match[0])

    vram = (
        rf"(?:\s+(?:with|of|having)\s+(?:at least\s+)?(?P<size2>{_SIZE})"
        r"(?:\s+(?:of\s+)?(?:memory|vram|ram))?(?:\s+each)?)?"
    )
    reading.take(rf"{_COUNT}\s*(?:x\s*)?(?:(?P<size>{_SIZE})\s*)?gpus?\b{vram}{_PER}", gpus_of)
    reading.take(
        rf"(?P<size>{_SIZE})\s*(?:gpus?|vram|gpu memory)\b",
        lambda m: _device_memory(reading, m["size"], m[0]),
    )


def _named(reading: Reading, match: re.Match[str]) -> None:
    word = read_accelerator_word(re.sub(r"[ -]", "", match["model"]))
    if word is not None:
        reading.merge("accelerator", "types", [word.type], match[0])
    if match["size"]:
        _device_memory(reading, match["size"], match[0])


def _device_memory(reading: Reading, size: str, phrase: str) -> None:
    found = re.fullmatch(_SIZE, size.strip(), re.IGNORECASE)
    if found:
        reading.merge("accelerator", "min_memory_mib", _size_mib(found[1], found[2]), phrase)


def _read_time(reading: Reading) -> None:
    def use(match: re.Match[str]) -> None:
        spelled = re.sub(r"\s+|\band\b", "", match["t"].lower())
        for word, number in _NUMBERS.items():
            spelled = (
                re.sub(rf"^{word}(?=[a-z])", str(number), spelled) if word not in {"a", "an"} else spelled
            )
        try:
            reading.put("walltime_s", duration_s(re.sub(r"^an?(?=hour|day|minute)", "1", spelled)), match[0])
        except Misspelled:
            reading.text += f" {match['t']}"

    lead = (
        r"(?:\b(?:for|walltime|wall time|time limit|limit|runtime)(?:\s+(?:of|is|about|up to|:))?\s*[:=]?\s*)"
    )
    colon = r"\d+-\d{1,2}(?::\d\d){1,2}|\d{1,4}:\d\d:\d\d"
    amount = rf"(?:\d{{1,6}}(?:\.\d{{1,2}})?|{'|'.join(w for w in _NUMBERS if ' ' not in w)})"
    worded = rf"{amount}\s*{_UNIT}(?:\s*(?:and\s+)?\d{{1,6}}\s*{_UNIT})*"
    between = rf"{lead}?(?<![\w.])(?P<a>\d{{1,5}})\s*(?:-|to)\s*(?P<b>\d{{1,5}})\s*(?P<u>{_UNIT})\b"
    reading.take(between, partial(_put_time_range, reading), limit=1)
    if "walltime_s" in reading.envelope:
        return
    reading.take(rf"{lead}?(?<![\w.:-])(?P<t>{colon})(?![\w:])", use, limit=1)
    reading.take(rf"{lead}(?P<t>{worded}|PT?\w+)\b", use, limit=1)
    if "walltime_s" not in reading.envelope:
        long_unit = r"(?:days?|hours?|hrs?|h|minutes?|mins?)"
        reading.take(rf"(?<![\w.])(?P<t>{amount}\s*{long_unit}(?:\s*\d{{1,6}}\s*{_UNIT})*)\b", use, limit=1)


def _read_memory(reading: Reading) -> None:
    def use(match: re.Match[str]) -> None:
        mib = _size_mib(match["n"], match["u"])
        _put_span(reading, "memory_mib", (mib, mib), match[0], match["per"])

    size = r"(?<![\w.])(?P<n>\d{1,6}(?:\.\d{1,3})?)\s*(?P<u>[kmgtp]i?b?)\b"
    reading.take(rf"{size}\s+(?:of\s+)?(?:main\s+|system\s+|host\s+)?(?:memory|ram)\b{_PER}", use, limit=1)
    reading.take(rf"\b(?:memory|ram)(?:\s+of)?\s*[:=]?\s*{size}{_PER}", use, limit=1)


def _read_counts(reading: Reading) -> None:
    def cpus(match: re.Match[str]) -> None:
        _put_span(reading, "cpus", _span(match), match[0], match["per"])

    def nodes(match: re.Match[str]) -> None:
        _put_span(reading, "nodes", _span(match), match[0], None)

    reading.take(rf"{_COUNT}\s*(?:cpu[ -]?cores?|cores?|v?cpus?)\b{_PER}", cpus, limit=1)
    reading.take(rf"{_COUNT}\s*(?:compute\s+)?nodes?\b", nodes, limit=1)


def _multiply_per_node(reading: Reading) -> None:
    nodes = reading.envelope.get("nodes")
    low, high = (nodes["min"], nodes["max"]) if isinstance(nodes, dict) else (1, 1)
    for name, (least, most) in reading.per_node.items():
        times = "times the nodes" if isinstance(nodes, dict) else "one node, as none are given"
        reading.put(name, {"min": least * low, "max": most * high}, times)


def _read_software(reading: Reading) -> None:
    def package(match: re.Match[str]) -> None:
        clauses = re.sub(r"\s+", "", match["spec"])
        field_name = "parallel" if match["name"].lower() in _MPI else "software"
        reading.add(field_name, {"name": match["name"].lower(), "version": clauses}, match[0])

    clause = r"(?:>=|<=|==|!=|~=|>|<)\s*\d[\w.]*"
    reading.take(
        rf"(?<![\w/])(?P<name>[a-z][\w+-]{{1,40}})\s*(?P<spec>{clause}(?:\s*,\s*{clause})*)", package
    )

    def exact(match: re.Match[str]) -> None:
        field_name = "parallel" if match["name"].lower() in _MPI else "software"
        reading.add(field_name, {"name": match["name"].lower(), "version": f"=={match['v']}"}, match[0])

    names = "|".join([*_PACKAGES, *_MPI])
    reading.take(rf"(?<![\w/.-])(?P<name>{names})\s+(?:version\s+|v)(?P<v>\d[\w.]*)(?<!\.)", exact)


def _read_words(reading: Reading) -> None:
    bounds = r"(?<![\w/.-]){}(?![\w/-])"

    def each(words: Collection[str], use: Callable[[re.Match[str]], None]) -> None:
        reading.take(bounds.format(f"(?P<w>{'|'.join(sorted(words, key=len, reverse=True))})"), use)

    reading.take(
        r"(?P<i>(?:docker|oras|library)://[\w./:@-]+|[\w./-]+\.sif)(?![\w/-])",
        lambda m: reading.merge("container", "image", m["i"].rstrip("."), m[0]),
        limit=1,
    )
    each(RUNTIMES, lambda m: reading.merge("container", "runtime", [m["w"].lower()], m[0]))
    each(_PACKAGES, lambda m: _bare_package(reading, "software", m))
    each(_MPI, lambda m: _bare_package(reading, "parallel", m))
    each(_ARCHITECTURES, lambda m: reading.add("architecture", _ARCHITECTURES[m["w"].lower()], m[0]))
    each(_NETWORKS, lambda m: reading.add("network", m["w"].lower(), m[0]))
    each(_FILESYSTEMS, lambda m: reading.add("filesystem", m["w"].lower(), m[0]))
    for pattern, objective in _OBJECTIVES.items():
        reading.take(rf"\b(?:{pattern})\b", partial(_put_objective, reading, objective), limit=1)


def _bare_package(reading: Reading, name: str, match: re.Match[str]) -> None:
    listed = reading.envelope.get(name)
    known = {item["name"] for item in listed} if isinstance(listed, list) else set()
    if match["w"].lower() not in known:
        reading.add(name, {"name": match["w"].lower()}, match[0])


def _read_systems(reading: Reading, systems: Collection[str]) -> None:
    if not systems:
        return
    name = rf"(?P<s>{'|'.join(re.escape(word) for word in sorted(systems, key=len, reverse=True))})(?![\w-])"
    for lead, key in (
        (r"(?:not on|avoid|avoiding|except(?: on)?|exclude|excluding)", "exclude_systems"),
        (r"(?:prefer|preferably(?: on)?|ideally on)", "prefer"),
        (r"(?:only on|only|on|at)", "allow_systems"),
    ):
        reading.take(rf"\b{lead}\s+{name}", partial(_put_policy, reading, key))


def _put_policy(reading: Reading, key: str, match: re.Match[str]) -> None:
    reading.merge("policy", key, [match["s"].lower()], match[0])


def _put_objective(reading: Reading, objective: str, match: re.Match[str]) -> None:
    reading.put("objective", objective, match[0])


def _put_time_range(reading: Reading, match: re.Match[str]) -> None:
    low, high = (duration_s(f"{number}{match['u'].lower()}") for number in (match["a"], match["b"]))
    reading.put("walltime_s", {"min": min(low, high), "max": max(low, high)}, match[0])
