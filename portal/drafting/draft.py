"""The rules' draft, made better by a model where one is configured and the words leave something open."""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from redis import RedisError

from federation.models import Connection
from orchestrator.envelope.draft import ENVELOPE_FIELDS, Draft, draft_from_proposal
from orchestrator.services.budgets import has_tokens_left
from portal.drafting.model import Use, is_configured, propose
from portal.drafting.proposal import confidence_of
from portal.drafting.redact import bounded, redacted
from portal.heartbeat import key_of, redis_client
from providers.dialects.scripts.types import Note
from providers.errors import InvalidInput

_log = logging.getLogger(__name__)

TEXT_CHARS = 8_000
CONTEXT_CHARS = 16_000
_READ_CHARS = 200_000
"""How much of a text is looked at at all."""
_DAY_S = 86_400


def better(
    user: AbstractBaseUser,
    draft: Draft,
    *,
    text: str,
    code_context: str | None,
    now: datetime,
    token: str = "",
) -> tuple[Draft, Use | None]:
    """Return the draft with a model's proposal where the rules are silent, and what that cost.

    `token` is the handle of the API token that asks: where a budget of its model tokens is used up, no model
    is asked.

    The rules' draft stands wherever there is no model, or the model gives nothing that is valid. Words of the
    user stand against the model's. What is proposed passes the same validation as anybody's figures.
    """
    if not is_configured() or not (code_context or draft.source != "script" or draft.not_understood):
        return draft, None
    spent = "" if has_tokens_left(user, token) else "the budget of this token's model tokens is"
    if not _may_spend(user, now):
        spent = "the day's tokens are"
    if spent:
        return _noted(draft, f"{spent} used up; the rules alone drafted"), None
    people = _people(user)
    material = {"request": _told(text, TEXT_CHARS, people)}
    if code_context:
        material["code"] = _told(code_context, CONTEXT_CHARS, people)
    proposal, use = propose(material, _known(draft))
    _spend(user, use.tokens, now)
    if proposal is None:
        return _noted(draft, f"{use.outcome}; the rules alone drafted"), use
    try:
        improved = draft_from_proposal(proposal, grammar=draft, confidence=confidence_of(proposal))
    except InvalidInput as error:
        use.outcome = f"its proposal was not valid: {error.message}"[:200]
        return _noted(draft, f"{use.outcome}; the rules alone drafted"), use
    if improved.envelope is None and draft.envelope is not None:
        use.outcome = "its proposal contradicts the words"
        return _noted(draft, f"{use.outcome}; the rules alone drafted"), use
    return improved, use


def _told(text: str, most: int, people: set[str]) -> str:
    return bounded(redacted(text[:_READ_CHARS], people=people), most)


def _known(draft: Draft) -> Mapping[str, Any]:
    """Return what the rules understood, without places, people and data."""
    hidden = {"policy", "data", "container"}
    said = draft.given.model_dump(mode="json", exclude_none=True, include=set(ENVELOPE_FIELDS) - hidden)
    return dict(said)


def _people(user: AbstractBaseUser) -> set[str]:
    """Return by which names the user is known, here and at the sites."""
    names = {user.get_username(), *(str(getattr(user, f, "")) for f in ("first_name", "last_name", "email"))}
    remote = Connection.objects.filter(user_id=user.pk).values_list("remote_user", flat=True)
    return {name for name in (*names, *remote) if name}


def _noted(draft: Draft, why: str) -> Draft:
    note = Note(line=0, text="model", why=f"The model was of no use: {why}.")
    return draft.model_copy(update={"warnings": (*draft.warnings, note)})


def _purse(user: AbstractBaseUser, now: datetime) -> str:
    return key_of(f"tokens:{user.pk}:{now:%Y%m%d}")


def _may_spend(user: AbstractBaseUser, now: datetime) -> bool:
    """Return whether the user has tokens left today; Redis away: no, what cannot be counted may be costly."""
    if not settings.LLM_TOKENS_PER_DAY:
        return True
    try:
        spent = redis_client().get(_purse(user, now))
    except RedisError:
        _log.warning("tokens cannot be counted, Redis is away: no model is asked")
        return False
    return int(str(spent.decode() if isinstance(spent, bytes) else spent or 0)) < settings.LLM_TOKENS_PER_DAY


def _spend(user: AbstractBaseUser, tokens: int, now: datetime) -> None:
    try:
        purse = _purse(user, now)
        redis_client().incrby(purse, tokens)
        redis_client().expire(purse, 2 * _DAY_S)
    except RedisError:
        _log.warning("%d tokens could not be counted, Redis is away", tokens)
