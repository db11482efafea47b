"""Which inputs must be moved to a system, and where each is found there. Pure.

A system's profile says which of its folders can be reached as which place (`storage`). An input that lies in
such a folder is at the system already; one of equal size and checksum that was brought before is used again;
the rest is brought to a folder of its own by the first storage of the same kind. A `file:///` input at a
system that names no `file:` storage is a path of the system's own: nothing is moved.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.envelope.types import Data, DataRef
from orchestrator.move_input import Item
from providers.errors import InvalidInput
from providers.movers.places import FILE, Place, read_place


@dataclass(frozen=True, slots=True)
class Storage:
    """One folder of a system (absolute, without a slash at its end) and the place by which it is reached."""

    place: Place
    path: str

    def place_of(self, path: str) -> Place | None:
        """Return the place of a path at the system; None = not in this folder."""
        base = f"{self.path}/"
        return self.place.within(path.removeprefix(base)) if path.startswith(base) else None

    def path_of(self, place: Place) -> str | None:
        """Return the path at the system of a place; None = not in this folder."""
        below = place.relative_to(self.place)
        return None if below is None else f"{self.path}/{below}".rstrip("/")


def storages(stated: Sequence[tuple[str, str]], *, user: str, remote_user: str) -> tuple[Storage, ...]:
    """Return a profile's storages, (URI, path) each, for one user; `{user}` is their name at the system."""
    name = remote_user or user
    return tuple(
        Storage(read_place(uri.replace("{user}", name)), path.replace("{user}", name).rstrip("/"))
        for uri, path in stated
    )


@dataclass(frozen=True, slots=True)
class Link:
    """An input at the system, and where the job expects it below its working directory."""

    at: str
    path: str
    uri: str
    bytes: int | None = None
    sha256: str | None = None
    is_copy: bool = False
    """A copy that was brought for an earlier task: looked at once more before it is relied on."""

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Plan:
    """What the inputs of one attempt need."""

    links: tuple[Link, ...] = ()
    to_move: tuple[Item, ...] = ()
    cannot: tuple[str, ...] = ()
    """A sentence for each input that cannot be brought here."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One input: what it is, and its path below the working directory."""

    ref: DataRef
    path: str


def wanted_inputs(data: Data, spec: Mapping[str, Any]) -> tuple[Wanted, ...]:
    """Return the inputs with their paths: as the task says, else under their own names."""
    paths = {each["uri"]: each.get("path") for each in spec.get("inputs", ())}
    return tuple(Wanted(ref, paths.get(ref.uri) or read_place(ref.uri).name) for ref in data.inputs)


def held_by(inputs: Sequence[DataRef], held: Mapping[tuple[str, int], str]) -> dict[str, str]:
    """Return by URI the path of an equal copy; only known size and checksum make two files equal."""
    return {
        ref.uri: held[ref.sha256, ref.bytes]
        for ref in inputs
        if ref.sha256 is not None and ref.bytes is not None and (ref.sha256, ref.bytes) in held
    }


def plan_inputs(
    inputs: Sequence[Wanted],
    places: Sequence[Storage],
    *,
    base: str,
    held: Mapping[tuple[str, int], str],
) -> Plan:
    """Return what must be moved to a system whose folder for us is `base`.

    Args:
        inputs: what the task needs.
        places: the system's storages, for this user.
        base: absolute folder of ours at the system.
        held: path by (checksum, size) of copies that were brought there before.
    """
    copies = held_by([each.ref for each in inputs], held)
    links: list[Link] = []
    to_move: list[Item] = []
    cannot: list[str] = []
    for each in inputs:
        ref, place = each.ref, read_place(each.ref.uri)
        here = path_here(place, places)
        copy = copies.get(ref.uri)
        if here is None and copy is None:
            here = f"{base.rstrip('/')}/inputs/{_folder_of(ref)}/{place.name}"
            target = place_for(here, places, like=place)
            if target is None:
                cannot.append(f"its profile names no storage for {place.scheme}:// data: {ref.uri}")
                continue
            target = target.within("") if place.is_folder else target
            to_move.append(Item(place, target, ref.bytes, ref.sha256, each.path))
        links.append(
            Link(here or copy or "", each.path, ref.uri, ref.bytes, ref.sha256, is_copy=here is None)
        )
    return Plan(tuple(links), tuple(to_move), tuple(cannot))


def path_here(place: Place, places: Sequence[Storage]) -> str | None:
    """Return the path of a place that lies at the system itself; None = it must be brought."""
    found = (storage.path_of(place) for storage in places)
    here = next((path for path in found if path is not None), None)
    if here is None and place.scheme == FILE and not any(each.place.scheme == FILE for each in places):
        return place.path
    return here


def place_for(path: str, places: Sequence[Storage], *, like: Place) -> Place | None:
    """Return the place of a path at the system that a mover reaches from (or to) a place like this."""
    found = (storage.place_of(path) for storage in places if storage.place.scheme == like.scheme)
    return next((place for place in found if place is not None), None)


def _folder_of(ref: DataRef) -> str:
    """Return the folder of an input: one for each content where that is known, else one for each URI."""
    known = f"sha256:{ref.sha256}" if ref.sha256 else ref.uri
    return hashlib.sha256(known.encode()).hexdigest()[:20]


def checked(data: Data, *, pointer: str = "/envelope/data") -> Data:
    """Return the data as given, once every reference can be read.

    Raises:
        InvalidInput: one cannot; or two inputs would be one file of the job.
    """
    problems: list[tuple[str, str, str]] = []
    for side, refs in (("inputs", data.inputs), ("outputs", data.outputs)):
        for number, ref in enumerate(refs):
            try:
                read_place(ref.uri, pointer=f"{pointer}/{side}/{number}/uri")
            except InvalidInput as error:
                problems += error.problems
    if problems:
        raise InvalidInput(f"The data references cannot be read: {problems[0][2]}", problems=tuple(problems))
    return data


def merged(data: Data, spec_inputs: Sequence[Any], spec_outputs: Sequence[Any]) -> Data:
    """Return the envelope's data with what the task names besides; what the task says of one wins."""

    def joined(stated: Sequence[DataRef], named: Sequence[Any]) -> tuple[DataRef, ...]:
        known = {ref.uri: ref for ref in stated}
        for each in named:
            known[each.uri] = DataRef(uri=each.uri, bytes=each.bytes, sha256=each.sha256)
        return tuple(known.values())

    return Data(inputs=joined(data.inputs, spec_inputs), outputs=joined(data.outputs, spec_outputs))
