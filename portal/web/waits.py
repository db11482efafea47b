"""How long a small job would wait in each place: what the federation pages call the expected wait."""

from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser
from django.utils.translation import gettext as _

from orchestrator.envelope.types import Envelope, Policy, Range
from orchestrator.services.deciding import placement_for
from portal.web.presenters.records import Wait, Waits

_HOUR = Range.exactly(3600)
ASKED = (
    Envelope(gpus=Range.exactly(1), cpus=Range.exactly(1), walltime_s=_HOUR),
    Envelope(gpus=Range.exactly(0), cpus=Range.exactly(1), walltime_s=_HOUR),
)
"""One GPU where there are any, else one CPU, for an hour."""


def expected_waits(user: AbstractBaseUser, *, now: datetime, system: str = "") -> Waits:
    """Return the waits of one GPU (one CPU where a partition has none) for an hour, by placement itself.

    `system`: only there; "" = everywhere.
    """
    policy = Policy(allow_systems=(system,)) if system else Policy()
    ask = placement_for(user, ASKED[0], now=now)
    found: dict[tuple[str, str], Wait] = {}
    for envelope in ASKED:
        here: dict[tuple[str, str], Wait] = {}
        for candidate in ask(envelope.model_copy(update={"policy": policy})).candidates:
            place = (candidate.system, candidate.partition)
            if candidate.estimates is None or place in found:
                continue
            wait = (candidate.estimates.wait_s.p50, candidate.estimates.wait_s.p90)
            here[place] = min(wait, here.get(place, wait))
        found |= here
    return Waits(_("1 GPU, or 1 CPU where there is none, for 1 h"), found)
