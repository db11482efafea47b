"""GPU types as sites spell them."""

import pytest

from providers.gpus import Gpu, canonical_gpu, read_gpu


@pytest.mark.parametrize(
    ("spelled", "family", "memory_gib"),
    [
        ("nvidia_h100_nvl", "h100", 94),
        ("h100", "h100", None),
        ("NVIDIA H100 80GB HBM3", "h100", 80),
        ("a100", "a100", None),
        ("NVIDIA A100-PCIE-40GB", "a100", 40),
        ("nvidia_a100_80gb_pcie", "a100", 80),
        ("gh200", "gh200", None),
        ("nvidia_gh200_480gb", "gh200", None),
        ("a40", "a40", 48),
        ("nvidia_rtx_a6000", "rtxa6000", 48),
        ("a6000", "rtxa6000", 48),
        ("nvidia_rtx_6000_ada_generation", "rtx6000ada", 48),
        ("l40s", "l40s", 48),
        ("l4", "l4", 24),
        ("tesla_t4", "t4", 16),
        ("v100", "v100", None),
        ("amd_instinct_mi300x_oam", "mi300x", 192),
        ("mi250x", "mi250x", None),
        ("h200", "h200", 141),
        ("b200", "b200", None),
        ("quadro_rtx_8000", "rtx8000", 48),
    ],
)
def test_a_spelling_gives_family_and_memory(spelled: str, family: str, memory_gib: int | None) -> None:
    gpu = read_gpu(spelled)

    assert gpu is not None
    assert gpu.family == canonical_gpu(spelled) == family
    assert gpu.memory_mib == (memory_gib * 1024 if memory_gib else None)


@pytest.mark.parametrize("spelled", ["turing", "X1", "kepler", "", "gpu", "1g.10gb", "a1000", "superh100"])
def test_what_is_not_known_is_not_guessed(spelled: str) -> None:
    assert read_gpu(spelled) is None
    assert canonical_gpu(spelled) is None


def test_a_slice_names_its_gpu_and_is_none() -> None:
    assert read_gpu("nvidia_a100_1g.5gb") == Gpu("a100", "nvidia", None, "", "1g.5gb")
    assert canonical_gpu("nvidia_a100_1g.5gb") is None


@pytest.mark.parametrize(
    ("spelled", "vendor"), [("a100", "nvidia"), ("gfx942", "amd"), ("mi210", "amd"), ("max_1550", "intel")]
)
def test_a_vendor_follows_from_the_family(spelled: str, vendor: str) -> None:
    gpu = read_gpu(spelled)

    assert gpu is not None
    assert gpu.vendor == vendor
