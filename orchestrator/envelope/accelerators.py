"""Accelerator words: the canonical lower-case types, and how names in the wild map to them.

A name in the wild is free text of an administrator or a driver (`nvidia_a100-sxm4-80gb`,
`NVIDIAA100_SXM4_80GB`). Only memory that the name itself says is taken from it, except where a model
exists in one size only. A MIG slice is never the whole GPU.
"""

import re
from dataclasses import dataclass
from typing import Literal

Vendor = Literal["nvidia", "amd", "intel", "other"]

_VENDORS: dict[Vendor, str] = {
    "nvidia": (
        "k20 k40 k80 m60 p4 p40 p100 v100 t4 a2 a10 a16 a30 a40 a100 a800 a4000 a5000 a6000 l4 l20 l40 l40s "
        "h20 h100 h200 h800 gh200 b100 b200 b300 gb200 gb300 rtx2080ti rtx3080 rtx3090 rtx4090 rtx5090 "
        "rtx5000 rtx6000 rtx8000 rtx6000ada gtx1080 gtx1080ti titanrtx titanv titanxp"
    ),
    "amd": "mi50 mi60 mi100 mi200 mi210 mi250 mi250x mi300a mi300x mi325x mi350x mi355x",
    "intel": "max1100 max1550 gaudi2 gaudi3",
    "other": "tpu",
}
VENDOR_OF: dict[str, Vendor] = {word: vendor for vendor, words in _VENDORS.items() for word in words.split()}
KNOWN_ACCELERATORS = frozenset(VENDOR_OF)

_ONE_SIZE_GIB = {
    "titanrtx": 24, "rtx2080ti": 11, "rtx3090": 24, "rtx4090": 24, "p100": 16, "a40": 48, "a10": 24,
    "a30": 24, "t4": 16, "l4": 24, "l40": 48, "l40s": 48, "h200": 141, "mi250x": 128, "max1550": 128,
}  # fmt: skip
_NOISE = re.compile(
    r"nvidia|geforce|tesla|quadro|amd|instinct|intel|gpu|data ?center|series|ponte ?vecchio|pvc"
)
_FORM = re.compile(r"(sxm[0-9]*|pcie?|nvl|hbm[0-9]e?|oam|smx[0-9]*)")


@dataclass(frozen=True, slots=True)
class AcceleratorWord:
    """A canonical type, and the memory of one device in MiB if the name says it."""

    type: str
    memory_mib: int | None = None


def read_accelerator_word(text: str) -> AcceleratorWord | None:
    """Return the canonical type of a name, or None when it is no whole GPU that we know."""
    word = text.strip().lower()
    if word in KNOWN_ACCELERATORS:
        return AcceleratorWord(word)
    if len(word) > 80 or re.search(r"\d+g\.\d+gb", word):
        return None
    memory = re.search(r"(?<![0-9])([0-9]{2,3})(?:gi?b?)?(?![0-9a-z])", _after_model(word))
    memory_gib = int(memory[1]) if memory else None
    bare = _FORM.sub(" ", _NOISE.sub(" ", word))
    bare = re.sub(r"(?<=[_\-\s])[0-9]{2,3}(gi?b?)?(?![0-9a-z])", " ", bare) if memory else bare
    squeezed = re.sub(r"[^a-z0-9]", "", bare)
    if squeezed in KNOWN_ACCELERATORS:
        return AcceleratorWord(squeezed, memory_gib * 1024 if memory_gib else None)
    return None


def device_memory_mib(kind: str) -> int | None:
    """Return the memory of one device in MiB for a type that exists in one size only."""
    size = _ONE_SIZE_GIB.get(kind)
    return size * 1024 if size else None


def _after_model(word: str) -> str:
    """Return what follows the first separator: model numbers before it are no memory sizes."""
    match = re.search(r"(?:[a-z]+[0-9]+[a-z]*|rtx[_\-\s]?[0-9]+\w*)[_\-\s](.*)", word)
    return f" {match[1]}" if match else ""
