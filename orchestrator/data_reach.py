"""What a user's systems hold and can be brought, for placement and staging."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from django.contrib.auth.models import AbstractBaseUser

from federation.models import Connection, System
from federation.selectors import profile_of
from federation.types import ResourceRecord
from orchestrator.envelope.types import Data
from orchestrator.models import Replica, Transfer, TransferPurpose
from orchestrator.placement.model import DEFAULT_RATE_MIB_S, PlacementModel
from orchestrator.staging import Storage, held_by, path_here, storages
from orchestrator.transfer_selectors import rate_of
from providers.errors import InvalidInput
from providers.movers.places import FILE, read_place

Held: TypeAlias = Mapping[tuple[str, int], str]
"""Path at a system by (checksum, size)."""
_RATES = 200
"""Newest finished transfers that rates are learned from."""
_LEAST_BYTES = 8 << 20
"""A transfer of less tells how long it takes to begin one, not how fast bytes move."""


def storages_of(connection: Connection) -> tuple[Storage, ...]:
    """Return the storages of a connection's system, for its user."""
    profile_id = connection.system.profile_id
    if profile_id is None:
        return ()
    stated = tuple((each.uri, each.path) for each in profile_of(profile_id).storage)
    return storages(stated, user=connection.user.get_username(), remote_user=connection.remote_user)


def held(user_id: int, data: Data, *, system_ids: Collection[int]) -> Mapping[int, Held]:
    """Return which inputs were brought to systems for a user before, by system; one query for all of them."""
    sums = {ref.sha256 for ref in data.inputs if ref.sha256}
    found: dict[int, dict[tuple[str, int], str]] = {pk: {} for pk in system_ids}
    if not sums:
        return found
    rows = (
        Replica.objects.filter(user_id=user_id, system_id__in=system_ids, sha256__in=sums)
        .order_by("system_id", "sha256", "bytes", "-seen_at")
        .distinct("system_id", "sha256", "bytes")
        .values_list("system_id", "sha256", "bytes", "path")
    )
    for system_id, sha256, size, path in rows:
        found[system_id][sha256, size] = path
    return found


def with_data(
    user: AbstractBaseUser, data: Data, records: Sequence[ResourceRecord]
) -> tuple[ResourceRecord, ...]:
    """Return the records with the inputs each system holds, and barred where one cannot be brought."""
    if not data.inputs:
        return tuple(records)
    rows = list(Connection.objects.select_related("system", "user").filter(user_id=user.pk))
    copies = held(user.pk, data, system_ids=[row.system_id for row in rows])
    known = {row.system.slug: _reach(row, data, copies[row.system_id]) for row in rows}
    return tuple(
        replace(
            record,
            held_uris=known[record.system][0],
            blocked=record.blocked or known[record.system][1] or None,
        )
        if record.system in known
        else record
        for record in records
    )


def _reach(connection: Connection, data: Data, copies: Held) -> tuple[frozenset[str], str]:
    """Return the inputs that a system holds, and why one of them cannot come ("" = all can)."""
    places = storages_of(connection)
    here = set(held_by(data.inputs, copies))
    why = ""
    for ref in data.inputs:
        try:
            place = read_place(ref.uri)
        except InvalidInput as error:  # of an envelope that was kept before references were checked
            why = error.message
            continue
        if path_here(place, places) is not None:
            here.add(ref.uri)
        elif ref.uri not in here and not any(each.place.scheme == place.scheme for each in places):
            why = f"its profile names no storage for {place.scheme}:// data, so {ref.uri} cannot be brought"
    return frozenset(here), why


def with_rates(user: AbstractBaseUser, data: Data, model: PlacementModel) -> PlacementModel:
    """Return the model with the rates that this user's finished transfers had; the same without inputs."""
    if not data.inputs:
        return model
    rates = pair_rates(user)
    for slug in _with_files():
        rates.setdefault(("", slug), (DEFAULT_RATE_MIB_S,))
    version = f"{model.version}+rates:{sum(map(len, rates.values()))}"
    return replace(model, version=version, pair_rates=rates)


def _with_files() -> list[str]:
    """Return the systems to which the local mover brings `file://` inputs."""
    rows = System.objects.filter(profile__isnull=False).values_list("slug", "profile_id")
    return [slug for slug, profile_id in rows if profile_id is not None and _takes_files(profile_id)]


@lru_cache(maxsize=64)
def _takes_files(profile_id: int) -> bool:
    return any(each.uri.startswith(f"{FILE}:") for each in profile_of(profile_id).storage)


def pair_rates(user: AbstractBaseUser) -> dict[tuple[str, str], tuple[float, ...]]:
    """Return MiB/s by (source collection, system) of this user's newest stage-ins, oldest first."""
    rows = Transfer.objects.filter(
        user_id=user.pk,
        purpose=TransferPurpose.STAGE_IN.value,
        state="succeeded",
        attempt__isnull=False,
        bytes_moved__gte=_LEAST_BYTES,
    ).select_related("attempt__system")
    found: dict[tuple[str, str], tuple[float, ...]] = {}
    for row in reversed(rows.order_by("-id")[:_RATES]):
        rate = rate_of(row)
        if rate is not None and row.attempt is not None:
            key = (read_place(row.source).collection, row.attempt.system.slug)
            found[key] = (*found.get(key, ()), rate)
    return found
