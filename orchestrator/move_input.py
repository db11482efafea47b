"""What a caller may say of a move, and the move it becomes. Pure."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import AwareDatetime, BeforeValidator, Field

from orchestrator.task_input import Line
from providers.errors import InvalidInput
from providers.movers.places import FORMS, GLOBUS, Place, read_place
from providers.types import Frozen

DEADLINE = timedelta(hours=24)
"""How long a move may take when nobody says otherwise."""
LONGEST = timedelta(days=14)


class RefInput(Frozen):
    """One file or folder; a slash at its end = a folder."""

    uri: str = Field(description=f"{FORMS[0].upper()}{FORMS[1:]}.")
    bytes: int | None = Field(None, ge=0, description="Its size, where it is known.")
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        None, description="Its checksum; a file that has another is refused."
    )


def _as_reference(value: Any) -> Any:
    return {"uri": value} if isinstance(value, str) else value


Reference = Annotated[RefInput, BeforeValidator(_as_reference, json_schema_input_type=RefInput | str)]


class MoveOptions(Frozen):
    """How to move. Checksums are always verified, and what is equal at the destination is not sent again."""

    recursive: bool = Field(default=False, description="A folder, whole; the same as a slash at its end.")
    deadline: AwareDatetime | None = Field(
        None, description="Until when it is tried; 24 h from now unless said."
    )
    label: Line = Field("", max_length=100, description="What the storage's own pages call it.")


class MoveInput(Frozen):
    """One movement of data, storage to storage."""

    source: Reference = Field(description="What to move: a URI, or {uri, bytes?, sha256?}.")
    destination: Reference = Field(description="Where to; a slash at its end = into that folder.")
    options: MoveOptions = MoveOptions()
    task: str | None = Field(None, description="Handle of a task of yours that this belongs to.")


@dataclass(frozen=True, slots=True)
class Item:
    """One file or folder of a move."""

    source: Place
    destination: Place
    bytes: int | None = None
    sha256: str | None = None
    path: str | None = None
    """Where the job finds or leaves it, below its working directory; None = no job's."""

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "source": self.source.uri,
            "destination": self.destination.uri,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "path": self.path,
        }


def read_item(doc: dict[str, Any]) -> Item:
    """Return an item that was stored."""
    known = {name: doc.get(name) for name in ("bytes", "sha256", "path")}
    return Item(read_place(doc["source"]), read_place(doc["destination"]), **known)


def item_of(given: MoveInput) -> Item:
    """Return what is to be moved where.

    Raises:
        InvalidInput: a URI cannot be read, or nothing moves between two such places.
    """
    source = read_place(given.source.uri, pointer="/source/uri")
    target = read_place(given.destination.uri, pointer="/destination/uri")
    if given.options.recursive or source.is_folder:
        source, target = _folder(source), _folder(target)
    elif target.is_folder:
        target = target.within(source.name)
    for place, pointer in ((source, "/source/uri"), (target, "/destination/uri")):
        if not place.name and not place.is_folder:
            raise _wrong(pointer, "bad_path", "names no file; end it with a slash for the whole folder.")
    _can_move(source, target)
    if source.is_folder and given.source.sha256:
        raise _wrong("/source/sha256", "not_a_file", "a folder has no checksum; give the file's own URI.")
    return Item(source, target, given.source.bytes, given.source.sha256)


def _can_move(source: Place, target: Place) -> None:
    if source.scheme != target.scheme:
        text = (
            f"{source.scheme}:// and {target.scheme}:// places have no mover in common; bytes do not pass "
            "through Facet. Name both ends as collections (this machine's files by its own collection)."
        )
        raise _wrong("/destination/uri", "no_common_mover", text)
    if source.uri.rstrip("/") == target.uri.rstrip("/"):
        raise _wrong("/destination/uri", "same_place", "is the source itself.")
    if source.is_folder and target.relative_to(source) is not None:
        raise _wrong("/destination/uri", "same_place", "lies within the folder that is to be moved.")


def deadline_of(options: MoveOptions, *, now: datetime) -> datetime:
    """Return until when a move is tried.

    Raises:
        InvalidInput: that is over, or too far away.
    """
    at = options.deadline
    if at is None:
        return now + DEADLINE
    if at <= now:
        raise _wrong("/options/deadline", "in_the_past", "has passed already; give a later instant.")
    if at - now > LONGEST:
        raise _wrong("/options/deadline", "too_late", "is more than 14 days away.")
    return at


def _folder(place: Place) -> Place:
    return place if place.is_folder else replace(place, path=f"{place.path}/")


def _wrong(pointer: str, code: str, text: str) -> InvalidInput:
    return InvalidInput(f"{pointer[1:].replace('/', '.')}: {text}", problems=((pointer, code, text),))


def mover_word(scheme: str) -> str:
    """Return what a mover is called to people."""
    return "Globus Transfer" if scheme == GLOBUS else "this machine"
