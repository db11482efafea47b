"""Make emulated clusters and switch their faults from the command line.

python -m providers.sandbox.slurm create DIRECTORY delta [--seed 7]
python -m providers.sandbox.slurm fault DIRECTORY on controller_dead seconds=29 programs=squeue,sinfo
python -m providers.sandbox.slurm fault DIRECTORY off controller_dead
python -m providers.sandbox.slurm fault DIRECTORY list
python -m providers.sandbox.slurm event DIRECTORY node-fail gpua003 | node-resume gpua003
python -m providers.sandbox.slurm event DIRECTORY preempt 123 | oom 123 | recycle-ids 1
"""

import argparse
import sys
import time
from pathlib import Path

from providers.sandbox.slurm import events, faults
from providers.sandbox.slurm.setup import ANVIL, DELTA, DELTAAI, VISTA, create
from providers.sandbox.slurm.store import Store

SPECS = {spec.name: spec for spec in (DELTA, DELTAAI, ANVIL, VISTA)}


def main(argv: list[str]) -> int:
    """Do one command; 2 for a wrong one."""
    parser = argparse.ArgumentParser(prog="python -m providers.sandbox.slurm")
    verbs = parser.add_subparsers(dest="verb", required=True)
    make = verbs.add_parser("create")
    make.add_argument("directory", type=Path)
    make.add_argument("spec", choices=sorted(SPECS))
    make.add_argument("--seed", type=int, default=7)
    fault = verbs.add_parser("fault")
    fault.add_argument("directory", type=Path)
    fault.add_argument("action", choices=("on", "off", "list"))
    fault.add_argument("name", nargs="?", choices=faults.NAMES)
    fault.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    event = verbs.add_parser("event")
    event.add_argument("directory", type=Path)
    event.add_argument("kind", choices=sorted(events.KINDS))
    event.add_argument("subject")
    given = parser.parse_args(argv)
    if given.verb == "create":
        create(given.directory, SPECS[given.spec], seed=given.seed)
    elif given.verb == "event":
        events.happen(Store(str(given.directory)), given.kind, given.subject, now=time.time())
    elif given.action == "list":
        for name, setting in sorted(faults.active(str(given.directory)).items()):
            sys.stdout.write(f"{name} {setting}\n")
    elif given.name is None:
        parser.error("which fault?")
    elif given.action == "off":
        faults.switch_off(str(given.directory), given.name)
    else:
        faults.switch_on(str(given.directory), given.name, **_settings(given.settings))
    return 0


def _settings(words: list[str]) -> dict[str, object]:
    settings: dict[str, object] = {}
    for word in words:
        name, _, value = word.partition("=")
        settings[name] = value.split(",") if name == "programs" else value
    return settings


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
