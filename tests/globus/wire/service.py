"""Globus Compute as the agent meets it: registration, commands, tasks, results and heartbeats by AMQP.

What a client sees stays the stand-in's; only running a task is left to the agent. The forms of messages are
those of `globus_compute_common`, the package that the agent itself uses.
"""

import contextlib
import hashlib
import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pika  # type: ignore[import-untyped]  # it has no types
import pika.exceptions  # type: ignore[import-untyped]  # as above
from globus_compute_common import messagepack
from globus_compute_common.messagepack.message_types import Task

from providers.sandbox.globus.answer import Answer, Request, compute_refusal, ok
from providers.sandbox.globus.compute import Compute
from providers.sandbox.globus.spec import Endpoint
from providers.sandbox.globus.state import State

_NEW_TASK = "INSERT INTO task (id, owner, endpoint, doc, status) VALUES (?, ?, ?, ?, 'waiting-for-nodes')"
_ENDED = "UPDATE task SET status = ?, result = ?, exception = ?, completion_t = ? WHERE id = ?"


class Broker:
    """One publishing connection, and one consuming thread for each queue."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._lock = threading.Lock()
        self._connection = self._open()
        self._channel = self._connection.channel()
        self._channel.exchange_declare("tasks", exchange_type="direct", durable=True)
        for kind in ("results", "heartbeats"):
            self._channel.exchange_declare(kind, exchange_type="topic", durable=True)
            self._channel.queue_declare(kind, durable=True)
            self._channel.queue_bind(kind, kind, f"*.{kind}")

    def _open(self) -> Any:  # pika has no types
        parameters = pika.URLParameters(self.url)
        parameters.heartbeat = 0
        return pika.BlockingConnection(parameters)

    def queue(self, name: str, exchange: str | None = None) -> None:
        """Make a durable queue, bound to an exchange under its own name."""
        with self._lock:
            self._channel.queue_declare(name, durable=True)
            if exchange:
                self._channel.queue_bind(name, exchange, name)

    def publish(self, exchange: str, key: str, body: bytes, **properties: Any) -> None:
        """Send one message that outlives a restart of the broker."""
        with self._lock:
            self._channel.basic_publish(
                exchange, key, body, pika.BasicProperties(delivery_mode=2, **properties)
            )

    def consume(self, queue: str, hear: Callable[[bytes], None]) -> None:
        """Call `hear` with each message of a queue, in a thread of its own."""

        def loop() -> None:
            channel = self._open().channel()
            with contextlib.suppress(pika.exceptions.AMQPError):  # the broker ends before we do
                for method, _properties, body in channel.consume(queue):
                    hear(body)
                    channel.basic_ack(method.delivery_tag)

        threading.Thread(target=loop, daemon=True, name=f"consume-{queue}").start()


class WireCompute(Compute):
    """The stand-in's Compute whose endpoints are agents."""

    def __init__(self, state: State, broker: Broker, usernames: Mapping[str, str]) -> None:
        super().__init__(state)
        self.broker, self.usernames = broker, usernames
        self.agents: dict[str, dict[str, Any]] = {}
        """What each agent registered, by endpoint."""
        self.alive: dict[str, dict[str, Any]] = {}
        """The newest heartbeat, by endpoint of an agent or of one of its users."""
        self.waiting: dict[str, list[str]] = {}
        """Tasks sent, by the user's endpoint."""
        self._routes = (
            ("POST", r"/v3/endpoints", self._agent_registers),
            ("PUT", r"/v3/endpoints/(?P<id>[^/]+)", self._agent_registers),
            *self._routes,
        )
        broker.consume("results", self._result)
        broker.consume("heartbeats", self._heartbeat)

    def _queue_for(self, endpoint: str, kind: str) -> dict[str, Any]:
        if kind == "tasks":
            return {"connection_url": self.broker.url, "exchange": kind, "queue": f"{endpoint}.tasks"}
        publishing = {
            "exchange": kind,
            "routing_key": f"{endpoint}.{kind}",
            "mandatory": True,
            "properties": {"delivery_mode": 2},
        }
        return {
            "connection_url": self.broker.url,
            "exchange": kind,
            "queue": kind,
            "queue_publish_kwargs": publishing,
        }

    def _agent_registers(self, request: Request, sub: str, key: str) -> Answer:
        doc = request.json()
        endpoint_id = key or str(uuid.uuid4())
        metadata = doc.get("metadata") or {}
        self.agents[endpoint_id] = doc | {"owner": sub}
        known = self.state.endpoint(endpoint_id)
        endpoint = Endpoint(
            id=endpoint_id,
            name=doc["endpoint_name"],
            users=known.users if known else {},
            user_config_schema=metadata.get("user_config_schema"),
            allowed_functions=tuple(doc.get("allowed_functions") or ()),
        )
        self.state.know(endpoints=[endpoint])
        self.broker.queue(f"{endpoint_id}.commands")
        commands = {"connection_url": self.broker.url, "queue": f"{endpoint_id}.commands"}
        beats = self._queue_for(endpoint_id, "heartbeats")
        return ok(
            {
                "endpoint_id": endpoint_id,
                "command_queue_info": commands,
                "heartbeat_queue_info": beats,
                "warnings": [],
            }
        )

    def _submit(self, request: Request, sub: str, key: str) -> Answer:
        doc = request.json()
        endpoint = self.state.endpoint(key)
        if endpoint is None:
            return compute_refusal(404, "ENDPOINT_NOT_FOUND", f"Endpoint {key} could not be resolved")
        refused = self._refusal(endpoint, sub, doc)
        if refused is not None:
            return refused
        config = doc.get("user_endpoint_config") or {}
        child = self._start(key, sub, config, doc.get("user_runtime") or {})
        made: dict[str, list[str]] = {}
        for function_id, payloads in doc["tasks"].items():
            function = self.state.get("function", function_id) or {}
            for payload in payloads:
                task_id = str(uuid.uuid4())
                kept = json.dumps({"function": "", "payload": "", "config": config})
                self.state.run(_NEW_TASK, task_id, sub, key, kept)
                self.waiting.setdefault(child, []).append(task_id)
                self._send(child, task_id, function_id, _packed(function) + payload, doc)
                made.setdefault(function_id, []).append(task_id)
        group = doc.get("task_group_id") or str(uuid.uuid4())
        return ok(
            {"request_id": str(uuid.uuid4()), "task_group_id": group, "endpoint_id": key, "tasks": made}
        )

    def _send(self, child: str, task_id: str, function_id: str, buffer: str, doc: Mapping[str, Any]) -> None:
        headers = {
            "function_uuid": function_id,
            "task_uuid": task_id,
            "resource_specification": json.dumps(doc.get("resource_specification")),
        }
        if doc.get("result_serializers"):
            headers["result_serializers"] = doc["result_serializers"]
        body = messagepack.pack(Task(task_id=task_id, task_buffer=buffer))
        self.broker.publish("tasks", f"{child}.tasks", body, headers=headers)

    def _start(self, key: str, sub: str, config: Mapping[str, Any], runtime: Mapping[str, Any]) -> str:
        """Have the agent start the user's own endpoint, unless it runs; return its id."""
        digest = hashlib.sha256(json.dumps([key, sub, config], sort_keys=True).encode()).hexdigest()
        child = str(uuid.UUID(digest[:32]))
        self.broker.queue(f"{child}.tasks", "tasks")
        queues = {
            f"{kind.removesuffix('s')}_queue_info": self._queue_for(child, kind)
            for kind in ("tasks", "results", "heartbeats")
        }
        name = self.usernames[sub]
        person = {"sub": sub, "id": sub, "username": name, "name": name, "email": name, "status": "used"}
        command = {
            "command": "cmd_start_endpoint",
            "args": [],
            "kwargs": {
                "name": f"uep.{key}.{digest[:16]}",
                "amqp_creds": {"endpoint_id": child, **queues},
                "user_opts": dict(config),
                "user_runtime": dict(runtime),
            },
            "globus_username": name,
            "globus_effective_identity": sub,
            "globus_identity_set": [person],
        }
        body = json.dumps(command).encode()
        self.broker.publish(
            "", f"{key}.commands", body, content_type="application/json", timestamp=int(time.time())
        )
        return child

    def _result(self, body: bytes) -> None:
        result: Any = messagepack.unpack(body)  # one of many kinds of message
        values = ("failed", None, result.data) if result.is_error else ("success", result.data, None)
        self.state.run(_ENDED, *values, str(time.time()), str(result.task_id))

    def _heartbeat(self, body: bytes) -> None:
        report: Any = messagepack.unpack(body)  # as above
        state = dict(report.global_state)
        self.alive[str(report.endpoint_id)] = state
        if state.get("error"):  # the user's endpoint did not start, so nobody runs what waits for it
            for task_id in self.waiting.pop(str(report.endpoint_id), []):
                self.state.run(_ENDED, "failed", None, str(state["error"]), str(time.time()), task_id)


def _packed(function: Mapping[str, Any]) -> str:
    """Return a function's buffer; source text is put into the form of `PureSourceTextInspect`."""
    code = str(function["function_code"])
    if function.get("serialized") is not False:
        return code
    buffer = f"st\n{function['function_name']}:{code}"
    return f"{len(buffer)}\n{buffer}"
