"""GPU types as sites spell them, and what is known of each: family, vendor, memory.

A type string is free text that an administrator chose, or the device name in lower case when Slurm
detected it. The raw spelling is what a scheduler wants back, so it is never changed; this module only
says what it means. Memory that neither the name nor the model fixes is unknown (an A100 has 40 or 80 GB).

Source: vendors' product pages for memory sizes, in nominal GB taken as GiB.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

Vendor = Literal["nvidia", "amd", "intel"]

_MIB: Final = 1024


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a type string means."""

    family: str
    """Canonical model in lower case: "a100", "h100", "gh200", "rtx3090"."""
    vendor: Vendor
    memory_mib: int | None
    """Of one GPU; None where the name leaves it open."""
    variant: str = ""
    """"nvl" and "pcie" differ from the common form; "" otherwise."""
    mig: str = ""
    """The MIG profile, where the type is a slice of this GPU: "3g.20gb"."""


@dataclass(frozen=True, slots=True)
class _Family:
    vendor: Vendor
    sizes_gb: tuple[int, ...]
    """One size where all of the model have it; several where the name must tell."""
    variants: tuple[tuple[str, int], ...] = ()
    """Memory in GB by variant word."""


_FAMILIES: Final[dict[str, _Family]] = {
    "gb300": _Family("nvidia", (288,)),
    "gb200": _Family("nvidia", (186, 192)),
    "b300": _Family("nvidia", (288,)),
    "b200": _Family("nvidia", (180, 192)),
    "gh200": _Family("nvidia", (96, 120, 144)),
    "h200": _Family("nvidia", (141,)),
    "h100": _Family("nvidia", (64, 80, 94, 96), (("nvl", 94),)),
    "h800": _Family("nvidia", (80,)),
    "h20": _Family("nvidia", (96, 141)),
    "a100": _Family("nvidia", (40, 64, 80)),
    "a800": _Family("nvidia", (40, 80)),
    "a30": _Family("nvidia", (24,)),
    "a40": _Family("nvidia", (48,)),
    "a10": _Family("nvidia", (24,)),
    "a16": _Family("nvidia", (16,)),
    "a2": _Family("nvidia", (16,)),
    "l40s": _Family("nvidia", (48,)),
    "l40": _Family("nvidia", (48,)),
    "l4": _Family("nvidia", (24,)),
    "v100s": _Family("nvidia", (32,)),
    "v100": _Family("nvidia", (16, 32)),
    "p100": _Family("nvidia", (12, 16)),
    "p40": _Family("nvidia", (24,)),
    "p4": _Family("nvidia", (8,)),
    "t4": _Family("nvidia", (16,)),
    "k80": _Family("nvidia", (12,)),
    "rtx6000ada": _Family("nvidia", (48,)),
    "rtx6000": _Family("nvidia", (24, 48, 96)),
    "rtx8000": _Family("nvidia", (48,)),
    "rtxa6000": _Family("nvidia", (48,)),
    "rtxa5000": _Family("nvidia", (24,)),
    "rtxa4000": _Family("nvidia", (16,)),
    "rtx5090": _Family("nvidia", (32,)),
    "rtx5080": _Family("nvidia", (16,)),
    "rtx4090": _Family("nvidia", (24,)),
    "rtx4080": _Family("nvidia", (16,)),
    "rtx3090ti": _Family("nvidia", (24,)),
    "rtx3090": _Family("nvidia", (24,)),
    "rtx3080": _Family("nvidia", (10, 12)),
    "rtx2080ti": _Family("nvidia", (11,)),
    "rtx2080": _Family("nvidia", (8,)),
    "gtx1080ti": _Family("nvidia", (11,)),
    "gtx1080": _Family("nvidia", (8,)),
    "mi355x": _Family("amd", (288,)),
    "mi350x": _Family("amd", (288,)),
    "mi325x": _Family("amd", (256,)),
    "mi300x": _Family("amd", (192,)),
    "mi300a": _Family("amd", (128,)),
    "mi250x": _Family("amd", (64, 128)),
    "mi250": _Family("amd", (64, 128)),
    "mi210": _Family("amd", (64,)),
    "mi100": _Family("amd", (32,)),
    "mi60": _Family("amd", (32,)),
    "mi50": _Family("amd", (16, 32)),
    "mi200": _Family("amd", (64, 128)),
    "mi300": _Family("amd", (128, 192)),
    "max1550": _Family("intel", (128,)),
    "max1100": _Family("intel", (48,)),
}
_ALIASES: Final = {
    "a6000": "rtxa6000",
    "a5000": "rtxa5000",
    "a4000": "rtxa4000",
    "gfx90a": "mi200",
    "gfx908": "mi100",
    "gfx942": "mi300",
    "2080ti": "rtx2080ti",
    "1080ti": "gtx1080ti",
    "3090": "rtx3090",
    "4090": "rtx4090",
    "pvc": "max1550",
}
_NOISE: Final = frozenset(
    {"nvidia", "amd", "intel", "tesla", "quadro", "geforce", "instinct", "gpu", "radeon", "data", "center"}
    | {
        "sxm",
        "sxm2",
        "sxm3",
        "sxm4",
        "sxm5",
        "oam",
        "hbm2",
        "hbm2e",
        "hbm3",
        "hbm3e",
        "graphics",
        "superchip",
    }
    | {"generation", "hgx", "dgx", "server", "edition", "r"}
)
_VARIANTS: Final = frozenset({"nvl", "pcie"})
_SPLIT: Final = re.compile(r"[\s_\-./]+")
_SIZE: Final = re.compile(r"(\d{1,3})(?:g(?:i?b)?)?", re.ASCII)


