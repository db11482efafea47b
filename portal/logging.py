"""Structured logs on standard error: aligned lines for people, or one JSON object a line."""

import logging
from typing import Any, Literal

import structlog
import structlog.tracebacks

_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
]

_TRACEBACKS = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)
"""Without the values of local variables: they may hold a token."""


def logging_config(*, level: str, form: Literal["console", "json"]) -> dict[str, Any]:
    """Return the dictConfig of a process, and set structlog up to go through it.

    Args:
        level: least level logged by our own modules, e.g. "info".
        form: "console" for people, "json" for machines.
    """
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    logging.captureWarnings(form == "json")  # else they are lines of their own kind among ours
    last: list[Any] = (
        [_TRACEBACKS, structlog.processors.JSONRenderer()]
        if form == "json"
        else [structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)]
    )
    ours = {name: {"level": level.upper()} for name in ("portal", "orchestrator", "federation", "providers")}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "structured": {
                "()": structlog.stdlib.ProcessorFormatter,
                "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
                "foreign_pre_chain": _SHARED,
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "structured"}},
        "root": {"handlers": ["stderr"], "level": "WARNING"},
        "loggers": {
            **ours,
            "celery": {"level": "INFO"},
            # A line per chore per second tells nobody anything; failures are logged at higher levels.
            **{
                name: {"level": "WARNING"}
                for name in ("celery.beat", "celery.app.trace", "celery.worker.strategy")
            },
            "uvicorn.access": {"level": "WARNING", "handlers": [], "propagate": True},
            "uvicorn": {"level": "INFO", "handlers": [], "propagate": True},
            "django.request": {"level": "ERROR"},
        },
    }
