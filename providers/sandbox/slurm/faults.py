"""Faults, switched on by files in `faults/`: what clients meet when daemons die, freeze, or lie.

Each fault is one JSON file, so a test or an operator can switch it with `echo` and `rm`:

    controller_dead  {"seconds": 29}     clients hang, then Slurm's words and rc 1; ping answers at once
    controller_frozen {"seconds": 30}    the same, ping included
    database_dead    {}                  sacct and sacctmgr fail at once
    slow             {"seconds": 3}      every answer is late
    truncated        {"bytes": 200}      output is cut
    garbage          {}                  output is not what was asked for
    localized        {}                  a banner and foreign words precede the answer
    answer_lost      {"seconds": 60, "times": 1}   sbatch makes the job, then is silent until killed
    submit_refused   {"words": "…", "times": 1}    sbatch refuses with these words
    yesterday        {}                  read commands repeat what they said when the fault was set

`programs` in any of them limits it to those; `times` removes it after so many hits.
"""

from __future__ import annotations

import json
import os
import time

from providers.sandbox.slurm.call import Call, Refused

NAMES = (
    "controller_dead", "controller_frozen", "database_dead", "slow", "truncated", "garbage", "localized",
    "answer_lost", "submit_refused", "yesterday",
)  # fmt: skip
CONNECT = "Unable to contact slurm controller (connect failure)"
TIMED_OUT = "Socket timed out on send/recv operation"
READERS = ("sinfo", "squeue", "sacct", "sacctmgr", "sprio", "scontrol")
DATABASE = ("sacct", "sacctmgr")
GARBAGE = (
    "\x00\x1b[31m<html><head><title>502 Bad Gateway</title></head>\nÿþ segmentation fault (core dumped)\n"
)
BANNER = (
    "*** Wartung am Dienstag, 9-17 Uhr. Bitte sichern Sie Ihre Daten. ***\n"
    "/usr/bin/id: Kann keinen Namen zur Gruppen-ID 4711 finden\n"
)

Setting = dict[str, object]


def active(directory: str) -> dict[str, Setting]:
    """Return the faults that are on."""
    found: dict[str, Setting] = {}
    place = os.path.join(directory, "faults")
    for name in os.listdir(place) if os.path.isdir(place) else []:
        base, dot, kind = name.rpartition(".")
        if kind != "json" or base not in NAMES or not dot:
            continue
        try:
            with open(os.path.join(place, name), encoding="utf-8") as file:
                found[base] = json.loads(file.read() or "{}")
        except (FileNotFoundError, ValueError):
            found[base] = {}
    return found


def switch_on(directory: str, name: str, **setting: object) -> None:
    """Switch a fault on.

    Raises:
        ValueError: there is no such fault.
    """
    if name not in NAMES:
        message = f"no fault {name!r}; there are {', '.join(NAMES)}"
        raise ValueError(message)
    path = os.path.join(directory, "faults", f"{name}.json")
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump({**setting, "since": time.time()}, file)
    os.replace(f"{path}.new", path)


def switch_off(directory: str, name: str) -> None:
    """Switch a fault off; one that is not on is no error."""
    path = os.path.join(directory, "faults", f"{name}.json")
    if os.path.exists(path):
        os.unlink(path)


def is_controller_down(directory: str) -> bool:
    """Return whether slurmctld is dead or frozen: then nothing is scheduled either."""
    place = os.path.join(directory, "faults")
    return any(os.path.exists(os.path.join(place, f"controller_{how}.json")) for how in ("dead", "frozen"))


def strike(directory: str, name: str, faults: dict[str, Setting], program: str) -> Setting | None:
    """Return the setting when the fault hits this program now, counting `times` down."""
    setting = faults.get(name)
    if setting is None:
        return None
    programs = setting.get("programs")
    if isinstance(programs, list) and program not in programs:
        return None
    times = setting.get("times")
    if times is not None:
        left = int(str(times)) - 1
        if left > 0:
            switch_on(directory, name, **{**setting, "times": left})
        else:
            switch_off(directory, name)
    return setting


def seconds(setting: Setting, default: float) -> float:
    """Return the fault's `seconds`."""
    return float(str(setting.get("seconds", default)))


