"""What stands before every page: a signed-in person, and "not found" for what is not theirs."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse

from providers.errors import NotFound

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def signed_in(view: View[P]) -> View[P]:
    """Ask to sign in first, and answer 404 where a verb or selector finds nothing for this user."""

    @login_required
    @wraps(view)
    def guarded(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except NotFound as error:
            raise Http404(error.message) from error

    return guarded
