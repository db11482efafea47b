"""What every mover promises: a move is submitted once under an id of ours, watched, and can be cancelled.

Sizes are bytes, instants aware UTC. `None` = not known.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Literal, Protocol

from providers.types import FileEntry, Frozen


class MoveState(StrEnum):
    """How a move is, in our words."""

    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Fault(StrEnum):
    """What stands in a move's way."""

    MISSING = "missing_source"
    DENIED = "permission_denied"
    QUOTA = "quota"
    CHECKSUM = "checksum_mismatch"
    DEADLINE = "deadline"
    OTHER = "other"


class MoveItem(Frozen):
    """One file or folder, and where it goes: paths in the collections, or on this host."""

    source: str
    destination: str
    is_folder: bool = False
    sha256: str | None = None
    """What the file's checksum must be; None = not known before."""


class Move(Frozen):
    """Everything one submission asks for. Files of equal checksum at the destination are not sent again."""

    source_collection: str
    """"" on this host, as is the next."""
    destination_collection: str
    items: tuple[MoveItem, ...]
    label: str
    deadline: datetime | None = None


class Progress(Frozen):
    """What was seen of a move."""

    state: MoveState
    reason: str = ""
    """Why it failed or does not get on, in the collection's own words; "" = nothing is wrong."""
    fault: Fault | None = None
    """What kind of thing that is, where it is known."""
    faults: int = 0
    files: int | None = None
    files_moved: int = 0
    files_skipped: int = 0
    """Already there with the same checksum."""
    bytes_moved: int = 0
    finished_at: datetime | None = None
    seen: tuple[FileEntry, ...] = ()
    """Sizes and checksums of the files that are there now, where the mover knows them (paths as moved)."""


class Finding(Frozen):
    """One thing that was looked at before a move was accepted."""

    rule: str
    outcome: Literal["allowed", "needs_action", "info"]
    detail: str


class Mover(Protocol):
    """One user's way to move data."""

    def check(self, move: Move) -> tuple[Finding, ...]:
        """Return what can be said of a move before anybody is asked for it.

        Raises:
            NotAuthorized: a path lies where this user may not move files.
            InvalidInput: nothing can be moved so.
        """
        ...

    def new_submission_id(self) -> str:
        """Return an id to be stored before `submit`: under one id a move is made at most once."""
        ...

    def submit(self, move: Move, submission_id: str) -> str:
        """Ask for a move and return its id; asked again with the same submission id, return the same.

        Raises:
            NotAuthorized: a consent or permission is missing; says which.
            NotFound: no such collection.
            SiteUnreachable: no clear answer; ask again with the same submission id.
        """
        ...

    def observe(self, move_ids: Sequence[str]) -> Mapping[str, Progress]:
        """Return by id what was seen, in one request; an id is left out when the service knows it no more."""
        ...

    def cancel(self, move_id: str) -> None:
        """Ask for the end of a move; one that is over stays as it is."""
        ...
