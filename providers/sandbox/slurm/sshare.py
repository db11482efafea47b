"""sshare: the caller's shares, or everybody's with -a.

Source: sshare(1), recorded output of 22.05.8. What was used is counted from the jobs there are, without
decay; the default columns show it as 0, for the fair-share factor is the one that priorities are made of.
"""

from __future__ import annotations

from collections import Counter

from providers.sandbox.slurm.call import NEEDS, NONE, Call, Refused, options
from providers.sandbox.slurm.load import fair_share
from providers.sandbox.slurm.model import Assoc, Cluster

LONGS = {
    "Users": NONE, "all": NONE, "parsable": NONE, "parsable2": NONE, "noheader": NONE, "user": NEEDS,
    "accounts": NEEDS, "format": NEEDS, "version": NONE,
}  # fmt: skip
SHORTS = {
    "U": "Users", "a": "all", "p": "parsable", "P": "parsable2", "n": "noheader", "h": "noheader", "u":
    "user", "A": "accounts", "o": "format", "V": "version",
}  # fmt: skip
HEADS = ("Account", "User", "RawShares", "NormShares", "RawUsage", "EffectvUsage", "FairShare")
WIDTHS = (20, 10, 10, 11, 11, 13, 10)
WIDER = {"GrpTRESMins": 30, "GrpTRESRaw": 30}
_COUNTED = ("cpu", "mem", "node", "billing", "gres/gpu")

Usage = dict[tuple[str, str], Counter[str]]
"""TRES-seconds by (account, user); user "" = of the whole account, account "root" = of all."""


def run(call: Call) -> int:
    """Print shares."""
    given = options("sshare", call.argv, LONGS, SHORTS)
    cluster = call.store.read(call.now)
    if given.has("version"):
        call.say(f"slurm-wlm {cluster.version}")
        return 0
    heads = _fields(given.get("format", "")) if given.has("format") else HEADS
    usage = _usage(call) if given.has("format") else {}
    users = set(given.names("user")) or {call.user}
    accounts = set(given.names("accounts"))
    rows = [
        tuple(cells(cluster, one, usage)[head] for head in heads)
        for one in cluster.assocs
        if (not accounts or one.account in accounts)
        and (given.has("all") or one.user in users or (not one.user and not given.has("Users")))
    ]
    if given.has("parsable", "parsable2"):
        tail = "|" if given.has("parsable") else ""
        for row in [*([] if given.has("noheader") else [heads]), *rows]:
            call.say("|".join(row) + tail)
        return 0
    widths = [{**dict(zip(HEADS, WIDTHS, strict=True)), **WIDER}[head] for head in heads]
    above = () if given.has("noheader") else (heads, tuple("-" * width for width in widths))
    for row in (*above, *rows):
        call.say(
            "".join(
                f"{cell[:w]:<{w}} " if n == 0 else f"{cell[:w]:>{w}} "
                for n, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
        )
    return 0


def _fields(text: str) -> tuple[str, ...]:
    """Return the heads of a format; names may be shortened and written in any case."""
    found = []
    for part in text.split(","):
        name = part.partition("%")[0].lower()
        head = next((each for each in (*HEADS, *WIDER) if name and each.lower().startswith(name)), None)
        if head is None:
            raise Refused(f"sshare: error: Unknown field '{part}'")
        found.append(head)
    return tuple(found)


def _usage(call: Call) -> Usage:
    """Return what every job used so far."""
    found: Usage = {}
    for job in call.store.history(0, int(call.now)):
        held_s = max(0, (job.end or int(call.now)) - job.start) if job.start else 0
        used = Counter(
            {
                "cpu": job.alloc_cpus * held_s,
                "node": job.nodes * held_s,
                "billing": job.alloc_cpus * held_s,
                "gres/gpu": job.gpus * held_s,
            }
        )
        for key in (("root", ""), (job.account, ""), (job.account, job.user)):
            found.setdefault(key, Counter()).update(used)
    return found


def cells(cluster: Cluster, one: Assoc, usage: Usage) -> dict[str, str]:
    """Return one row; accounts are indented under root, users under their account."""
    depth = 0 if one.account == "root" and not one.user else 1 if one.account == "root" or not one.user else 2
    siblings = sum(
        other.share
        for other in cluster.assocs
        if bool(other.user) == bool(one.user) and (not one.user or other.account == one.account)
    )
    used = usage.get((one.account, one.user), Counter())
    return {
        "Account": " " * depth + one.account,
        "User": one.user,
        "RawShares": str(one.share),
        "NormShares": f"{one.share / max(1, siblings):.6f}",
        "RawUsage": str(used["billing"]),
        "EffectvUsage": "0.000000",
        "FairShare": f"{fair_share(one.user) / 10000:.6f}" if one.user else "",
        "GrpTRESMins": ",".join(f"{name}={most}" for name, most in one.grp_minutes.items()),
        "GrpTRESRaw": ",".join(f"{name}={used[name] // 60}" for name in _COUNTED),
    }
