"""Whether a record offers the container runtime, software, network and file systems a task asks for."""

from collections.abc import Iterable, Mapping

from federation.types import ResourceRecord
from orchestrator.envelope.types import Envelope, Software
from orchestrator.placement.types import Rejection, rejection
from orchestrator.placement.versions import UnreadableVersion, satisfies


def compatibility(envelope: Envelope, record: ResourceRecord) -> list[Rejection]:
    """Return every capability that is missing. Software is not judged where the profile lists none."""
    found = _container(envelope, record)
    if record.software_known:
        found += _software(envelope.software, record.software, record.system)
    found += _software(envelope.parallel, record.parallel, record.system)
    found += _words("network_missing", "network", envelope.network, record.network, record.system)
    found += _words(
        "filesystem_missing", "filesystem", envelope.filesystem, record.filesystems, record.system
    )
    return found


def _container(envelope: Envelope, record: ResourceRecord) -> list[Rejection]:
    wanted = envelope.container
    if wanted is None or (not wanted.runtime and wanted.image is None):
        return []
    if any(runtime in record.containers for runtime in wanted.runtime or record.containers):
        return []
    have = ", ".join(record.containers) or "no container runtime"
    remedy = (
        f"{record.system} offers {have}; name one of them in container.runtime or run without a container."
    )
    required = wanted.runtime or ("any",)
    return [rejection("container_unsupported", required=required, observed=record.containers, remedy=remedy)]


def _software(
    wanted: Iterable[Software], installed: Mapping[str, tuple[str, ...]], system: str
) -> list[Rejection]:
    """Return packages that are absent, or present in no version that will do; unknown versions will do."""
    versions_of = {name.lower(): versions for name, versions in installed.items()}
    found = []
    for package in wanted:
        versions = versions_of.get(package.name.lower())
        label = f"{package.name} {package.version or ''}".strip()
        if versions is None:
            remedy = (
                f"{system} does not list {package.name}; install it in the task's environment or drop it."
            )
            found.append(rejection("software_missing", required=label, observed=None, remedy=remedy))
        elif package.version and versions and not _any_satisfies(versions, package.version):
            remedy = (
                f"{system} has {package.name} {', '.join(versions)}; widen the version {package.version}."
            )
            found.append(rejection("software_version", required=label, observed=versions, remedy=remedy))
    return found


def _any_satisfies(versions: Iterable[str], specifier: str) -> bool:
    try:
        return any(satisfies(version, specifier) for version in versions)
    except UnreadableVersion:
        return False


def _words(
    code: str, envelope_field: str, wanted: Iterable[str], offered: Iterable[str], system: str
) -> list[Rejection]:
    have = tuple(offered)
    known = {word.lower() for word in have}
    return [
        rejection(
            code,
            required=word,
            observed=have,
            remedy=f"{system} offers {', '.join(have) or 'none known'}; drop {word} from {envelope_field}.",
        )
        for word in wanted
        if word.lower() not in known
    ]
