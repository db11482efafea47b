"""What goes over Globus Compute's wire: source text out, JSON both ways, nothing that could execute here.

The SDK's serializer is loaded at the first use: it costs 0.9 s of CPU and 55 MB.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from providers.errors import InvalidInput, UnparsableOutput
from providers.links import site_function
from providers.links.globus_errors import LIMIT_BYTES
from providers.types import Batch, BatchReply

RESULTS_AS = "globus_compute_sdk.serialize.concretes.JSONData"
"""Results are asked for in this form only: any other could run code in our process."""
FUNCTION_NAME = "run_batch"
_SOURCE = Path(site_function.__file__)


@cache
def _serializer() -> Any:
    """Return the SDK's serializer, narrowed to source text and JSON."""
    concretes = import_module("globus_compute_sdk.serialize.concretes")
    facade = import_module("globus_compute_sdk.serialize")
    code, data = concretes.PureSourceTextInspect(), concretes.JSONData()
    allowed = [concretes.JSONData, concretes.PureSourceTextInspect]
    return facade.ComputeSerializer(
        strategy_code=code, strategy_data=data, allowed_deserializer_types=allowed
    )


@cache
def source_digest() -> str:
    """Return the SHA-256 of the function's source; another one has to be registered anew."""
    return hashlib.sha256(_SOURCE.read_bytes()).hexdigest()


def function_document(*, public: bool = False) -> dict[str, Any]:
    """Return the body that registers our one function."""
    serializer = _serializer()
    code = serializer.pack_buffers([serializer.serialize(site_function.run_batch)])
    document: dict[str, Any] = {
        "function_name": FUNCTION_NAME,
        "function_code": code,
        "description": "Facet: run a short list of argv commands and file reads, answer with JSON.",
        "serialized": True,
        "meta": {"python_version": "3.6", "serde_identifier": "st"},
    }
    return document | ({"public": True} if public else {})


def payload(batch: Batch, *, not_after: float) -> str:
    """Return the packed arguments of one call.

    Args:
        batch: what to run.
        not_after: epoch seconds by the site's clock after which nothing of it may run any more.

    Raises:
        InvalidInput: it is larger than the service carries.
    """
    serializer = _serializer()
    request = {**batch.model_dump(mode="json"), "not_after": not_after}
    buffers = [serializer.serialize([request]), serializer.serialize({})]
    packed: str = serializer.pack_buffers(buffers)
    if len(packed.encode()) > LIMIT_BYTES:
        raise InvalidInput(
            f"The request is larger than the {LIMIT_BYTES >> 20} MB that Globus Compute carries.",
            remediation="Shorten the script, or move large input as data.",
            bytes=len(packed.encode()),
        )
    return packed


def submission(
    function_id: str, packed: str, *, user_endpoint_config: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the body that submits one call."""
    body: dict[str, Any] = {
        "create_queue": False,
        "tasks": {function_id: [packed]},
        "result_serializers": [RESULTS_AS],
    }
    if user_endpoint_config:
        # One process at the site per distinct text: keep it canonical.
        body["user_endpoint_config"] = json.loads(json.dumps(user_endpoint_config, sort_keys=True))
    return body


def read_result(buffer: str, endpoint: str) -> BatchReply:
    """Return the reply in a result.

    Raises:
        UnparsableOutput: it is not JSON (and was therefore not even opened), or no reply of ours.
    """
    errors = import_module("globus_compute_sdk.errors")
    try:
        content = _serializer().deserialize(buffer)
    except (errors.DeserializationError, ValueError, TypeError) as error:
        raise UnparsableOutput(
            f"The endpoint {endpoint} answered in a form that Facet does not open: only JSON is taken.",
            remediation="Nothing of it was run. Tell the site's administrators; Facet asked for JSON.",
            endpoint=endpoint,
        ) from error
    try:
        return BatchReply.model_validate(content)
    except ValidationError as error:
        raise UnparsableOutput(
            f"The answer of endpoint {endpoint} is no batch reply.", endpoint=endpoint
        ) from error
