"""Which API token was made with which: what binds a token binds every token made with it.

A token is known here by its handle alone. A line is kept whole (every token above each), so that one query
tells who is above or below.
"""

from collections.abc import Sequence

from django.db.models import Q, QuerySet

from orchestrator.budget_models import TokenDescent


def note_made(user_id: int, *, token: str, made_with: str) -> None:
    """Remember with which token another was made, inside the caller's transaction."""
    TokenDescent.objects.bulk_create(
        TokenDescent(user_id=user_id, token=token, ancestor=ancestor)
        for ancestor in line_of(user_id, made_with)
    )


def above(user_id: int, token: str) -> QuerySet[TokenDescent, str]:
    """Return the handles of the tokens that a token goes back to; a person's own goes back to none."""
    rows = TokenDescent.objects.filter(user_id=user_id, token=token)
    return rows.values_list("ancestor", flat=True)


def below(user_id: int, tokens: Sequence[str]) -> QuerySet[TokenDescent, str]:
    """Return the handles of the tokens that were made with these, directly or not."""
    rows = TokenDescent.objects.filter(user_id=user_id, ancestor__in=tokens)
    return rows.values_list("token", flat=True)


def line_of(user_id: int, token: str) -> list[str]:
    """Return a token's handle and those above it."""
    return [token, *above(user_id, token)]


def of_family(user_id: int, token: str) -> Q:
    """Return the condition of tasks that a token, one above it, or one below any of these submitted."""
    line = line_of(user_id, token)
    return Q(token__in=line) | Q(token__in=below(user_id, line))
