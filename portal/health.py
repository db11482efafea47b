"""Two questions a supervisor or load balancer asks: is the process up, and can Facet do its work?"""

from collections.abc import Callable
from functools import cache
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from redis import RedisError

from portal import demo_file, heartbeat
from portal.celery import has_chores

WORKER_SILENT_S = 15
CLOCK_SILENT_S = 30
CYCLE_OLD_S = 60

Part = dict[str, Any]


@require_safe
@never_cache
def healthz(_request: HttpRequest) -> HttpResponse:
    """Say that the process is up and answers; touches nothing else."""
    return JsonResponse({"status": "ok"})


@require_safe
@never_cache
def readyz(_request: HttpRequest) -> HttpResponse:
    """Say part by part whether Facet can work; 503 unless every part is ok."""
    answered = {name: _asked(question) for name, question in PARTS.items()}
    ready = all(part["ok"] for part in answered.values())
    return JsonResponse({"ready": ready, "parts": answered}, status=200 if ready else 503)


def _asked(question: Callable[[], Part]) -> Part:
    try:
        return question()
    except (DatabaseError, RedisError, TimeoutError) as error:
        return {"ok": False, "why": _first_line(error)}
    except Exception as error:  # noqa: BLE001  # the pool raises its own kinds; a probe must answer whatever broke
        return {"ok": False, "why": f"{type(error).__name__}: {_first_line(error)}"}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def database() -> Part:
    """Ask PostgreSQL for its version."""
    with connection.cursor() as cursor:
        cursor.execute("select current_setting('server_version')")
        return {"ok": True, "version": cursor.fetchone()[0]}


def redis() -> Part:
    """Ask Redis for a pong."""
    return {"ok": bool(heartbeat.redis_client().ping())}


@cache
def _all_applied() -> bool:
    return True


def migrations() -> Part:
    """Count the migrations that the code has and the database lacks; once none is missing, none will be."""
    if _all_applied.cache_info().currsize:
        return {"ok": True, "missing": 0}
    executor = MigrationExecutor(connection)
    missing = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    if not missing:
        _all_applied()
    return {"ok": missing == 0, "missing": missing}


def _heard(name: str, silent_s: float) -> Part:
    age_s = heartbeat.age(name)
    if age_s is None:
        return {"ok": False, "age_s": None, "why": "never heard"}
    fresh = age_s <= silent_s
    return {"ok": fresh, "age_s": round(age_s, 1)} | (
        {} if fresh else {"why": f"silent for over {silent_s} s"}
    )


def control_worker() -> Part:
    """Ask when the worker of the control queue was last heard."""
    return _heard(heartbeat.CONTROL, WORKER_SILENT_S)


def default_worker() -> Part:
    """Ask when the worker of the default queue was last heard."""
    return _heard(heartbeat.DEFAULT, WORKER_SILENT_S)


def clock() -> Part:
    """Ask when a tick of the clock last went through the control queue."""
    return _heard(heartbeat.CLOCK, CLOCK_SILENT_S)


def control_cycle() -> Part:
    """Ask how old the last full control cycle is; without chores there is none to wait for."""
    if not has_chores():
        return {"ok": True, "age_s": None, "why": "no chores are installed"}
    return _heard(heartbeat.CONTROL_CYCLE, CYCLE_OLD_S)


def demo() -> Part:
    """Ask whether the demo's users are published yet; the supervisor does it once all else is ok."""
    waiting = demo_file.is_waiting(settings.DATA_DIR)
    return {"ok": not waiting} | ({"why": "demo.json is not published yet"} if waiting else {})


PARTS: dict[str, Callable[[], Part]] = {
    "database": database,
    "redis": redis,
    "migrations": migrations,
    "control_worker": control_worker,
    "default_worker": default_worker,
    "clock": clock,
    "control_cycle": control_cycle,
    "demo": demo,
}
