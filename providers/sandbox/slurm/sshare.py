"""sshare: the caller's shares, or everybody's with -a.

Source: sshare(1), recorded output of 22.05.8. Usage is not accumulated here: raw usage is 0, and the
fair-share factor is the one that priorities are made of.
"""

from __future__ import annotations

from providers.sandbox.slurm.call import NEEDS, NONE, Call, options
from providers.sandbox.slurm.load import fair_share
from providers.sandbox.slurm.model import Assoc, Cluster

LONGS = {
    "Users": NONE, "all": NONE, "parsable": NONE, "parsable2": NONE, "noheader": NONE, "user": NEEDS,
    "accounts": NEEDS, "version": NONE,
}  # fmt: skip
SHORTS = {
    "U": "Users", "a": "all", "p": "parsable", "P": "parsable2", "n": "noheader", "h": "noheader", "u":
    "user", "A": "accounts", "V": "version",
}  # fmt: skip
HEADS = ("Account", "User", "RawShares", "NormShares", "RawUsage", "EffectvUsage", "FairShare")
WIDTHS = (20, 10, 10, 11, 11, 13, 10)


def run(call: Call) -> int:
    """Print shares."""
    given = options("sshare", call.argv, LONGS, SHORTS)
    cluster = call.store.read(call.now)
    if given.has("version"):
        call.say(f"slurm-wlm {cluster.version}")
        return 0
    users = set(given.names("user")) or {call.user}
    accounts = set(given.names("accounts"))
    rows = [
        cells(cluster, one)
        for one in cluster.assocs
        if (not accounts or one.account in accounts)
        and (given.has("all") or one.user in users or (not one.user and not given.has("Users")))
    ]
    if given.has("parsable", "parsable2"):
        tail = "|" if given.has("parsable") else ""
        for row in [*([] if given.has("noheader") else [HEADS]), *rows]:
            call.say("|".join(row) + tail)
        return 0
    heads = (*([] if given.has("noheader") else [HEADS, tuple("-" * width for width in WIDTHS)]), *rows)
    for row in heads:
        call.say(
            "".join(
                f"{cell[:w]:<{w}} " if n == 0 else f"{cell[:w]:>{w}} "
                for n, (cell, w) in enumerate(zip(row, WIDTHS, strict=True))
            )
        )
    return 0


def cells(cluster: Cluster, one: Assoc) -> tuple[str, ...]:
    """Return one row; accounts are indented under root, users under their account."""
    depth = 0 if one.account == "root" and not one.user else 1 if one.account == "root" or not one.user else 2
    siblings = sum(
        other.share
        for other in cluster.assocs
        if bool(other.user) == bool(one.user) and (not one.user or other.account == one.account)
    )
    factor = f"{fair_share(one.user) / 10000:.6f}" if one.user else ""
    name = " " * depth + one.account
    return (name, one.user, str(one.share), f"{one.share / max(1, siblings):.6f}", "0", "0.000000", factor)
