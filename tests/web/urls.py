from django.http import HttpRequest, HttpResponse
from django.urls import include, path

import portal.web.urls as web


def absent(request: HttpRequest, **_k: str) -> HttpResponse:
    return HttpResponse(status=501)


_have = {p.name for p in web.urlpatterns}
_more = [
    path(route, absent, name=name)
    for route, name in (
        ("tasks/", "task-list"),
        ("tasks/<handle>/", "task-show"),
        ("tasks/<handle>/cancel/", "task-cancel"),
        ("tasks/<handle>/replan/", "task-replan"),
        ("events/", "event-list"),
    )
    if name not in _have
]
urlpatterns = [path("", include((web.urlpatterns + _more, "web")))]
