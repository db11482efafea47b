"""How long one decision takes on a real database. Run: python benchmarks/decide.py

Makes the demo federation (four emulated systems with their queues) in a directory of its own, on an embedded
PostgreSQL, probes it once, and decides where one to four GPUs should run: reading the records, the waits
learned and the work in flight included. CPU time of this process, medians; ratios compare rows of one run.
"""

from collections.abc import Callable
from statistics import median
from time import process_time

from _services import HOME  # type: ignore[import-not-found]  # a neighbour, found when run as a program

# isort: split
from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone

from federation import collector, selectors
from federation.models import System
from orchestrator.envelope.types import Envelope, Range
from orchestrator.services import deciding
from portal.demo.federation import PEOPLE, first_look, make_person, make_systems

REQUEST = Envelope(gpus=Range(min=1, max=4), cpus=Range(min=8, max=32), walltime_s=Range(min=1800, max=1800))
ROUNDS = 30


def made() -> User:
    """Return a researcher of the demo federation, made and probed."""
    call_command("migrate", verbosity=0)
    make_systems(HOME, now=timezone.now())
    make_person(PEOPLE[0], HOME, known=None, now=timezone.now())
    first_look(now=timezone.now())
    return User.objects.get(username=PEOPLE[0].username)


def nothing() -> None:
    """Prepare nothing."""


def cpu_ms(call: Callable[[], object], rounds: int = ROUNDS, before: Callable[[], None] = nothing) -> float:
    """Return the median CPU time of a call, each after `before`, milliseconds."""
    times = []
    for _ in range(rounds):
        before()
        began = process_time()
        call()
        times.append(process_time() - began)
    return median(times) * 1e3


def probe_again() -> None:
    """Take a new snapshot of every system."""
    for system in System.objects.all():
        collector.refresh(system.pk, now=timezone.now())


def main() -> None:
    """Print one row per situation."""
    user = made()

    def decide() -> object:
        return deciding.decide(user, REQUEST, now=timezone.now())

    decide()
    records = selectors.records_for(user, now=timezone.now())
    waiting = max(record.queue.pending_count for record in records)
    print(f"{len(records)} candidates, {waiting} jobs waiting in the longest queue")
    warm = cpu_ms(decide)
    rows = {
        "kept plans": warm,
        "plans made anew": cpu_ms(decide, 10, deciding.PLANS.forget),
        "new snapshot of every system": cpu_ms(decide, 5, probe_again),
        "reading the records alone": cpu_ms(lambda: selectors.records_for(user, now=timezone.now())),
    }
    print("a decision with               CPU ms   ÷ kept plans")
    for name, value in rows.items():
        print(f"{name:28}  {value:7.1f}  {value / warm:12.2f}")


if __name__ == "__main__":
    main()
