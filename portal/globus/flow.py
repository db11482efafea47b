"""The authorization-code flow: out with a random state kept in the session, back with a code.

Two purposes: `sign_in` finds the person behind a Globus identity; `connect` stores what they delegate.
The application is confidential, so the code is worth nothing without its secret (and there is no PKCE).
"""

import secrets
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from globus_sdk import AuthAPIError, ConfidentialAppAuthClient, OAuthTokenResponse
from globus_sdk.exc import GlobusError

from federation.models import Connection, LinkKind
from portal.globus import tokens
from portal.globus.application import CONNECT, OPENID, TRANSFER_SCOPE, auth_client, redirect_uri
from portal.globus.connections import needs_sign_in, resume
from portal.models import GlobusFunction, GlobusIdentity
from providers.errors import Conflict, NotAuthorized, SiteUnreachable

Purpose = Literal["sign_in", "connect"]
_KEPT = "globus_flows"
_GOOD_FOR = timedelta(minutes=10)
_AT_ONCE = 5
"""Flows of one browser that may be open side by side (tabs)."""
_STEP_UP = (
    "session_message",
    "session_required_identities",
    "session_required_policies",
    "session_required_single_domain",
    "session_required_mfa",
)


class FlowBroken(Conflict):
    """The way back from Globus does not belong to a way out, or brought nothing usable."""

    code = "globus_flow_broken"


class Denied(NotAuthorized):
    """The person, or Globus, did not give what was asked for."""

    code = "globus_denied"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a flow."""

    purpose: Purpose
    user: User
    next: str
    """Where the person wanted to go."""
    resumed: tuple[str, ...] = ()
    """Systems that can be reached again."""


@dataclass(frozen=True, slots=True)
class Person:
    """Who Globus says they are."""

    sub: str
    username: str
    name: str
    email: str


def start(
    session: MutableMapping[str, Any], purpose: Purpose, *, user: User | None, next_url: str, now: datetime
) -> str:
    """Remember a flow in the browser's session and return where to send the browser."""
    state = secrets.token_urlsafe(32)
    flows = {
        key: kept
        for key, kept in dict(session.get(_KEPT, {})).items()
        if now - datetime.fromisoformat(kept["at"]) < _GOOD_FOR
    }
    flows = dict(list(flows.items())[-(_AT_ONCE - 1) :])
    flows[state] = {
        "purpose": purpose,
        "user": user.pk if user else None,
        "next": next_url,
        "at": now.isoformat(),
    }
    session[_KEPT] = flows
    url = _begin(auth_client(), purpose, state, user).oauth2_get_authorize_url(query_params=_step_up(user))
    return str(url)


def _begin(
    client: ConfidentialAppAuthClient, purpose: Purpose, state: str, user: User | None
) -> ConfidentialAppAuthClient:
    scopes = _scopes(user) if purpose == "connect" else OPENID
    client.oauth2_start_flow(
        redirect_uri(), requested_scopes=list(scopes), state=state, refresh_tokens=purpose == "connect"
    )
    return client


def _scopes(user: User | None) -> list[str]:
    """Return what to ask for: everything Facet uses, with the consents that collections asked for since."""
    kept = GlobusIdentity.objects.filter(user=user).first() if user else None
    wanted = kept.wanted.get("required_scopes", []) if kept else []
    consents = sorted({word for scope in wanted for word in _in_brackets(scope)})
    if not consents:
        return list(CONNECT)
    transfer = f"{TRANSFER_SCOPE}[{' '.join(consents)}]"
    return [transfer if scope == TRANSFER_SCOPE else scope for scope in CONNECT]


def _in_brackets(scope: str) -> list[str]:
    return scope.partition("[")[2].removesuffix("]").split()


def _step_up(user: User | None) -> dict[str, Any]:
    """Return what a service wants of this sign-in, for the authorization URL."""
    kept = GlobusIdentity.objects.filter(user=user).first() if user else None
    if kept is None:
        return {}
    found = {name: kept.wanted[name] for name in _STEP_UP if kept.wanted.get(name)}
    return {
        name: ",".join(map(str, value))
        if isinstance(value, list)
        else (str(value).lower() if value is True else value)
        for name, value in found.items()
    }


def finish(
    session: MutableMapping[str, Any], query: Mapping[str, str], *, user: User | None, now: datetime
) -> Outcome:
    """Turn what the browser brought back into a signed-in person or a stored grant.

    Raises:
        FlowBroken: forged, repeated or late; nothing is stored.
        Denied: consent refused or narrower than asked, or another person's identity; nothing is stored.
        SiteUnreachable: Globus Auth gives no answer now.
    """
    flow = _taken(session, query.get("state", ""), now=now)
    purpose: Purpose = "connect" if flow["purpose"] == "connect" else "sign_in"
    if purpose == "connect" and (user is None or user.pk != flow["user"]):
        raise FlowBroken("This connection was begun by another user of this browser; begin again.")
    if query.get("error") or not query.get("code"):
        raise Denied("Globus was not allowed to give Facet access; nothing was stored.")
    answer = _exchange(purpose, query["state"], query["code"])
    try:
        person = _person(answer)
        if purpose == "sign_in":
            found = _known(person, now=now)
            tokens.discard(answer)  # signing in needs no access afterwards
            return Outcome(purpose, found, flow["next"])
        assert user is not None  # noqa: S101  # asked above
        _all_granted(answer)
        _link(user, person, now=now)
    except (Denied, FlowBroken):
        tokens.discard(answer)
        raise
    tokens.keep_grant(user.pk, answer, now=now)
    return Outcome(purpose, user, flow["next"], tuple(resume(user, now=now)))


