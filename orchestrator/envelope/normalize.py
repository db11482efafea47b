"""From what was said to what placement reads: every silence filled with a reason, contradictions refused.

Defaults: no GPUs (one, when an accelerator is named); one CPU per GPU or node; any number of nodes; the
site's memory; one hour; earliest completion.
"""

from orchestrator.envelope.accelerators import VENDOR_OF
from orchestrator.envelope.faults import Faults
from orchestrator.envelope.types import (
    DEFAULT_OBJECTIVE,
    DEFAULT_WALLTIME_S,
    Accelerator,
    Data,
    Envelope,
    EnvelopeInput,
    Policy,
    Range,
)

SILENT = "not given: "
"""How the reason of a figure begins that was made of a silence."""


def normalize(given: EnvelopeInput, *, pointer: str = "/envelope") -> Envelope:
    """Return the envelope with all silences filled.

    Raises:
        InvalidInput: parts that cannot be true together, each with pointer, code and fix.
    """
    faults = Faults()
    reasons: dict[str, str] = {}
    gpus = _gpus(given, reasons)
    nodes = _at_least_one(faults, given.nodes, f"{pointer}/nodes", "nodes", reasons)
    cpus = _cpus(faults, given, gpus=gpus, nodes=nodes, reasons=reasons, pointer=pointer)
    _check_sizes(faults, given, gpus, pointer)
    if given.memory_mib is None:
        reasons["memory_mib"] = f"{SILENT}the site's default"
    walltime = given.walltime_s or _default_walltime(reasons)
    policy = given.policy or Policy()
    _check_policy(faults, policy, pointer)
    objective = _objective(faults, given, policy, pointer)
    faults.raise_if_any()
    return Envelope(
        gpus=gpus,
        cpus=cpus,
        nodes=nodes,
        memory_mib=given.memory_mib,
        walltime_s=walltime,
        architecture=given.architecture or (),
        accelerator=given.accelerator,
        container=given.container,
        software=given.software or (),
        network=given.network or (),
        filesystem=given.filesystem or (),
        parallel=given.parallel or (),
        data=given.data or Data(),
        runtime=given.runtime,
        policy=policy,
        objective=objective,
        source=given.source,
        confidence=given.confidence,
        rationale=reasons | given.rationale,
        original=given.original,
    )


def _default_walltime(reasons: dict[str, str]) -> Range:
    reasons["walltime_s"] = f"{SILENT}{DEFAULT_WALLTIME_S} s by default"
    return Range.exactly(DEFAULT_WALLTIME_S)


def _gpus(given: EnvelopeInput, reasons: dict[str, str]) -> Range:
    if given.gpus is not None:
        return given.gpus
    if given.accelerator is not None:
        reasons["gpus"] = f"{SILENT}one, because an accelerator is named"
        return Range.exactly(1)
    reasons["gpus"] = f"{SILENT}none"
    return Range.exactly(0)


def _cpus(
    faults: Faults,
    given: EnvelopeInput,
    *,
    gpus: Range,
    nodes: Range | None,
    reasons: dict[str, str],
    pointer: str,
) -> Range:
    if given.cpus is None:
        low = max(1, gpus.min, nodes.min if nodes else 1)
        high = max(low, gpus.max, nodes.max if nodes else 1)
        reasons["cpus"] = SILENT + ("one" if high == 1 else "one per GPU or node")
        return Range(min=low, max=high)
    cpus = _at_least_one(faults, given.cpus, f"{pointer}/cpus", "cpus", reasons) or given.cpus
    if nodes is None:
        return cpus
    if cpus.max < nodes.min:
        fix = "each node needs a CPU; raise cpus or lower nodes"
        message = f"{pointer}/cpus: at most {cpus.max} CPUs cannot fill {nodes.min} nodes; {fix}"
        faults.add(f"{pointer}/cpus", "cpus_below_nodes", message)
    elif cpus.min < nodes.min:
        reasons["cpus"] = f"raised from {cpus.min} to one per node"
        return Range(min=nodes.min, max=cpus.max)
    return cpus


def _at_least_one(
    faults: Faults, span: Range | None, pointer: str, name: str, reasons: dict[str, str]
) -> Range | None:
    if span is None or span.min > 0:
        return span
    if span.max == 0:
        message = f"{pointer} is 0; a job has at least one, or leave the field out"
        faults.add(pointer, "zero", message)
        return span
    reasons[name] = "min raised from 0 to 1: a job has at least one"
    return Range(min=1, max=span.max)


def _check_sizes(faults: Faults, given: EnvelopeInput, gpus: Range, pointer: str) -> None:
    if given.accelerator is not None and gpus.max == 0:
        message = f"{pointer}/accelerator is named but gpus is 0; raise gpus or drop accelerator"
        faults.add(f"{pointer}/accelerator", "accelerator_without_gpus", message)
    _check_vendor(faults, given.accelerator, pointer)
    if given.memory_mib is not None and given.memory_mib.max == 0:
        message = f"{pointer}/memory_mib is 0; name a size, or leave it out for the site's default"
        faults.add(f"{pointer}/memory_mib", "zero", message)
    if given.walltime_s is not None and given.walltime_s.min == 0:
        message = f"{pointer}/walltime_s: 0 seconds end nothing; give at least 1"
        faults.add(f"{pointer}/walltime_s", "zero", message)


def _check_vendor(faults: Faults, accelerator: Accelerator | None, pointer: str) -> None:
    if accelerator is None or accelerator.vendor is None:
        return
    made_by = {VENDOR_OF.get(kind, accelerator.vendor) for kind in accelerator.types}
    if accelerator.types and accelerator.vendor not in made_by:
        message = (
            f"{pointer}/accelerator: none of {', '.join(accelerator.types)} is made by {accelerator.vendor}"
        )
        faults.add(f"{pointer}/accelerator/vendor", "vendor_mismatch", message)


def _check_policy(faults: Faults, policy: Policy, pointer: str) -> None:
    excluded = set(policy.exclude_systems)
    for name, listed in (("allow_systems", policy.allow_systems or ()), ("prefer", policy.prefer)):
        for slug in sorted(excluded.intersection(listed)):
            message = f"{pointer}/policy: {slug!r} is in both {name} and exclude_systems; drop one"
            faults.add(f"{pointer}/policy/{name}", "contradiction", message)
    if policy.allow_systems is not None:
        for slug in policy.prefer:
            if slug not in policy.allow_systems and slug not in excluded:
                message = (
                    f"{pointer}/policy/prefer: {slug!r} is not among allow_systems; add it there or drop it"
                )
                faults.add(f"{pointer}/policy/prefer", "contradiction", message)


def _objective(faults: Faults, given: EnvelopeInput, policy: Policy, pointer: str) -> str:
    if given.objective and policy.objective and given.objective != policy.objective:
        message = (
            f"{pointer}/objective is {given.objective} but policy.objective is {policy.objective}; keep one"
        )
        faults.add(f"{pointer}/objective", "contradiction", message)
    return given.objective or policy.objective or DEFAULT_OBJECTIVE
