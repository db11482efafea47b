"""Looking once more at copies of inputs before a job relies on them: by size, and by checksum where told.

Sites purge scratch folders, and people tidy up. No transaction is open while the site is asked.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

import structlog
from django.db import transaction

from federation.links import open_link
from orchestrator.models import Attempt
from orchestrator.services.staging import forget_copies, links_to_copies
from providers.errors import FacetError
from providers.types import Batch, BatchReply, ListFiles

log = structlog.get_logger(__name__)

_LOOK_S = 30
_FILES_AT_MOST = 200


def are_there(attempt: Attempt, *, now: datetime) -> bool:
    """Return whether every copy the attempt relies on is there; else those inputs are brought anew."""
    links = links_to_copies(attempt)
    if not links:
        return True
    folders = sorted({str(PurePosixPath(link["at"]).parent) for link in links})
    look = Batch(
        operations=tuple(
            ListFiles(name=f"copies.{number}", path=folder, max_files=_FILES_AT_MOST)
            for number, folder in enumerate(folders)
        ),
        deadline_s=_LOOK_S,
    )
    try:
        reply = open_link(attempt.connection).run(look)
    except FacetError as error:  # the dispatch that follows meets the same site, and says so
        log.info("copies could not be looked at", attempt=attempt.handle, error=str(error))
        return True
    gone = [link["at"] for link in links if not _is_there(link, folders, reply)]
    if not gone:
        return True
    with transaction.atomic():
        forget_copies(attempt, gone, now=now)
    return False


def _is_there(link: Mapping[str, Any], folders: Sequence[str], reply: BatchReply) -> bool:
    at = PurePosixPath(link["at"])
    listed = reply.replies[f"copies.{folders.index(str(at.parent))}"]
    if listed.rc != 0:
        return not listed.missing  # what could not be looked at is not known to be gone
    found = next((each for each in listed.files if each.path == at.name), None)
    if found is None:
        return listed.truncated
    return found.bytes == link["bytes"] and found.sha256 in (None, link["sha256"])
