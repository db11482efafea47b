"""Which figures come from which view of schema `metrics`; one query for each source, each cheap. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """One query; the columns named in `figures` become metrics, those in `labels` their labels."""

    name: str
    sql: str
    labels: tuple[str, ...]
    figures: Mapping[str, tuple[str, str]]
    """Column to (metric without prefix, what it means); a row without a value is left out."""


SOURCES = (
    Source(
        "tasks",
        "SELECT state, tasks, oldest_s FROM metrics.task_states",
        ("state",),
        {
            "tasks": ("tasks_open", "Tasks that have not ended."),
            "oldest_s": ("tasks_open_oldest_seconds", "Age of the oldest open task in this state."),
        },
    ),
    Source(
        "outcomes",
        "SELECT state, cause, tasks FROM metrics.recent_outcomes",
        ("state", "cause"),
        {"tasks": ("tasks_finished_15m", "Tasks that ended within the last 15 minutes.")},
    ),
    Source(
        "attempts",
        "SELECT system, state, attempts, oldest_look_s FROM metrics.attempt_states",
        ("system", "state"),
        {
            "attempts": ("attempts_open", "Attempts that have not ended."),
            "oldest_look_s": (
                "attempts_open_oldest_look_seconds",
                "Since the scheduler last told of the attempt that was not told of for longest.",
            ),
        },
    ),
    Source(
        "due",
        "SELECT kind, scheduled, due, lag_s FROM metrics.due",
        ("kind",),
        {
            "scheduled": ("work_scheduled", "Rows that will be looked at again."),
            "due": ("work_due", "Rows that should have been looked at by now."),
            "lag_s": ("work_lag_seconds", "How long the first of these has been due."),
        },
    ),
    Source(
        "systems",
        "SELECT system, (is_enabled AND health IN ('online', 'degraded'))::int AS up,"
        " is_enabled::int AS enabled, age_s, consecutive_failures FROM metrics.systems",
        ("system",),
        {
            "up": ("system_up", "1: takes work (enabled, online or degraded)."),
            "enabled": ("system_enabled", "1: not disabled by an administrator."),
            "age_s": ("system_snapshot_age_seconds", "Since the last probe that succeeded."),
            "consecutive_failures": ("system_probe_failures", "Probes that failed in a row."),
        },
    ),
    Source(
        "capacity",
        "SELECT system, gpus, gpus_free, nodes_usable, running, pending FROM metrics.free_capacity",
        ("system",),
        {
            "gpus": ("system_gpus", "GPUs that the last good probe saw."),
            "gpus_free": ("system_gpus_free", "GPUs free at the last good probe."),
            "nodes_usable": ("system_nodes_usable", "Nodes that take work."),
            "running": ("system_jobs_running", "Everybody's running jobs."),
            "pending": ("system_jobs_pending", "Everybody's pending jobs."),
        },
    ),
    Source(
        "circuits",
        "SELECT system, state, 1 AS one FROM metrics.circuits",
        ("system", "state"),
        {"one": ("system_circuit", "1 at the state of its circuit: closed, open or half_open.")},
    ),
    Source(
        "connections",
        "SELECT system, kind, state, connections FROM metrics.connections",
        ("system", "kind", "state"),
        {"connections": ("connections", "Users' ways into systems.")},
    ),
    Source(
        "budgets",
        "SELECT count(DISTINCT budget) AS open,"
        " count(DISTINCT budget) FILTER (WHERE exhausted_at IS NOT NULL) AS exhausted"
        " FROM metrics.budgets WHERE closed_at IS NULL",
        (),
        {
            "open": ("budgets_open", "Budgets that bind."),
            "exhausted": ("budgets_exhausted", "Of these, those in which nothing more fits."),
        },
    ),
    Source(
        "approvals",
        "SELECT count(*) AS pending, coalesce(max(waited_s), 0) AS waited_s"
        " FROM metrics.approvals WHERE state = 'pending'",
        (),
        {
            "pending": ("approvals_pending", "Placements that wait for a person."),
            "waited_s": ("approvals_pending_oldest_seconds", "How long the first of them has waited."),
        },
    ),
    Source(
        "events",
        "SELECT seq, extract(epoch FROM now() - at)::float AS age_s FROM metrics.events"
        " ORDER BY seq DESC LIMIT 1",
        (),
        {
            "seq": ("events_last_seq", "Place of the newest event in the log."),
            "age_s": ("events_last_age_seconds", "Since the newest event."),
        },
    ),
    Source(
        "subscriptions",
        "SELECT target, state, count(*) AS subscriptions, max(behind) AS behind"
        " FROM metrics.subscriptions GROUP BY target, state",
        ("target", "state"),
        {
            "subscriptions": ("subscriptions", "Subscriptions to events."),
            "behind": ("subscriptions_behind_events", "Events that the slowest of them has still to take."),
        },
    ),
    Source(
        "deliveries",
        "SELECT state, count(*) AS deliveries FROM metrics.deliveries GROUP BY state",
        ("state",),
        {"deliveries": ("deliveries", "Webhook deliveries of the last 30 days.")},
    ),
    Source(
        "delays",
        "SELECT quantile, percentile_cont(quantile) WITHIN GROUP (ORDER BY delay_s) AS delay_s"
        " FROM metrics.deliveries, (VALUES (0.5), (0.95)) AS wanted (quantile)"
        " WHERE delivered_at > now() - interval '15 minutes' GROUP BY quantile",
        ("quantile",),
        {
            "delay_s": (
                "delivery_delay_15m_seconds",
                "From event to receiver, of what was delivered within the last 15 minutes.",
            )
        },
    ),
)
