"""What this host has: CPUs, memory, GPUs, load. Never what other users run on it."""

import os
import select
import signal
import time

GPU_FIELDS = "index,uuid,name,memory.total,memory.used"
GPU_TIMEOUT_S = 8.0
BUSY_SHARE = 0.1
"""A GPU with more than this share of its memory taken is in somebody's use, whoever it is."""


def read_text(path):
    """Return what a file holds, or None where it is absent or unreadable."""
    try:
        with open(path) as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError):
        return None


def boot_id():
    """Return the kernel's name for this boot; it changes with every restart of the host."""
    return (read_text("/proc/sys/kernel/random/boot_id") or "").strip()


def cpus():
    """Return the CPUs that programs of ours may use here: affinity and control-group quota, rounded down."""
    found = len(os.sched_getaffinity(0))
    for text in _limits("cpu", "cpu.max"):
        quota, _, period = text.partition(" ")
        if quota.isdigit() and period.strip().isdigit():
            found = min(found, int(quota) // int(period))
    quotas, periods = _limits("cpu", "cpu.cfs_quota_us"), _limits("cpu", "cpu.cfs_period_us")
    for quota, period in zip(quotas, periods):
        if int(quota) > 0 and int(period) > 0:
            found = min(found, int(quota) // int(period))
    return max(1, found)


def memory_mib():
    """Return the memory that programs of ours may use here, in MiB, rounded down."""
    found = _meminfo().get("MemTotal", 0) * 1024
    for text in _limits("memory", "memory.max") + _limits("memory", "memory.limit_in_bytes"):
        if text.isdigit() and int(text) > 0:
            found = min(found, int(text))
    return found // (1024 * 1024)


def memory_available_mib():
    """Return what the kernel says could be given to programs now, in MiB."""
    return _meminfo().get("MemAvailable", 0) // 1024


def oom_kills():
    """Return how many processes the kernel has killed for memory, on this host and in our control group."""
    texts = [read_text("/proc/vmstat") or ""] + _limits("memory", "memory.events")
    counts = []
    for text in texts:
        for line in text.splitlines():
            word, _, number = line.partition(" ")
            if word == "oom_kill" and number.strip().isdigit():
                counts.append(int(number))
    return sum(counts)


def gpus():
    """Return the NVIDIA GPUs, empty where there is no nvidia-smi, None where it gave no answer.

    Sliced ones (MIG) are marked; they are never whole GPUs.
    """
    if not _is_program("nvidia-smi"):
        return []
    text = _ask_gpus(GPU_FIELDS + ",mig.mode.current")
    if text is None:
        text = _ask_gpus(GPU_FIELDS)  # drivers older than MIG
    if text is None:
        return None
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) < 5 or not fields[0].isdigit():
            return None
        total, used = _number(fields[3]), _number(fields[4])
        found.append(
            {
                "uuid": fields[1],
                "name": fields[2],
                "memory_mib": total,
                "in_use": bool(total and used and used > total * BUSY_SHARE),
                "sliced": len(fields) > 5 and fields[5] == "Enabled",
            }
        )
    return found


def run_program(argv, timeout_s):
    """Return what a program prints, or None: absent, failed, or too slow (it is then killed)."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, 0)
            os.dup2(writing, 1)
            os.dup2(nowhere, 2)
            os.execvp(argv[0], argv)
        finally:
            os._exit(127)
    os.close(writing)
    until = time.monotonic() + timeout_s
    chunks = []
    while True:
        ready = select.select([reading], [], [], max(0.0, until - time.monotonic()))[0]
        data = os.read(reading, 65536) if ready else b""
        if not ready:
            os.kill(child, signal.SIGKILL)
        if not data:
            break
        chunks.append(data)
    os.close(reading)
    status = os.waitpid(child, 0)[1]
    return None if status else b"".join(chunks).decode("utf-8", "replace")


def _ask_gpus(fields):
    return run_program(
        ["nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader,nounits"], GPU_TIMEOUT_S
    )


def _is_program(name):
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return any(os.access(os.path.join(folder, name), os.X_OK) for folder in folders)


def _number(text):
    return int(text) if text.isdigit() else None


def _meminfo():
    found = {}
    for line in (read_text("/proc/meminfo") or "").splitlines():
        word, _, rest = line.partition(":")
        number = rest.split()
        if number and number[0].isdigit():
            found[word] = int(number[0])
    return found


def _limits(controller, name):
    """Return the texts of this file in our control group and in every group above it, innermost first."""
    found = []
    for line in (read_text("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = "/sys/fs/cgroup" + ("/" + controller if controllers else "")
        place = os.path.normpath(path)
        while True:
            text = read_text(base + place.rstrip("/") + "/" + name)
            if text is not None:
                found.append(text.strip())
            if place in ("/", ".", ""):
                break
            place = os.path.dirname(place)
    return found
