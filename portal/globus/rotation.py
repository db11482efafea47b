"""Sealing what is stored with the newest key, row by row: delegated access and the secrets of webhooks."""

from dataclasses import dataclass

from django.db import models, transaction

from orchestrator.models import Subscription
from portal import sealing
from portal.globus import vault
from portal.models import GlobusToken
from portal.webhooks.signing import PURPOSE as WEBHOOKS

_SEALED: tuple[tuple[type[models.Model], str, str], ...] = (
    (GlobusToken, "sealed", vault.PURPOSE),
    (Subscription, "sealed_secret", WEBHOOKS),
    (Subscription, "sealed_previous", WEBHOOKS),
)
"""Table, column and purpose of everything sealed."""


@dataclass(frozen=True, slots=True)
class Rotated:
    """How many secrets were in which state."""

    sealed_anew: int
    newest_already: int
    lost: int


def opened() -> tuple[int, int]:
    """Return how many stored secrets the known keys open, and how many they do not; nothing is changed."""
    opens, lost = 0, 0
    for table, column, purpose in _SEALED:
        rows = table._default_manager.exclude(**{column: ""})  # noqa: SLF001  # any table
        for sealed in rows.values_list(column, flat=True).iterator():
            try:
                sealing.unseal(sealed, purpose=purpose)
            except sealing.Unreadable:
                lost += 1
            else:
                opens += 1
    return opens, lost


def rotate() -> Rotated:
    """Seal every secret with the newest key; each in a transaction of its own."""
    counts = {"anew": 0, "already": 0, "lost": 0}
    for table, column, purpose in _SEALED:
        rows = table._default_manager.exclude(**{column: ""}).order_by("pk")  # noqa: SLF001  # any table
        for key in rows.values_list("pk", flat=True):
            counts[_rotate_one(table, column, purpose, key)] += 1
    return Rotated(sealed_anew=counts["anew"], newest_already=counts["already"], lost=counts["lost"])


def _rotate_one(table: type[models.Model], column: str, purpose: str, key: object) -> str:
    """Seal one secret anew where that is due; return what was found."""
    with transaction.atomic():
        row = table._default_manager.select_for_update().filter(pk=key).first()  # noqa: SLF001  # any table
        sealed = "" if row is None else str(getattr(row, column))
        if row is None or not sealed or sealing.is_newest(sealed, purpose=purpose):
            return "already"
        try:
            anew = sealing.seal(sealing.unseal(sealed, purpose=purpose), purpose=purpose)
        except sealing.Unreadable:
            return "lost"
        setattr(row, column, anew)
        row.save(update_fields=[column])
        return "anew"
