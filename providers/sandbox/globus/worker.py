"""A worker at a stand-in's site: one process of one user and configuration, in the environment of that site.

Started as `python -I -S worker.py`; one JSON object a line on stdin and stdout. Source text and JSON, the
only forms Facet uses, are opened here without the SDK, so that a worker starts in 0.05 s and holds 12 MB; the
tests hold both ends against the SDK's own serializer. Anything else is refused, as an endpoint with a list of
allowed forms would.
"""

import json
import os
import sys
import traceback
from typing import Any

LIMIT = 10 * 1024 * 1024


class MaxResultSizeExceeded(Exception):
    """The result is larger than the service carries."""


class DeserializationError(Exception):
    """A buffer is in a form that this worker does not open."""


def unpack(packed: str) -> list[str]:
    """Return the buffers of: length, line feed, buffer, one after another."""
    found = []
    while packed:
        length, _, rest = packed.partition("\n")
        found.append(rest[: int(length)])
        packed = rest[int(length) :]
    return found


def opened(buffer: str) -> Any:  # whatever was sent
    """Return what a buffer holds: a function from source text, or a JSON value."""
    form, body = buffer[:3], buffer[3:]
    if form == "11\n":
        return json.loads(body)
    if form == "st\n":
        name, _, source = body.partition(":")
        scope: dict[str, Any] = {}
        exec(compile(source, "<function>", "exec"), scope)  # noqa: S102  # what an endpoint is for
        return scope[name]
    raise DeserializationError(f"Invalid payload header {form!r}")


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Run one task and return its result or its traceback."""
    details = {"python_version": sys.version.split()[0], "os": sys.platform}
    if task.get("dies"):
        os._exit(9)
    try:
        function, args, kwargs = (opened(buffer) for buffer in unpack(task["function"] + task["payload"]))
        result = "11\n" + json.dumps(function(*args, **kwargs))
        _fits(result)
    except BaseException:  # noqa: BLE001  # whatever the task raised is its answer
        return {"exception": traceback.format_exc(), "details": details}
    return {"result": result, "details": details}


def _fits(result: str) -> None:
    if len(result) > LIMIT:
        raise MaxResultSizeExceeded(f"{len(result)} bytes, limit {LIMIT}")


def main() -> None:
    """Take tasks until stdin ends; what a task prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    tasks = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for line in tasks:
        answers.write(json.dumps(run(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