@lru_cache(maxsize=1024)
def read_gpu(type_: str) -> Gpu | None:
    """Return what a site's type string means, or None for a model that is not known here.

    Words are compared whole: "h100_nvl" is no H100 of 80 GB, "a100_3g.20gb" no whole A100.
    """
    text = type_.strip().casefold()
    mig = re.search(r"(?:^|[_\-])((?:\d+c\.)?\d+g[._]?\d+gb(?:[+.].*)?)$", text)
    words = [w for w in _SPLIT.split(text[: mig.start()] if mig else text) if w and w not in _NOISE]
    found = _family(words)
    if found is None:
        return None
    family, rest = found
    known = _FAMILIES[family]
    variant = next((word for word in rest if word in _VARIANTS), "")
    size = None if mig else _size_gb(known, rest, variant)
    return Gpu(family, known.vendor, size * _MIB if size else None, variant, mig[1] if mig else "")


def canonical_gpu(type_: str) -> str | None:
    """Return the canonical model of a site's type string: "nvidia_h100_nvl" is "h100".

    None for a model that is not known, and for a MIG slice, which is no such GPU.
    """
    found = read_gpu(type_)
    return found.family if found and not found.mig else None


def _family(words: list[str]) -> tuple[str, list[str]] | None:
    """Return the family that leading words spell, longest spelling first, and the words that are left."""
    for first in range(len(words)):
        for count in (3, 2, 1):
            joined = "".join(words[first : first + count])
            name = _ALIASES.get(joined, joined)
            if name in _FAMILIES and len(words) >= first + count:
                return name, words[:first] + words[first + count :]
    return None


def _size_gb(known: _Family, rest: list[str], variant: str) -> int | None:
    """Return GB from the name where it tells, else from the model where that leaves no choice."""
    for word in rest:
        match = _SIZE.fullmatch(word)
        if match and int(match[1]) in known.sizes_gb:  # "gh200_480gb" names the CPU's memory
            return int(match[1])
    for name, size in known.variants:
        if name == variant:
            return size
    return known.sizes_gb[0] if len(known.sizes_gb) == 1 else None
