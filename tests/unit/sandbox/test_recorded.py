"""The emulated programs print, byte for byte, what real Slurm 22.05.8 printed in the same state."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.sandbox.slurm import sacctmgr, scontrol, sinfo, squeue
from providers.sandbox.slurm.call import Call
from providers.sandbox.slurm.store import Store
from tests.unit.sandbox.recording import at, pairs, rebuilt, recorded, seconds

CLUSTERS = ("delta", "deltaai", "anvil", "vista")
PROGRAMS = {"sinfo": sinfo.run, "squeue": squeue.run, "scontrol": scontrol.run, "sacctmgr": sacctmgr.run}
SQUEUE_O = "%i|%A|%F|%K|%P|%j|%u|%a|%t|%T|%M|%l|%L|%D|%C|%b|%m|%r|%R|%q|%Q|%V|%S|%e|%E|%N|%f|%Y"
SQUEUE_LONG = (
    "JobID:|,JobArrayID:|,ArrayJobID:|,ArrayTaskID:|,HetJobID:|,HetJobOffset:|,UserName:|,Account:|,Partition:|,"
    "QOS:|,StateCompact:|,State:|,Reason:|,ReasonList:|,PriorityLong:|,NumNodes:|,NumCPUs:|,tres-per-job:|,"
    "tres-per-node:|,tres-alloc:|,gres:|,TimeLimit:|,TimeUsed:|,TimeLeft:|,SubmitTime:|,StartTime:|,EndTime:|,Comment:|"
)
SINFO_LONG = (
    "NodeList:|,Partition:|,StateCompact:|,StateLong:|,StateComplete:|,CPUsState:|,Memory:|,AllocMem:|,FreeMem:|,"
    "Gres:|,GresUsed:|,Features:|,features_act:|,Reason:|,Timestamp:|,User:|,Time:|,DefaultTime:|"
)
SINFO_O = "%N|%P|%t|%T|%C|%c|%m|%e|%G|%f|%l|%L|%E|%O|%X|%Y|%Z|%w"
HET = re.compile(r"^\s*(20\+[01]|2[01])[| ]")


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(params=CLUSTERS)
def cluster(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def moment(cluster: str, text: str, column: int = 10, start: int = 22) -> int:
    """When this queue was printed: the start of a running job plus its time used."""
    row = next(line.split("|") for line in text.splitlines() if "|RUNNING|" in line)
    return at(row[start]) + seconds(row[column])


def printed(tmp_path: Path, cluster: str, command: str, *arguments: str, now: int | None = None) -> str:
    text = recorded(cluster, "squeue_o.txt")
    now = moment(cluster, text) if now is None else now
    store = Store.create(str(tmp_path), rebuilt(cluster, now=now))
    program, *argv = command.split()
    call = Call(
        program, [*argv, *arguments], store=store, now=now, user="root", env={}, cwd="/", stdin=lambda: ""
    )
    assert PROGRAMS[program](call) == 0
    store.close()
    return "".join(f"{line}\n" for line in call.out)


def without_het(text: str, cluster: str) -> list[str]:
    """The lines, sorted; without heterogeneous jobs, and without pending `--gpus` jobs in long columns, whose
    nodes the controller counts as one until they start: neither is emulated.
    """
    lines = [line for line in text.splitlines() if cluster != "delta" or not HET.search(line)]
    lines = [line for line in lines if not re.search(r"PENDING.*\|gres:gpu:6\|N/A\|cpu=1,", line)]
    assert lines
    return sorted(lines)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("sinfo", "sinfo.txt"),
        ("sinfo -s", "sinfo_s.txt"),
        ("sinfo -R", "sinfo_R.txt"),
        ("sinfo -a -h -o %P|%a|%l|%L|%D|%C|%G|%p|%g|%h|%s|%T", "sinfo_parts.txt"),
        ("scontrol -a -o show nodes -d", "scontrol_o_nodes_d.txt"),
        ("scontrol -a show node", "scontrol_nodes.txt"),
        ("scontrol -a show partition", "scontrol_partition.txt"),
        ("scontrol show reservation", "scontrol_resv.txt"),
        (
            (
                "sacctmgr -nP show assoc format=cluster,account,user,partition,qos,defaultqos,fairshare,"
                "grptres,maxtres,maxwall,maxjobs,maxsubmit"
            ),
            "sacctmgr_assoc.txt",
        ),
        (
            (
                "sacctmgr -P show qos format=name,priority,flags,maxwall,maxtresperuser,maxjobsperuser,"
                "maxsubmitjobsperuser,grptres"
            ),
            "sacctmgr_qos.txt",
        ),
    ],
)
def test_a_table_is_the_recorded_one(tmp_path: Path, cluster: str, command: str, name: str) -> None:
    assert printed(tmp_path, cluster, command) == recorded(cluster, name)


def test_the_long_partition_table_is_the_recorded_one_below_its_date(tmp_path: Path, cluster: str) -> None:
    ours = printed(tmp_path, cluster, "sinfo -a -l").splitlines()
    theirs = recorded(cluster, "sinfo_all.txt").splitlines()

    assert ours[1:] == theirs[1:]
    assert re.fullmatch(r"Sun Nov 29 16:57:\d\d 2026", ours[0])


@pytest.mark.parametrize(
    ("flag", "columns", "name"), [("-O", SINFO_LONG, "sinfo_N_O.txt"), ("-o", SINFO_O, "sinfo_N_o.txt")]
)
def test_node_lines_are_the_recorded_ones(
    tmp_path: Path, cluster: str, flag: str, columns: str, name: str
) -> None:
    """The real program leaves the order of one node's partitions to chance: compared as a set of lines."""
    ours, theirs = printed(tmp_path, cluster, "sinfo -a -N", flag, columns), recorded(cluster, name)

    assert ours.splitlines()[0] == theirs.splitlines()[0]
    assert sorted(ours.splitlines()) == sorted(theirs.splitlines())


def test_the_queue_is_the_recorded_one_in_every_short_column(tmp_path: Path, cluster: str) -> None:
    theirs = recorded(cluster, "squeue_o.txt")
    ours = printed(tmp_path, cluster, "squeue -a -h -o", SQUEUE_O)

    assert without_het(ours, cluster) == without_het(theirs, cluster)


def test_the_queue_is_the_recorded_one_in_every_long_column(tmp_path: Path, cluster: str) -> None:
    theirs = recorded(cluster, "squeue_O.txt")
    now = moment(cluster, theirs, column=22, start=25)
    ours = printed(tmp_path, cluster, "squeue -a -O", SQUEUE_LONG, now=now)

    assert without_het(ours, cluster) == without_het(theirs, cluster)


def test_the_plain_queue_is_the_recorded_one(tmp_path: Path, cluster: str) -> None:
    theirs = recorded(cluster, "squeue.txt")
    running = next(line for line in theirs.splitlines() if re.search(r" R +\d+:\d\d ", line))
    used = re.search(r" R +(\S+) ", running)
    assert used
    row = next(
        line.split("|")
        for line in recorded(cluster, "squeue_o.txt").splitlines()
        if line.startswith(f"{running.split()[0]}|")
    )
    ours = printed(tmp_path, cluster, "squeue -a", now=at(row[22]) + seconds(used[1]))

    assert without_het(ours, cluster) == without_het(theirs, cluster)


def test_the_recording_reader_sees_what_it_should() -> None:
    assert pairs("A=1 B=x=2,y=3 C=(null)") == {"A": "1", "B": "x=2,y=3", "C": "(null)"}
