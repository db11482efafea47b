"""Globus Transfer v0.10, as far as moving needs it: collections are directories, bytes are really copied."""

import hashlib
import json
import shutil
import threading
import time
import uuid
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from providers.sandbox.globus.answer import Answer, Request
from providers.sandbox.globus.spec import TRANSFER_SCOPE, TRANSFER_SERVER, Collection, MoveFault
from providers.sandbox.globus.state import State

RETRY_S = 0.3
"""A fault is tried again after that long, until the deadline."""
_DEADLINE_S = 86_400.0
_BLOCK = 1024 * 1024


class Refused(Exception):
    """The request is answered with an error."""

    def __init__(self, status: int, code: str, said: str, **more: object) -> None:
        super().__init__(said)
        self.status, self.code, self.more = status, code, more


class Fault(Exception):
    """Something that a later try may get over."""


class Ended(Exception):
    """The move is over."""

    def __init__(self, code: str, said: str) -> None:
        super().__init__(said)
        self.code = code


class Transfer:
    """The routes of Globus Transfer over the stand-in's state, and the moves themselves."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        for doc in state.every("move"):
            if doc["status"] == "ACTIVE":
                self._start(doc["task_id"])  # what a restart interrupted

    def answer(self, request: Request) -> Answer:
        """Answer one request."""
        try:
            sub, client = self._caller(request)
            content = self._route(request, sub, client)
        except Refused as refused:
            body = {
                "code": refused.code,
                "message": str(refused),
                "request_id": uuid.uuid4().hex[:9],
                "resource": request.path.removeprefix("/v0.10"),
                **refused.more,
            }
            return Answer(refused.status, json.dumps(body).encode())
        return Answer(200, json.dumps(content).encode())

    def _caller(self, request: Request) -> tuple[str, str]:
        """Return whose token it is, and which application's."""
        row = self.state.token(request.bearer, kind="access")
        if row is None or row["server"] != TRANSFER_SERVER:
            raise Refused(401, "AuthenticationFailed", "Token is not active")
        self.state.note(row["sub"], f"{request.method} {request.path}")
        return row["sub"], row["client"]

    def _route(self, request: Request, sub: str, client: str) -> dict[str, Any]:
        match (request.method, *request.path.strip("/").split("/")[1:]):
            case ("GET", "submission_id"):
                return {"DATA_TYPE": "submission_id", "value": str(uuid.uuid4())}
            case ("POST", "transfer"):
                return self._submit(request.json(), sub, client)
            case ("GET", "task_list"):
                return self._list(request.query.get("filter", ""), sub)
            case ("GET", "task", key):
                return self._shown(self._mine(key, sub))
            case ("POST", "task", key, "cancel"):
                return self._cancel(key, sub)
        raise Refused(404, "NotFound", "no such route")

    # --- requests ---------------------------------------------------------------------------------

    def _submit(self, doc: dict[str, Any], sub: str, client: str) -> dict[str, Any]:
        if not doc.get("DATA") or not doc.get("submission_id"):
            raise Refused(400, "ClientError.BadRequest", "items and submission_id are needed")
        ends = [self._collection(doc[name], sub) for name in ("source_endpoint", "destination_endpoint")]
        self._ask_for_consent(ends, sub, client)
        for item in doc["DATA"]:
            for collection, path in zip(ends, (item["source_path"], item["destination_path"]), strict=True):
                if _place(collection, path, sub) is None:
                    raise Refused(403, "EndpointPermissionDenied", f"Path not allowed: {path}")
        with self._lock:
            known = self.state.get("submission", doc["submission_id"])
            key = known["task_id"] if known else str(uuid.uuid4())
            if known is None:
                self._keep_new(key, doc, sub)
        return {
            "DATA_TYPE": "transfer_result",
            "code": "Duplicate" if known else "Accepted",
            "message": "",
            "submission_id": doc["submission_id"],
            "task_id": key,
        }

    def _keep_new(self, key: str, doc: dict[str, Any], sub: str) -> None:
        until = _instant(doc["deadline"]) if doc.get("deadline") else time.time() + _DEADLINE_S
        move = {
            "task_id": key,
            "owner": sub,
            "request": doc,
            "status": "ACTIVE",
            "nice": "OK",
            "why": "",
            "until": until,
            "files": 0,
            "moved": 0,
            "skipped": 0,
            "bytes": 0,
            "faults": 0,
            "fatal": None,
            "finished_at": None,
            "cancel": False,
            "requested_at": time.time(),
        }
        self.state.put("move", key, move)
        self.state.put("submission", doc["submission_id"], {"task_id": key})
        self._start(key)

    def _collection(self, key: str, sub: str) -> Collection:
        doc = self.state.get("collection", key)
        if doc is None:
            raise Refused(404, "EndpointNotFound", f"No such endpoint '{key}'")
        collection = Collection.model_validate(doc)
        if collection.identities and sub not in collection.identities:
            raise Refused(403, "PermissionDenied", "You do not have permission to access this collection")
        return collection

    def _ask_for_consent(self, ends: list[Collection], sub: str, client: str) -> None:
        given = (self.state.get("consent", f"{sub}/{client}") or {"scopes": []})["scopes"]
        wanted = [f"https://auth.globus.org/scopes/{end.id}/data_access" for end in ends if end.needs_consent]
        missing = [f"{TRANSFER_SCOPE}[*{scope}]" for scope in wanted if scope not in given]
        if missing:
            raise Refused(
                403, "ConsentRequired", "Missing required data_access consent", required_scopes=missing
            )

    def _mine(self, key: str, sub: str) -> dict[str, Any]:
        doc = self.state.get("move", key)
        if doc is None or doc["owner"] != sub:
            raise Refused(404, "TaskNotFound", f"No task found for id '{key}'")
        return doc

    def _list(self, filters: str, sub: str) -> dict[str, Any]:
        wanted = filters.removeprefix("task_id:").split(",") if filters.startswith("task_id:") else None
        found = [
            self._shown(doc)
            for doc in self.state.every("move")
            if doc["owner"] == sub and (wanted is None or doc["task_id"] in wanted)
        ]
        return {"DATA_TYPE": "task_list", "offset": 0, "limit": 1000, "total": len(found), "DATA": found}

    def _cancel(self, key: str, sub: str) -> dict[str, Any]:
        doc = self._mine(key, sub)
        if doc["status"] != "ACTIVE":
            return {"DATA_TYPE": "result", "code": "TaskComplete", "message": "The task completed before."}
        self._change(key, cancel=True)
        return {"DATA_TYPE": "result", "code": "Canceled", "message": "The task has been cancelled."}

    def _shown(self, doc: dict[str, Any]) -> dict[str, Any]:
        is_active = doc["status"] == "ACTIVE"
        finished = doc["finished_at"]
        return {
            "DATA_TYPE": "task",
            "type": "TRANSFER",
            "task_id": doc["task_id"],
            "status": doc["status"],
            "owner_id": doc["owner"],
            "label": doc["request"].get("label"),
            "is_paused": False,
            "files": doc["files"],
            "files_transferred": doc["moved"],
            "files_skipped": doc["skipped"],
            "bytes_transferred": doc["bytes"],
            "faults": doc["faults"],
            "fatal_error": doc["fatal"],
            "nice_status": doc["nice"] if is_active else None,
            "nice_status_details": doc["why"] if is_active else None,
            "completion_time": datetime.fromtimestamp(finished, UTC).isoformat() if finished else None,
        }

    # --- the moves --------------------------------------------------------------------------------

    def _start(self, key: str) -> None:
        thread = threading.Thread(target=self._move, args=(key,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _change(self, key: str, **columns: object) -> None:
        with self._lock:
            doc = self.state.get("move", key) or {}
            self.state.put("move", key, doc | columns)

    def _move(self, key: str) -> None:
        try:
            self._work(key)
            self._change(key, status="SUCCEEDED", nice="OK", finished_at=time.time())
        except Ended as ended:
            if not self._stopped.is_set():
                fatal = {"code": ended.code, "description": str(ended)}
                self._change(key, status="FAILED", fatal=fatal, finished_at=time.time())

    def _work(self, key: str) -> None:
        doc = self.state.get("move", key) or {}
        request, owner = doc["request"], doc["owner"]
        ends = [
            Collection.model_validate(self.state.get("collection", request[name]))
            for name in ("source_endpoint", "destination_endpoint")
        ]
        files: list[tuple[Path, Path]] = []
        for item in request["DATA"]:
            source = _place(ends[0], item["source_path"], owner)
            target = _place(ends[1], item["destination_path"], owner)
            assert source is not None  # noqa: S101  # looked at when it was submitted
            assert target is not None  # noqa: S101  # as above
            files += self._until_it_works(key, partial(_pairs, source, target))
            _compare(source, item.get("external_checksum"))
        self._change(key, files=len(files))
        for source, target in files:
            self._until_it_works(key, partial(self._copy, key, source, target))

    def _until_it_works(self, key: str, step: Any) -> Any:
        while True:
            doc = self.state.get("move", key) or {}
            if self._stopped.is_set() or doc["cancel"]:
                raise Ended("CANCELED", "canceled by user")
            if time.time() > doc["until"]:
                raise Ended("EXPIRED", doc["why"] or "the deadline passed")
            try:
                done = step()
            except (Fault, OSError) as error:
                why = f"{type(error).__name__}: {error}"
                nice = "FILE_NOT_FOUND" if isinstance(error, FileNotFoundError) else "ENDPOINT_ERROR"
                self._change(key, faults=doc["faults"] + 1, nice=nice, why=why)
                self._stopped.wait(RETRY_S)
                continue
            self._change(key, nice="OK", why="")
            return done

    def _copy(self, key: str, source: Path, target: Path) -> None:
        doc = self.state.get("move", key) or {}
        if target.exists() and _checksum(source) == _checksum(target):
            self._change(key, skipped=doc["skipped"] + 1)
            return
        fault = self.state.move_fault()
        if fault is MoveFault.QUOTA:
            raise Ended("QUOTA_EXCEEDED", f"Disk quota exceeded: {target.name}")
        if fault is MoveFault.DENIED:
            raise PermissionError(f"Permission denied: {target.name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(target.name + ".part")
        shutil.copy2(source, draft)
        if fault is MoveFault.CORRUPT:
            draft.write_bytes(b"\0corrupt" + draft.read_bytes()[8:])
        if _checksum(source) != _checksum(draft):
            draft.unlink()
            raise Fault(f"checksum of {target.name} differs after the transfer")
        draft.replace(target)
        self._change(key, moved=doc["moved"] + 1, bytes=doc["bytes"] + source.stat().st_size)

    def stop(self) -> None:
        """Interrupt every move; a restart goes on with it."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(5)


def _instant(text: str) -> float:
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _place(collection: Collection, path: str, sub: str) -> Path | None:
    """Return the real file of a path as a person sees it; None = outside of what they are shown."""
    root = Path(collection.root_for(sub)).resolve()
    found = (root / path.lstrip("/")).resolve()
    return found if found == root or root in found.parents else None


def _compare(source: Path, declared: str | None) -> None:
    if declared is not None and source.is_file() and _checksum(source) != declared:
        said = f"{source.name} is not the declared file: its checksum is another"
        raise Ended("VERIFY_CHECKSUM", said)


def _pairs(source: Path, target: Path) -> list[tuple[Path, Path]]:
    if not source.exists():
        raise FileNotFoundError(f"No such file or directory: {source.name}")
    if source.is_file():
        return [(source, target)]
    target.mkdir(parents=True, exist_ok=True)
    return [(path, target / path.relative_to(source)) for path in sorted(source.rglob("*")) if path.is_file()]


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
