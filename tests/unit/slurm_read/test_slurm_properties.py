"""What holds for every input: round trips, and junk that never becomes a number in silence."""

import json
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.dialects.slurm.gres import NodeGres, read_gres, read_tres
from providers.dialects.slurm.hostlist import compress, expand, read_job_id, read_tasks
from providers.dialects.slurm.limits import read_associations, read_fairshare, read_qos, read_used
from providers.dialects.slurm.nodes import read_nodes, read_state
from providers.dialects.slurm.partitions import read_partitions
from providers.dialects.slurm.queue import read_queue
from providers.dialects.slurm.reservations import partly_reserved, read_reservations
from providers.dialects.slurm.units import (
    read_count,
    read_duration_s,
    read_exit_code,
    read_instant,
    read_limit_s,
    read_memory_mib,
    read_requested_memory_mib,
    read_requested_walltime_s,
)
from providers.errors import InvalidInput, SchedulerDown, UnparsableOutput
from tests.unit.slurm_read.as_json import read_nodes_json, read_partitions_json, read_queue_json
from tests.unit.slurm_read.recordings import node_text, queue_text, recorded

HOSTS = st.from_regex(r"[a-z][a-z\-]{0,6}([0-9]{1,4})?([a-z]{1,2}[0-9]{1,3})?", fullmatch=True)
READERS = [
    expand,
    read_job_id,
    read_tasks,
    read_gres,
    read_tres,
    read_state,
    read_nodes,
    read_nodes_json,
    read_partitions,
    read_partitions_json,
    read_queue,
    read_queue_json,
    read_reservations,
    partly_reserved,
    read_qos,
    read_associations,
    read_fairshare,
    read_used,
    read_count,
    read_duration_s,
    read_exit_code,
    read_instant,
    read_limit_s,
    read_memory_mib,
]


# --- host lists ----------------------------------------------------------------------------------


@given(st.sets(HOSTS, max_size=40))
def test_compressed_host_lists_expand_to_the_same_nodes(names: set[str]) -> None:
    assert sorted(expand(compress(names))) == sorted(names)


@given(st.sets(st.integers(0, 400), min_size=1, max_size=60), st.integers(3, 5))
def test_zero_padding_survives(numbers: set[int], width: int) -> None:
    names = [f"gpu{number:0{width}d}" for number in sorted(numbers)]

    assert list(expand(compress(names))) == names


def test_a_run_of_nodes_is_one_range() -> None:
    assert compress(["n3", "n1", "n2", "n7", "login"]) == "login,n[1-3,7]"


@pytest.mark.parametrize(
    "text", ["a[1-3", "a1]", "a[3-1]", "a[]", "a[1-x]", "a b", "a[1-999999]", "ä1", "a,,b"]
)
def test_a_broken_host_list_is_refused(text: str) -> None:
    with pytest.raises(UnparsableOutput):
        expand(text)


# --- durations and memory ------------------------------------------------------------------------


@given(st.integers(0, 5000), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_a_printed_duration_is_read_to_the_second(days: int, hours: int, minutes: int, seconds: int) -> None:
    total = days * 86_400 + hours * 3600 + minutes * 60 + seconds
    clock = f"{hours:02d}:{minutes:02d}:{seconds:02d}"

    assert read_duration_s(f"{days}-{clock}") == total
    assert read_duration_s(f"{days * 24 + hours}:{minutes:02d}:{seconds:02d}") == total
    assert read_duration_s(f"{hours * 60 + minutes}:{seconds:02d}") == total - days * 86_400


@given(st.integers(1, 10**6))
def test_a_requested_limit_is_rounded_up_to_whole_minutes(seconds: int) -> None:
    granted = read_requested_walltime_s(f"{seconds // 60}:{seconds % 60:02d}")

    assert granted is not None
    assert seconds <= granted < seconds + 60
    assert granted % 60 == 0


@given(st.integers(0, 10**7))
def test_requests_round_up_and_capacity_rounds_down(kibibytes: int) -> None:
    assert read_memory_mib(f"{kibibytes}K") == kibibytes // 1024
    assert read_requested_memory_mib(f"{kibibytes}K") == -(-kibibytes // 1024)


@given(st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)))  # noqa: DTZ001  # Slurm prints no zone
def test_an_instant_survives(moment: datetime) -> None:
    whole = moment.replace(microsecond=0)

    assert read_instant(whole.isoformat()) == whole.replace(tzinfo=UTC)


# --- GPUs ----------------------------------------------------------------------------------------


@given(st.integers(1, 16), st.integers(0, 16), st.integers(0, 16), st.booleans())
def test_free_gpus_are_never_more_than_any_source_leaves(
    total: int, shown: int, allocated: int, open_now: bool
) -> None:
    gres = NodeGres(
        read_gres(f"gpu:a100:{total}"), read_gres(f"gpu:a100:{shown}"), read_tres(f"gres/gpu={allocated}")
    )

    ((pool,), slices) = gres.pools(open_now=open_now)

    assert pool.free == (max(0, total - max(shown, allocated)) if open_now else 0)
    assert pool.used <= pool.total
    assert slices == ()


