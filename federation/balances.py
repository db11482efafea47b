"""What a site says of the balance of its accounts: the command, how its answer is read, and where it is kept.

The command runs within the full probe's one request, as the user whose accounts are meant. A balance that
cannot be read costs itself alone: the one before stays, with its age.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation

from federation.handles import new_handle
from federation.models import Allocation, Connection
from federation.profile import BalanceRule
from providers.dialects.slurm.records import counted
from providers.dialects.slurm.shares import SHOW_SHARES, read_shares
from providers.errors import SiteError, UnparsableOutput
from providers.types import BatchReply, Exec

_NAME = "facet.balances"
_MOST = 200
"""Accounts of one user whose balance is kept."""
_MAX_BYTES = 1 << 20
_TOO_MUCH = Decimal(10) ** 15
"""No account holds so much: it is how a program writes "unlimited", or another column."""


@dataclass(frozen=True, slots=True)
class Balance:
    """What is granted, used and left on one account; None = not told, and for `left`, not limited."""

    account: str
    granted: Decimal | None
    used: Decimal | None
    left: Decimal | None


def operations(rule: BalanceRule | None) -> tuple[Exec, ...]:
    """Return what is run at the site for the balances; nothing where the profile names no source."""
    if rule is None:
        return ()
    argv = SHOW_SHARES if rule.source == "sshare" else rule.command
    return (
        Exec(
            name=_NAME,
            argv=argv,
            env={"LC_ALL": "C", "TZ": "UTC"},
            timeout_s=rule.timeout_s,
            max_bytes=_MAX_BYTES,
        ),
    )


def source_of(rule: BalanceRule) -> str:
    """Return the command that tells the balances, as people know it."""
    return "sshare" if rule.source == "sshare" else rule.command[0].rpartition("/")[2][:80]


def read(rule: BalanceRule, reply: BatchReply, *, user: str) -> tuple[Balance, ...]:
    """Return the balances of a user's accounts.

    Raises:
        SiteError: the command failed, or printed something that is not understood.
    """
    text = counted(reply, _NAME)
    if rule.source == "sshare":
        return tuple(
            _balance(
                share.account,
                None if share.granted_min is None else Decimal(share.granted_min) / rule.minutes_per_unit,
                Decimal(share.used_min) / rule.minutes_per_unit,
                None,
            )
            for share in read_shares(text, user=user, tres=rule.tres)
        )
    return _matched(rule, text)


def _matched(rule: BalanceRule, text: str) -> tuple[Balance, ...]:
    """Return what the profile's pattern finds, line by line; each account once, its last line wins."""
    assert rule.pattern is not None  # noqa: S101  # the profile was validated
    pattern = re.compile(rule.pattern)
    found: dict[str, Balance] = {}
    for line in text.splitlines():
        match = pattern.search(line[:1000])
        if match is None:
            continue
        said = match.groupdict()
        amounts = [_amount(said.get(name), line) for name in ("granted", "used", "left")]
        found[said["account"]] = _balance(said["account"], *amounts)
    if not found:
        raise UnparsableOutput(
            f"no line of {source_of(rule)} matches the profile's pattern", command=_NAME, line=text[:200]
        )
    return tuple(found.values())


def _amount(text: str | None, line: str) -> Decimal | None:
    if text is None or not text.strip():
        return None
    try:
        amount = Decimal(text.replace(",", "").replace("_", "").strip())
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite():
        raise UnparsableOutput(f"{text[:40]!r} is no amount", command=_NAME, line=line[:200])
    return amount


def _balance(account: str, granted: Decimal | None, used: Decimal | None, left: Decimal | None) -> Balance:
    """Return a balance with what follows from the other two; a grant may be overdrawn."""
    if left is None and granted is not None and used is not None:
        left = granted - used
    if granted is None and left is not None and used is not None:
        granted = left + used
    if used is None and left is not None and granted is not None:
        used = granted - left
    return Balance(account, _cent(granted), _cent(used), _cent(left))


def _cent(amount: Decimal | None) -> Decimal | None:
    if amount is None:
        return None
    if abs(amount) >= _TOO_MUCH:
        raise UnparsableOutput(f"{amount:.3g} is more than any account holds", command=_NAME)
    return amount.quantize(Decimal("0.0001"))


def store(rule: BalanceRule, reply: BatchReply, connection: Connection, *, user: str, now: datetime) -> str:
    """Keep what the site told of this connection's accounts; return what kept it from telling ("" = nothing).

    An account that Facet keeps no allocation of gets one without a limit of Facet's own.
    """
    rows = Allocation.objects.filter(user_id=connection.user_id, system_id=connection.system_id)
    try:
        balances: Sequence[Balance] = read(rule, reply, user=user)
    except SiteError as error:
        rows.exclude(site_at=None).update(site_problem=error.message[:300])
        return error.message[:300]
    for balance in balances[:_MOST]:
        told = {
            "site_unit": rule.unit,
            "site_granted": balance.granted,
            "site_used": balance.used,
            "site_left": balance.left,
            "site_at": now,
            "site_source": source_of(rule),
            "site_problem": "",
        }
        Allocation.objects.update_or_create(
            user_id=connection.user_id,
            system_id=connection.system_id,
            account=balance.account[:80],
            defaults=told,
            create_defaults={**told, "handle": new_handle("alc", now), "unit": rule.unit},
        )
    return ""
