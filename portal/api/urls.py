"""Every route under /api/v1, from registry and resources; a trailing slash is welcome, never needed."""

from collections.abc import Callable
from typing import Any

from django.urls import URLPattern, re_path

from portal.api import bundle, docs, poll
from portal.api.milestones import Milestones
from portal.api.provenance import TaskCrate
from portal.api.resources import RESOURCES
from portal.api.stream import EventStream
from portal.api.subscriptions import VERBS, OneSubscription, SubscriptionList, SubscriptionVerb
from portal.api.views import (
    CREATED_BY,
    OBJECT_VERBS,
    Calibration,
    CreatingList,
    OneObject,
    OneSkill,
    OneToken,
    ResourceList,
    RevokeToken,
    SkillList,
    TaskTimeline,
    TokenList,
    VerbOnObject,
)

app_name = "api"
_V1 = "^api/v1/"
_HANDLE = "(?P<handle>[^/]+)"


def _route(path: str, view: Callable[..., Any], name: str) -> URLPattern:
    return re_path(f"{_V1}{path}/?$", view, name=name)


def _reads() -> list[URLPattern]:
    found = []
    for name in RESOURCES:
        if name in ("tokens", "subscriptions"):
            continue
        listing = CreatingList if name in CREATED_BY else ResourceList
        found += [
            _route(name, listing.as_view(resource=name), f"{name}-list"),
            _route(f"{name}/{_HANDLE}", OneObject.as_view(resource=name), f"{name}-show"),
        ]
    return found


urlpatterns = [
    _route("skills", SkillList.as_view(), "skill-list"),
    _route(f"skills/{poll.NAME}", poll.poll, "skill-wait"),
    _route("skills/(?P<name>[^/]+)", OneSkill.as_view(), "skill-show"),
    _route("events/stream", EventStream.as_view(), "event-stream"),
    *_reads(),
    _route("tokens", TokenList.as_view(), "token-list"),
    _route(f"tokens/{_HANDLE}", OneToken.as_view(), "token-show"),
    _route(f"tokens/{_HANDLE}/revoke", RevokeToken.as_view(), "token-revoke"),
    _route("subscriptions", SubscriptionList.as_view(), "subscription-list"),
    _route(f"subscriptions/{_HANDLE}", OneSubscription.as_view(), "subscription-show"),
    *(
        _route(f"subscriptions/{_HANDLE}/{verb}", SubscriptionVerb.as_view(verb=verb), f"subscription-{verb}")
        for verb in VERBS
    ),
    _route(f"tasks/{_HANDLE}/timeline", TaskTimeline.as_view(), "task-timeline"),
    _route(f"tasks/{_HANDLE}/ro-crate", TaskCrate.as_view(), "task-ro-crate"),
    _route("milestones", Milestones.as_view(), "milestone-report"),
    *(
        _route(
            f"{noun}/{_HANDLE}/{verb}",
            VerbOnObject.as_view(resource=noun, verb=verb),
            f"{noun.removesuffix('s')}-{verb}",
        )
        for noun, verb in OBJECT_VERBS
    ),
    _route("calibration", Calibration.as_view(), "calibration"),
    _route("bundle", bundle.download, "bundle"),
    re_path(f"{_V1}cli/$", bundle.command_line, name="cli"),
    _route("cli/(?P<name>[^/]+)", bundle.wheel, "cli-wheel"),
    _route("schema", docs.schema, "schema"),
    _route("docs", docs.browse, "docs"),
    _route("docs/errors", docs.errors, "docs-errors"),
    re_path(
        "^\\.well-known/oauth-protected-resource(?:/mcp)?$",
        docs.protected_resource,
        name="protected-resource",
    ),
    re_path("^llms.txt$", docs.for_models, name="llms"),
    re_path("^api(?:/.*)?$", docs.nowhere, name="nowhere"),
]
