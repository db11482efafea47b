"""Which request a task came with, for the log: bound around all that is done about a task or an attempt."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from structlog.contextvars import bound_contextvars, get_contextvars

from orchestrator.models import Attempt, Task

P = ParamSpec("P")
R = TypeVar("R")


def request_id() -> str:
    """Return the id of the request that is being answered; empty where there is none."""
    return str(get_contextvars().get("request_id", ""))[:64]


@contextmanager
def about(task: Task, attempt: Attempt | None = None) -> Iterator[None]:
    """Have all that is logged meanwhile name the task, the attempt, and the request it came with."""
    known = {"task": task.handle}
    if attempt is not None:
        known["attempt"] = attempt.handle
    if task.request_id:
        known["request_id"] = task.request_id
    with bound_contextvars(**known):
        yield


def about_attempt(
    function: Callable[Concatenate[Attempt, P], R],
) -> Callable[Concatenate[Attempt, P], R]:
    """Run a function within `about` its first argument."""

    @wraps(function)
    def traced(attempt: Attempt, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with about(attempt.task, attempt):
            return function(attempt, *args, **kwargs)

    return traced