@given(st.integers(1, 8), st.integers(0, 8), st.integers(0, 7))
def test_slices_never_become_gpus(whole: int, used: int, slices: int) -> None:
    gres = NodeGres(
        read_gres(f"gpu:h100:{whole},gpu:h100_1g.10gb:7"),
        read_gres(f"gpu:h100:{min(used, whole)}(IDX:0-7),gpu:h100_1g.10gb:{slices}(IDX:0-6)"),
        read_tres(f"gres/gpu={min(used, whole) + slices}"),
    )

    (gpus, parts) = gres.pools(open_now=True)

    assert [(p.type, p.total, p.free) for p in gpus] == [("h100", whole, whole - min(used, whole))]
    assert [(p.kind, p.total, p.free) for p in parts] == [("mig", 7, 7 - slices)]


def test_use_that_cannot_be_laid_to_one_type_is_held_against_every_type() -> None:
    gres = NodeGres(read_gres("gpu:a100:2,gpu:a40:2"), (), read_tres("gres/gpu=1"))

    (gpus, _) = gres.pools(open_now=True)

    assert [pool.free for pool in gpus] == [1, 1]


def test_untyped_use_of_one_untyped_pool_matches() -> None:
    gres = NodeGres(read_gres("gpu:4(S:0-1)"), read_gres("gpu:(null):3(IDX:0-2)"), read_tres("gres/gpu=3"))

    ((pool,), _) = gres.pools(open_now=True)

    assert (pool.type, pool.used, pool.free) == (None, 3, 1)


def test_mps_in_use_takes_its_gpu_away() -> None:
    gres = NodeGres(
        read_gres("gpu:a100:2,mps:a100:200"), read_gres("gpu:a100:0(IDX:N/A),mps:a100:50(50/100,0/100)"), {}
    )

    ((pool,), _) = gres.pools(open_now=True)

    assert pool.free == 1


# --- junk ----------------------------------------------------------------------------------------


def _is_junk(text: str) -> bool:
    """Whether no spelling of a number, a name or of nothing can hide in the text."""
    return bool(text.strip(" \t\n-.,_").strip()) and not any(c.isascii() and c.isalnum() for c in text)


JUNK = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60).filter(_is_junk)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@settings(max_examples=50)
@given(junk=JUNK)
def test_junk_is_refused_and_never_read(reader: object, junk: str) -> None:
    assert callable(reader)

    with pytest.raises(UnparsableOutput):
        reader(junk)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@settings(max_examples=50)
@given(text=st.text(max_size=80))
def test_no_text_raises_anything_but_our_own_errors(reader: object, text: str) -> None:
    assert callable(reader)

    with suppress(UnparsableOutput, SchedulerDown):
        reader(text)


@given(st.text(max_size=30))
def test_what_a_person_asks_for_is_read_or_refused(text: str) -> None:
    for reader in (read_requested_walltime_s, read_requested_memory_mib):
        try:
            value = reader(text)
        except InvalidInput:
            continue
        assert value is None or value >= 0


NODE = node_text(Gres="gpu:a100:4", GresUsed="gpu:a100:1(IDX:0)", AllocTRES="cpu=8,mem=8G,gres/gpu=1")
QUEUE = queue_text(
    {"tres-alloc": "cpu=1,mem=4G,node=1,gres/gpu=2", "NodeList": "a[1-2]"}, {"JobArrayID": "7"}
)


@given(st.integers(0, len(QUEUE) - 1))
def test_a_queue_cut_anywhere_is_refused_or_one_whole_record_short(at: int) -> None:
    whole = read_queue(QUEUE)

    try:
        seen = read_queue(QUEUE[:at])
    except UnparsableOutput:
        return
    assert seen == whole[: len(seen)]
    assert len(seen) < 2


@given(st.sampled_from(["CPUAlloc", "CPUTot", "RealMemory", "AllocMem"]), st.text(min_size=1, max_size=8))
def test_a_spoiled_number_of_a_node_is_refused_or_is_that_number(key: str, value: str) -> None:
    spoiled = NODE.replace(f"{key}=", f"{key}={''.join(value.split())}_")

    with pytest.raises(UnparsableOutput):
        read_nodes(spoiled)


@given(st.data())
def test_a_json_document_with_a_spoiled_number_is_refused(data: st.DataObject) -> None:
    document = json.loads(recorded("versions/25.11/scontrol_node.json"))
    node = document["nodes"][0]
    key = data.draw(st.sampled_from(["cpus", "alloc_cpus", "real_memory", "alloc_memory"]))
    node.pop("effective_cpus", None)
    node[key] = data.draw(
        st.sampled_from(["eight", -1, [], True, {"set": True}, {"infinite": True}, float("nan")])
    )

    with pytest.raises(UnparsableOutput):
        read_nodes_json(json.dumps(document))
