"""What stands before every page: a signed-in person, and "not found" for what is not theirs."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, cast

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse

from providers.errors import NotFound

P = ParamSpec("P")


class SignedInRequest(HttpRequest):
    """A request of which it is known whose it is."""

    user: User


def signed_in(
    view: Callable[Concatenate[SignedInRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Ask to sign in first, and answer 404 where a verb or selector finds nothing for this user."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        try:
            return view(cast("SignedInRequest", request), *args, **kwargs)
        except NotFound as error:
            raise Http404(error.message) from error

    return cast("Callable[Concatenate[HttpRequest, P], HttpResponse]", login_required(guarded))
