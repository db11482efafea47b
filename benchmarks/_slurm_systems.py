"""Make the clusters of a running lab systems of a running Facet, and print a researcher's token.

    DATA_DIR=… python -m benchmarks._slurm_systems ROOT_OF_THE_LAB

Run by `chaos_slurm.py`, in a process of its own: it speaks to the installation's database.
"""

import sys
from pathlib import Path

from benchmarks import _installed  # noqa: F401  # Django's settings come before models

# isort: split
from django.contrib.auth.models import User
from django.utils import timezone

from portal.skills.registry import Scope
from portal.tokens import issue_token
from tests.slurm.federation import Federation
from tests.slurm.lab.laboratory import Lab

ACCOUNTS = {
    "delta": ("bbka-delta-gpu", "bbka-delta-cpu"),
    "deltaai": ("bbka-dtai-gh",),
    "anvil": ("cis220051", "cis220051-gpu"),
    "vista": ("ASC24001",),
}
"""What Facet may spend at each."""


def main() -> None:
    federation = Federation(Lab.attach(Path(sys.argv[1])))
    alice = User.objects.create_user("alice")
    for name, cluster in federation.lab.clusters.items():
        federation.add(cluster, alice, *ACCOUNTS[name])
    scopes = [Scope(word) for word in ("read", "draft", "submit", "manage")]
    print(issue_token(alice, name="chaos", scopes=scopes, now=timezone.now())[1])


if __name__ == "__main__":
    main()
