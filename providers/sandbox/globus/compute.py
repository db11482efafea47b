"""Globus Compute's web service, as far as `globus_sdk.ComputeClientV2/V3` uses it to run functions."""

import json
import re
import time
import uuid
from collections.abc import Callable
from typing import Any

import jsonschema

from providers.sandbox.globus.answer import Answer, Request, compute_refusal, ok
from providers.sandbox.globus.sites import Sites
from providers.sandbox.globus.spec import COMPUTE_SERVER, Endpoint, EndpointState
from providers.sandbox.globus.state import State

LIMIT_BYTES = 10 * 1024 * 1024
_KEPT_S = 1800.0
"""A result that nobody fetched is dropped after that long, as at the hosted service."""

_NEW_TASK = "INSERT INTO task (id, owner, endpoint, doc, status) VALUES (?, ?, ?, ?, 'waiting-for-nodes')"

Route = Callable[[Request, str, str], Answer]


class Compute:
    """The routes of Globus Compute over the stand-in's state."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.sites = Sites(state)
        self._routes: tuple[tuple[str, str, Route], ...] = (
            ("POST", r"/v[23]/functions", self._register),
            ("GET", r"/v2/functions/(?P<id>[^/]+)", self._function),
            ("DELETE", r"/v2/functions/(?P<id>[^/]+)", self._delete_function),
            ("GET", r"/v2/endpoints/(?P<id>[^/]+)", self._endpoint),
            ("GET", r"/v2/endpoints/(?P<id>[^/]+)/status", self._endpoint_status),
            ("POST", r"/v3/endpoints/(?P<id>[^/]+)/submit", self._submit),
            ("POST", r"/v2/batch_status", self._batch_status),
            ("GET", r"/v2/tasks/(?P<id>[^/]+)", self._task),
        )
        self._take_up()

    def answer(self, request: Request) -> Answer:
        """Answer one request."""
        if request.path == "/v2/version":
            least = dict.fromkeys(("min_sdk_version", "min_ep_version", "min_endpoint_version"), "2.0.0")
            every = {"api": "1.40.0", **least}
            return ok(every if request.query.get("service") == "all" else "1.40.0")
        row = self.state.token(request.bearer, kind="access")
        if row is None or row["server"] != COMPUTE_SERVER:
            return compute_refusal(401, "UNAUTHENTICATED", "Credentials are expired. Please re-authenticate")
        most = self.state.setting("limit_per_10s", 0)
        if self.state.note(row["sub"], f"{request.method} {request.path}") > most > 0:
            refusal = compute_refusal(429, "TOO_MANY_REQUESTS", f"more than {most:.0f} requests in 10 s")
            return Answer(429, refusal.content, headers={"Retry-After": "2"})
        if len(request.body) > LIMIT_BYTES:
            return compute_refusal(413, "TASK_PAYLOAD_TOO_LARGE", "the payload is larger than 10 MB")
        for method, pattern, route in self._routes:
            found = re.fullmatch(pattern, request.path)
            if found and method == request.method:
                return route(request, row["sub"], found.groupdict().get("id", ""))
        return compute_refusal(404, "NOT_FOUND", request.path)

    # --- functions --------------------------------------------------------------------------------

    def _register(self, request: Request, sub: str, _: str) -> Answer:
        doc = request.json()
        if not doc.get("function_code") or not doc.get("function_name"):
            return compute_refusal(422, "SEMANTICALLY_INVALID", "function_name and function_code are needed")
        key = str(uuid.uuid4())
        self.state.put("function", key, {**doc, "owner": sub})
        return ok({"function_uuid": key})

    def _may_use(self, function: dict[str, Any] | None, sub: str) -> bool:
        return function is not None and (function["owner"] == sub or bool(function.get("public")))

    def _function(self, request: Request, sub: str, key: str) -> Answer:
        del request
        found = self.state.get("function", key)
        if found is None or not self._may_use(found, sub):
            return compute_refusal(404, "FUNCTION_NOT_FOUND", f"Function {key} could not be resolved")
        shown = {name: found.get(name) for name in ("function_name", "function_code", "description")}
        return ok({"function_uuid": key, **shown, "metadata": found.get("meta")})

    def _delete_function(self, request: Request, sub: str, key: str) -> Answer:
        del request
        found = self.state.get("function", key)
        if found is None or found["owner"] != sub:
            return compute_refusal(404, "FUNCTION_NOT_FOUND", f"Function {key} could not be resolved")
        self.state.drop("function", key)
        return ok({"result": 302})

    # --- endpoints --------------------------------------------------------------------------------

    def _endpoint(self, request: Request, sub: str, key: str) -> Answer:
        del request
        found = self.state.endpoint(key)
        if found is None:
            return compute_refusal(404, "ENDPOINT_NOT_FOUND", f"Endpoint {key} could not be resolved")
        if sub not in found.users:
            return compute_refusal(403, "ENDPOINT_ACCESS_FORBIDDEN", "you may not see this endpoint")
        return ok(
            {
                "uuid": key,
                "name": found.name,
                "display_name": found.name,
                "multi_user": found.user_config_schema is not None,
                "public": False,
                "user_config_schema": found.user_config_schema,
            }
        )

    def _endpoint_status(self, request: Request, sub: str, key: str) -> Answer:
        del request, sub
        found = self.state.endpoint(key)
        if found is None:
            return compute_refusal(404, "ENDPOINT_NOT_FOUND", f"Endpoint {key} could not be resolved")
        is_off = found.state is EndpointState.OFFLINE
        return ok({"status": "offline" if is_off else "online", "details": {}})

    # --- tasks ------------------------------------------------------------------------------------

    def _submit(self, request: Request, sub: str, key: str) -> Answer:
        doc = request.json()
        endpoint = self.state.endpoint(key)
        if endpoint is None:
            return compute_refusal(404, "ENDPOINT_NOT_FOUND", f"Endpoint {key} could not be resolved")
        refused = self._refusal(endpoint, sub, doc)
        if refused is not None:
            return refused
        made: dict[str, list[str]] = {}
        config = doc.get("user_endpoint_config") or {}
        for function_id, payloads in doc["tasks"].items():
            function = self.state.get("function", function_id) or {}
            for payload in payloads:
                task_id = str(uuid.uuid4())
                task = {"function": function["function_code"], "payload": payload, "config": config}
                self.state.run(_NEW_TASK, task_id, sub, key, json.dumps(task))
                self.sites.put(endpoint, sub, config, task_id)
                made.setdefault(function_id, []).append(task_id)
        group = doc.get("task_group_id") or str(uuid.uuid4())
        return ok(
            {"request_id": str(uuid.uuid4()), "task_group_id": group, "endpoint_id": key, "tasks": made}
        )

    def _refusal(self, endpoint: Endpoint, sub: str, doc: dict[str, Any]) -> Answer | None:
        """Return why the endpoint does not take these tasks; None = it does."""
        if not doc.get("tasks"):
            return compute_refusal(400, "INVALID", "no tasks")
        if sub not in endpoint.users:
            said = f"no local user of {endpoint.name} is mapped to this identity"
            return compute_refusal(403, "ENDPOINT_ACCESS_FORBIDDEN", said)
        for function_id in doc["tasks"]:
            if not self._may_use(self.state.get("function", function_id), sub):
                said = f"Function {function_id} could not be resolved"
                return compute_refusal(404, "FUNCTION_NOT_FOUND", said)
            if endpoint.allowed_functions and function_id not in endpoint.allowed_functions:
                said = f"Function {function_id} not permitted on endpoint {endpoint.id}"
                return compute_refusal(403, "FUNCTION_NOT_PERMITTED", said)
        if endpoint.state is EndpointState.OFFLINE:
            return compute_refusal(409, "ENDPOINT_NOT_ONLINE", f"Endpoint {endpoint.id} is not online")
        return _config_refusal(endpoint, doc.get("user_endpoint_config") or {})

    def _batch_status(self, request: Request, sub: str, _: str) -> Answer:
        wanted = [str(key) for key in request.json().get("task_ids", [])]
        found = {key: shown for key in wanted if (shown := self._shown(key, sub)) is not None}
        return ok({"response": "batch", "results": found})

    def _task(self, request: Request, sub: str, key: str) -> Answer:
        del request
        shown = self._shown(key, sub)
        said = f"Task {key} could not be resolved"
        return compute_refusal(404, "TASK_NOT_FOUND", said) if shown is None else ok(shown)

    def _shown(self, key: str, sub: str) -> dict[str, Any] | None:
        rows = self.state.run("SELECT * FROM task WHERE id = ? AND owner = ?", key, sub)
        if not rows:
            return None
        row = rows[0]
        shown = {"task_id": key, "status": row["status"]}
        for name in ("result", "exception", "completion_t"):
            if row[name] is not None:
                shown[name] = row[name]
        if row["details"]:
            shown["details"] = json.loads(row["details"])
        return shown

    def _take_up(self) -> None:
        """After a restart: hand out again what had not ended; drop results that nobody fetched in time."""
        self.state.run(
            "DELETE FROM task WHERE CAST(completion_t AS REAL) < ?",
            time.time() - _KEPT_S,
        )
        open_tasks = "SELECT id, owner, endpoint, doc FROM task WHERE completion_t IS NULL"
        for row in self.state.run(open_tasks):
            endpoint = self.state.endpoint(row["endpoint"])
            if endpoint is not None:
                self.sites.put(endpoint, row["owner"], json.loads(row["doc"]).get("config", {}), row["id"])


def _config_refusal(endpoint: Endpoint, config: dict[str, Any]) -> Answer | None:
    if endpoint.user_config_schema is None:
        return None
    faults = list(jsonschema.Draft202012Validator(endpoint.user_config_schema).iter_errors(config))
    if not faults:
        return None
    return compute_refusal(
        422, "SEMANTICALLY_INVALID", f"Request payload failed validation: {faults[0].message}"
    )
