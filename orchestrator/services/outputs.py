"""A finished task's outputs: registered in its manifest with size and checksum, and moved to their places."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from orchestrator.data_reach import storages_of
from orchestrator.envelope.types import Data
from orchestrator.models import Attempt, Manifest, Task, Transfer, TransferPurpose
from orchestrator.move_input import DEADLINE, Item, read_item
from orchestrator.services.transfers import Wanted, new_transfer
from orchestrator.staging import Storage, path_here, place_for
from providers.movers.places import Place, read_place
from providers.types import FileEntry


def register(
    task: Task,
    attempt: Attempt,
    manifest: Manifest,
    files: Sequence[FileEntry] | None,
    *,
    now: datetime,
) -> None:
    """Write the outputs of a task that succeeded into its manifest, and have them moved.

    Inside the caller's transaction. `files` None: the site could not list them, so all are tried.
    """
    found = [
        _registered(task, attempt, uri, path, files, now=now, is_first=number == 0)
        for path, uris in _by_path(task).items()
        for number, uri in enumerate(uris)
    ]
    if found:
        manifest.body = {**manifest.body, "outputs": found}
        manifest.save(update_fields=["body"])


def _by_path(task: Task) -> dict[str, list[str]]:
    """Return the places that each output goes to; the first is where it belongs, the others are copies."""
    data = Data.model_validate(task.envelope.body.get("data") or {})
    paths = {each["uri"]: each.get("path") for each in task.spec.get("outputs", ())}
    found: dict[str, list[str]] = {}
    for ref in data.outputs:
        found.setdefault(paths.get(ref.uri) or read_place(ref.uri).name, []).append(ref.uri)
    return found


def _registered(  # what one output is made of
    task: Task,
    attempt: Attempt,
    uri: str,
    path: str,
    files: Sequence[FileEntry] | None,
    *,
    now: datetime,
    is_first: bool,
) -> dict[str, Any]:
    """Return one output's entry; its transfer is made here."""
    place, at = read_place(uri), f"{attempt.workdir.rstrip('/')}/{path}"
    entry: dict[str, Any] = {
        "uri": uri,
        "path": path,
        "location": f"{attempt.system.slug}:{at}",
        "is_copy": not is_first,
        "transfer": None,
        "reason": None,
        **_measured(path, files),
    }
    if files is not None and not entry["is_folder"] and entry["bytes"] is None:
        return entry | {"state": "missing", "reason": f"the job left no file {path}"}
    places = storages_of(attempt.connection)
    if path_here(place, places) == at:
        return entry | {"state": "in_place"}
    item = _item(place, at, places, entry)
    if item is None:
        why = f"the profile of {attempt.system.slug} names no storage from which {place.scheme}:// is reached"
        return entry | {"state": "not_moved", "reason": why}
    wanted = Wanted(
        user_id=task.user_id,
        items=(item,),
        purpose=TransferPurpose.STAGE_OUT if is_first else TransferPurpose.REPLICATE,
        deadline_at=now + DEADLINE,
        task=task,
        attempt=attempt,
    )
    return entry | {"state": "requested", "transfer": new_transfer(wanted, now=now).handle}


def _measured(path: str, files: Sequence[FileEntry] | None) -> dict[str, Any]:
    """Return size and checksum as the site told them; of a folder the sum of its files."""
    listed = files or ()
    one = next((each for each in listed if each.path == path), None)
    if one is not None:
        return {"is_folder": False, "bytes": one.bytes, "sha256": one.sha256}
    below = [each for each in listed if each.path.startswith(f"{path}/")]
    size = sum(each.bytes for each in below) if below else None
    return {"is_folder": bool(below), "bytes": size, "sha256": None}


def _item(place: Place, at: str, places: Sequence[Storage], entry: dict[str, Any]) -> Item | None:
    source = place_for(at, places, like=place)
    if source is None:
        return None
    if entry["is_folder"]:
        source = source.within("")
        place = place if place.is_folder else read_place(f"{place.uri}/")
    elif place.is_folder:
        place = place.within(entry["path"].rpartition("/")[2])
    return Item(source, place, entry["bytes"], None if entry["is_folder"] else entry["sha256"], entry["path"])


def note_moved(transfer: Transfer) -> None:
    """Write into the manifest how the movement of an output ended."""
    # The task that is joined stays unlocked: whoever cancels a transfer does not hold it.
    rows = Manifest.objects.select_for_update(no_key=True, of=("self",)).filter(task__transfers=transfer)
    manifest = rows.first()
    if manifest is None:
        return
    seen = {each["path"]: each for each in transfer.detail.get("seen", ())}
    known = seen.get(read_item(transfer.items[0]).destination.path, {})
    entries = []
    for each in manifest.body.get("outputs", ()):
        if each["transfer"] != transfer.handle:
            entries.append(each)
            continue
        size, sha256 = each["bytes"], each["sha256"]
        moved = {
            "state": transfer.state,
            "reason": transfer.reason or None,
            "bytes": known.get("bytes") if size is None else size,
            "sha256": sha256 or known.get("sha256"),
        }
        entries.append(each | moved)
    manifest.body = {**manifest.body, "outputs": entries}
    manifest.save(update_fields=["body"])