def before(call: Call, faults: dict[str, Setting]) -> None:
    """Let a fault strike before the program does its work.

    Raises:
        Refused: with the words of the real clients, after their time-out.
    """
    directory, program = call.store.directory, call.program
    pinging = program == "scontrol" and "ping" in call.argv
    asks_controller = program not in DATABASE
    dead = strike(directory, "controller_dead", faults, program) if asks_controller else None
    frozen = strike(directory, "controller_frozen", faults, program) if asks_controller else None
    if dead is not None:
        if not pinging:
            time.sleep(seconds(dead, 29))
        _unreachable(call, CONNECT, pinging=pinging)
    if frozen is not None:
        time.sleep(seconds(frozen, 30))
        _unreachable(call, TIMED_OUT, pinging=pinging)
    if program in DATABASE and strike(directory, "database_dead", faults, program) is not None:
        lost = "failed to open persistent connection to host:127.0.0.1:6819: Connection refused"
        words = [
            f"{program}: error: slurm_persist_conn_open_without_init: {lost}",
            f"{program}: error: Sending PersistInit msg: Connection refused",
        ]
        if program == "sacct":
            words.append("sacct: error: Problem talking to the database: Connection refused")
        raise Refused("\n".join(words))
    slow = strike(directory, "slow", faults, program)
    if slow is not None:
        time.sleep(seconds(slow, 3))
    if program == "sbatch":
        refused = strike(directory, "submit_refused", faults, program)
        if refused is not None:
            raise Refused(
                "sbatch: error: Batch job submission failed: "
                + str(refused.get("words", "Unable to contact slurm controller (connect failure)"))
            )


def _unreachable(call: Call, why: str, *, pinging: bool) -> None:
    if pinging:
        host = call.store.read(call.now).config.get("SlurmctldHost[0]", "ctl").split("(")[0]
        call.say(f"Slurmctld(primary) at {host} is DOWN")
        call.say("*****************************************")
        call.say("** RESTORE SLURMCTLD DAEMON TO SERVICE **")
        call.say("*****************************************")
        raise Refused("")
    job = next((word for word in call.argv if word[:1].isdigit()), "")
    words = {
        "sinfo": f"slurm_load_partitions: {why}",
        "squeue": f"slurm_load_jobs error: {why}",
        "scontrol": f"slurm_load_{_entity(call)} error: {why}",
        "sbatch": f"sbatch: error: Batch job submission failed: {why}",
        "scancel": f"scancel: error: Kill job error on job id {job}: {why}",
        "sprio": f"sprio: error: Couldn't get priority factors from controller: {why}",
    }
    raise Refused(words.get(call.program, why), 8 if call.program == "scancel" else 1)


def _entity(call: Call) -> str:
    entities = {
        "node": "node",
        "nodes": "node",
        "partition": "partitions",
        "job": "jobs",
        "reservation": "reservations",
    }
    return next((entities[word] for word in call.argv if word in entities), "ctl_conf")


def after(call: Call, text: str, faults: dict[str, Setting]) -> str:
    """Return the standard output as the faults leave it; silent for ever where the answer is lost."""
    directory, program = call.store.directory, call.program
    if program == "sbatch":
        lost = strike(directory, "answer_lost", faults, program)
        if lost is not None:
            time.sleep(seconds(lost, 60))
            raise Refused(f"sbatch: error: Batch job submission failed: {TIMED_OUT}")
    if program in READERS and "yesterday" in faults:
        text = _remembered(call, text)
    if strike(directory, "localized", faults, program) is not None:
        text = BANNER + text
    if strike(directory, "garbage", faults, program) is not None:
        text = GARBAGE
    cut = strike(directory, "truncated", faults, program)
    if cut is not None:
        text = text[: int(str(cut.get("bytes", len(text) // 2)))]
    return text


def _remembered(call: Call, text: str) -> str:
    """Return what this very command said first since the fault was set."""
    from hashlib import sha256  # noqa: PLC0415 - one rare path

    name = sha256("\0".join([call.program, *call.argv]).encode()).hexdigest()[:16]
    path = os.path.join(call.store.directory, "faults", f"yesterday-{name}")
    try:
        if (
            os.stat(path).st_mtime
            >= os.stat(os.path.join(call.store.directory, "faults", "yesterday.json")).st_mtime
        ):
            with open(path, encoding="utf-8") as file:
                return file.read()
    except FileNotFoundError:
        pass
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return text