def _taken(session: MutableMapping[str, Any], state: str, *, now: datetime) -> dict[str, Any]:
    """Return the flow of this state and forget it: a state is good once."""
    flows = dict(session.get(_KEPT, {}))
    flow: dict[str, Any] | None = flows.pop(state, None)
    session[_KEPT] = flows
    if flow is None:
        raise FlowBroken("This way back from Globus was not begun in this browser, or was used already.")
    if now - datetime.fromisoformat(flow["at"]) >= _GOOD_FOR:
        raise FlowBroken("More than ten minutes passed at Globus; begin again.")
    return flow


def _exchange(purpose: Purpose, state: str, code: str) -> OAuthTokenResponse:
    client = _begin(auth_client(), purpose, state, None)
    try:
        return client.oauth2_exchange_code_for_tokens(code)
    except AuthAPIError as error:
        if error.http_status >= 500:
            raise SiteUnreachable(f"Globus Auth answered {error.http_status}.") from None
        raise FlowBroken("Globus does not take this code: it was used or has expired. Begin again.") from None
    except GlobusError as error:
        raise SiteUnreachable("Globus Auth could not be reached.", kind=type(error).__name__) from None


def _person(answer: OAuthTokenResponse) -> Person:
    """Return who the signed identity token speaks of."""
    if not answer.get("id_token"):
        raise Denied("Globus did not say who you are: allow `openid`, `profile` and `email`.")
    try:
        claims = answer.decode_id_token(jwt_params={"leeway": 30})
    except GlobusError as error:
        raise SiteUnreachable("Globus Auth's keys could not be read.", kind=type(error).__name__) from None
    except Exception as error:  # PyJWT's errors; the SDK does not translate them
        if type(error).__module__.partition(".")[0] != "jwt":
            raise
        raise FlowBroken("The identity that came back is not signed by Globus for Facet.") from None
    return Person(
        sub=str(claims["sub"]),
        username=str(claims.get("preferred_username") or claims["sub"]),
        name=str(claims.get("name") or ""),
        email=str(claims.get("email") or ""),
    )


def _all_granted(answer: OAuthTokenResponse) -> None:
    granted = {scope for made in answer.by_resource_server.values() for scope in made["scope"].split()}
    missing = [scope for scope in CONNECT if scope not in granted]
    if missing:
        raise Denied(
            f"Less was allowed than Facet needs; missing: {', '.join(missing)}. Nothing was stored.",
            remediation="Connect again and leave every box ticked.",
            missing=missing,
        )
    if not all(made.get("refresh_token") for made in answer.by_resource_server.values()):
        raise Denied("Globus gave no lasting access (offline_access); nothing was stored.")


@transaction.atomic
def _link(user: User, person: Person, *, now: datetime) -> None:
    """Bind an identity to a user; one identity has one user, and one user one identity."""
    other = GlobusIdentity.objects.filter(sub=person.sub).exclude(user=user).exists()
    if other:
        raise Denied(f"{person.username} is connected to another account of this installation.")
    kept = GlobusIdentity.objects.select_for_update().filter(user=user).first()
    if kept is not None and kept.sub != person.sub:
        raise Denied(
            f"Your account is connected as {kept.username}, not as {person.username}.",
            remediation="Choose that identity at Globus, or disconnect first.",
        )
    GlobusIdentity.objects.update_or_create(
        user=user,
        defaults={"username": person.username[:150]},
        create_defaults={"sub": person.sub, "username": person.username[:150], "linked_at": now},
    )


def _known(person: Person, *, now: datetime) -> User:
    """Return the user of an identity, made at the first sign-in where the operator allows it."""
    kept = GlobusIdentity.objects.select_related("user").filter(sub=person.sub).first()
    if kept is not None:
        if not kept.user.is_active:
            raise Denied("This account is not active.")
        return kept.user
    if not settings.GLOBUS_SIGN_UP:
        raise Denied(
            f"Nobody here is known as {person.username}.",
            remediation="Sign in with your password and connect Globus, or ask an administrator.",
        )
    with transaction.atomic():
        made = User.objects.create_user(
            _free_name(person.username), email=person.email, first_name=person.name[:150]
        )
        GlobusIdentity.objects.create(
            user=made, sub=person.sub, username=person.username[:150], linked_at=now
        )
    return made


def _free_name(wanted: str) -> str:
    base = "".join(letter if letter.isalnum() or letter in "@.+-_" else "-" for letter in wanted)[:140]
    taken = set(User.objects.filter(username__startswith=base).values_list("username", flat=True))
    return next(
        name for name in (base, *(f"{base}-{n}" for n in range(2, len(taken) + 3))) if name not in taken
    )


def disconnect(user: User) -> bool:
    """Revoke everything that a user delegated, and forget it; return whether Globus took every revocation."""
    taken = tokens.revoke(user.pk)
    GlobusFunction.objects.filter(
        owner=f"user:{user.pk}"
    ).delete()  # registered by an identity that may change
    GlobusIdentity.objects.filter(user=user).delete()
    first = Connection.objects.filter(user=user, kind=LinkKind.GLOBUS_COMPUTE).first()
    if first is not None:
        needs_sign_in(first, "You disconnected Globus.")
    return taken
