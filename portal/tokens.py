"""API tokens: made once, shown once, kept as SHA-256; named, scoped, expiring, revocable."""

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import QuerySet
from pydantic import Field

from federation.handles import new_handle
from federation.managers import is_administrator
from federation.selectors import check_slugs
from orchestrator.token_lines import below, line_of, note_made
from portal.models import ApiToken
from portal.skills.registry import Caller, Scope
from providers.errors import FacetError, InvalidInput, NotAuthorized, NotFound
from providers.reading import nearest
from providers.types import Frozen

PREFIX = "facet_"
_USED_AT_MOST_EVERY = timedelta(minutes=1)
EVERY_SCOPE = frozenset(Scope) - {Scope.ADMIN}
"""What a person who is signed in may do; administrators also hold `admin`."""


class Unauthenticated(FacetError):
    """Nobody known is calling: no token, an unknown one, or one that is no longer good."""

    code = "not_authenticated"
    http_status = 401


class TokenInput(Frozen):
    """A token to be made."""

    name: str = Field(min_length=1, max_length=80)
    scopes: tuple[str, ...] = Field(min_length=1, description="read, draft, submit, manage, admin.")
    expires_in_days: int | None = Field(90, ge=1, le=3650, description="Null: never.")
    systems: tuple[str, ...] = Field(
        (), description="The only systems it may use and see, by slug; none named: all of yours."
    )
    attended: bool = Field(
        default=False,
        description="You sit at the client that holds it: approvals you answer there are yours. Only "
        "somebody who is signed in makes such a token.",
    )


class TokenShown(Frozen):
    """A token as its owner sees it; the secret is only in the answer that made it."""

    id: str
    state: str = Field(description="active, expired or revoked.")
    name: str
    prefix: str = Field(description="How the secret begins.")
    scopes: list[str]
    systems: list[str] = Field(description="The only systems it may use and see; empty: all of yours.")
    attended: bool = Field(
        default=False, description="Approvals answered in the client that holds it are its owner's."
    )
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="To the minute.")


class TokenMade(TokenShown):
    """A new token with its secret, shown this once."""

    token: str


def digest(secret: str) -> str:
    """Return what is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def tokens(user: AbstractBaseUser) -> QuerySet[ApiToken]:
    """Return this user's tokens, newest first."""
    return ApiToken.objects.filter(user_id=user.pk).order_by("-id")


def state_of(row: ApiToken, *, now: datetime) -> str:
    """Return active, expired or revoked."""
    if row.revoked_at is not None:
        return "revoked"
    return "expired" if row.expires_at is not None and row.expires_at <= now else "active"


def show_token(row: ApiToken, *, now: datetime) -> TokenShown:
    """Return a token as its owner sees it."""
    return TokenShown(
        id=row.handle,
        state=state_of(row, now=now),
        name=row.name,
        prefix=row.prefix,
        scopes=list(row.scopes),
        systems=list(row.systems),
        attended=row.attended,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
    )


def scopes_of(words: Iterable[str], *, pointer: str = "/scopes") -> tuple[Scope, ...]:
    """Return scopes from words, in the registry's order.

    Raises:
        InvalidInput: an unknown one; names the nearest.
    """
    known = {scope.value for scope in Scope}
    given = list(words)
    problems = tuple(
        (f"{pointer}/{number}", "unknown_scope", f"No scope `{word}`." + nearest(word, known))
        for number, word in enumerate(given)
        if word not in known
    )
    if problems:
        raise InvalidInput(problems[0][2], problems=problems)
    return tuple(scope for scope in Scope if scope in given)


def may_hold(user: AbstractBaseUser) -> frozenset[Scope]:
    """Return the widest scopes a token of this user can have; a site manager is no administrator."""
    return EVERY_SCOPE | ({Scope.ADMIN} if is_administrator(user) else frozenset())


def issue_token(
    user: AbstractBaseUser,
    *,
    name: str,
    scopes: Sequence[Scope],
    now: datetime,
    expires_at: datetime | None = None,
    systems: Sequence[str] = (),
    attended: bool = False,
) -> tuple[ApiToken, str]:
    """Make a token and return its row and its secret, which nobody can ask for again.

    Raises:
        InvalidInput: a system that is not known.
        NotAuthorized: `admin` for somebody who is no administrator.
    """
    check_slugs(systems, pointer="/systems")
    if not set(scopes) <= may_hold(user):
        raise NotAuthorized(
            "Only administrators' tokens can have the scope `admin`.", missing_scope=Scope.ADMIN.value
        )
    secret = PREFIX + secrets.token_urlsafe(32)
    row = ApiToken.objects.create(
        handle=new_handle("tok", now),
        user_id=user.pk,
        name=name,
        prefix=secret[:12],
        digest=digest(secret),
        scopes=[scope.value for scope in scopes],
        systems=sorted(set(systems)),
        attended=attended,
        created_at=now,
        expires_at=expires_at,
    )
    return row, secret


