"""Sealing what is stored with the newest key, row by row."""

from dataclasses import dataclass

from django.db import transaction

from portal.globus.vault import Unreadable, is_newest, seal, unseal
from portal.models import GlobusToken


@dataclass(frozen=True, slots=True)
class Rotated:
    """How many rows were in which state."""

    sealed_anew: int
    newest_already: int
    lost: int


def rotate() -> Rotated:
    """Seal every token with the newest key; each row in a transaction of its own."""
    anew = already = lost = 0
    for key in GlobusToken.objects.order_by("pk").values_list("pk", flat=True):
        with transaction.atomic():
            row = GlobusToken.objects.select_for_update().filter(pk=key).first()
            if row is None or is_newest(row.sealed):
                already += row is not None
                continue
            try:
                row.sealed = seal(unseal(row.sealed))
            except Unreadable:
                lost += 1
                continue
            row.save(update_fields=["sealed"])
            anew += 1
    return Rotated(sealed_anew=anew, newest_already=already, lost=lost)