@transaction.atomic
def create_token(caller: Caller, given: TokenInput, *, now: datetime) -> TokenMade:
    """Make a token for the caller, never wider than what the caller itself holds.

    One made with a token ends with it at the latest, and what it spends counts on that token's budgets too.

    Raises:
        InvalidInput: an unknown scope.
        Unauthenticated: the token that asks has ended in the meantime.
        NotAuthorized: a scope the caller lacks, or a system it may not use.
    """
    scopes = scopes_of(given.scopes)
    missing = [scope for scope in scopes if not caller.may(scope)]
    if missing:
        raise NotAuthorized(
            f"You cannot give what you do not hold: {', '.join(missing)}.", missing_scope=missing[0].value
        )
    systems = given.systems or tuple(sorted(caller.systems or ()))
    outside = [slug for slug in systems if not caller.reaches(slug)]
    if outside:
        raise NotAuthorized(f"Your own token may not use: {', '.join(outside)}.", systems=outside)
    if given.attended and caller.token:
        raise NotAuthorized(
            "A token makes none that answers for a person.",
            remediation="Make it signed in, or by facet_token.",
        )
    days = given.expires_in_days
    expires_at = None if days is None else now + timedelta(days=days)
    if caller.token:
        expires_at = _no_later(expires_at, _last_moment(caller, now=now))
    row, secret = issue_token(
        caller.user,
        name=given.name,
        scopes=scopes,
        now=now,
        expires_at=expires_at,
        systems=systems,
        attended=given.attended,
    )
    if caller.token:
        note_made(caller.user.pk, token=row.handle, made_with=caller.token)
    return TokenMade(**show_token(row, now=now).model_dump(), token=secret)


def _last_moment(caller: Caller, *, now: datetime) -> datetime | None:
    """Return when the token that calls expires, locked with those above it: none is revoked meanwhile.

    Raises:
        Unauthenticated: one of them has ended.
    """
    line = tokens(caller.user).filter(handle__in=line_of(caller.user.pk, caller.token))
    expires_at: datetime | None = None
    for row in line.order_by("pk").select_for_update(no_key=True):
        if state_of(row, now=now) != "active":
            raise Unauthenticated(f"The token `{row.name}` has ended.", reason="token_ended")
        expires_at = _no_later(expires_at, row.expires_at)
    return expires_at


def _no_later(one: datetime | None, other: datetime | None) -> datetime | None:
    """Return the earlier instant; None = never."""
    return min((each for each in (one, other) if each is not None), default=None)


@transaction.atomic
def revoke_token(user: AbstractBaseUser, handle: str, *, now: datetime) -> ApiToken:
    """End a token now and for good, with every token made with it; one that has ended stays as it is.

    Raises:
        NotFound: no such token of this user.
    """
    row = tokens(user).select_for_update().filter(handle=handle).first()
    if row is None:
        raise NotFound(f"No token {handle!r}.")
    if row.revoked_at is None:
        row.revoked_at = now
        row.save(update_fields=["revoked_at"])
    tokens(user).filter(handle__in=below(user.pk, [handle]), revoked_at=None).update(revoked_at=now)
    return row


def caller_of(secret: str, *, now: datetime) -> Caller:
    """Return who calls with this token.

    Raises:
        Unauthenticated: it is unknown, expired or revoked, or its user is not active.
    """
    row = ApiToken.objects.select_related("user").filter(digest=digest(secret)).first()
    if row is None:
        raise Unauthenticated("The token is not known.", remediation="Check it, or make a new one.")
    state = state_of(row, now=now)
    if state != "active":
        at = row.revoked_at if state == "revoked" else row.expires_at
        what = "was revoked" if state == "revoked" else "expired"
        raise Unauthenticated(
            f"The token `{row.name}` {what} at {at:%Y-%m-%dT%H:%M:%SZ}.",
            remediation="Make a new one: Account, tokens; or manage.py facet_token.",
            reason=f"token_{state}",
        )
    if not row.user.is_active:
        raise Unauthenticated("The user of this token is not active.", reason="user_inactive")
    if row.last_used_at is None or now - row.last_used_at >= _USED_AT_MOST_EVERY:
        ApiToken.objects.filter(pk=row.pk).update(last_used_at=now)
    held = frozenset(Scope(word) for word in row.scopes)
    return Caller(
        user=row.user,
        actor=f"token:{row.name}",
        scopes=held & may_hold(row.user),
        systems=frozenset(row.systems) or None,
        attended=row.attended,
        token=row.handle,
    )


def caller_in_session(user: AbstractBaseUser) -> Caller:
    """Return a person who is signed in as a caller."""
    return Caller(user=user, actor=f"user:{user.get_username()}", scopes=may_hold(user))
