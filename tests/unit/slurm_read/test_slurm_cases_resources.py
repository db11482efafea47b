"""Hard cases of GRES, MIG, shards, node states, node lists and GPU names.

The words in `expected` are the cases' own; each test says what of ours they map to.
"""

import json
import re

import pytest

from providers.dialects.slurm.gres import NodeGres, read_gres, read_mig, read_tres, tres_gpus
from providers.dialects.slurm.hostlist import expand
from providers.dialects.slurm.nodes import read_nodes, read_state
from providers.dialects.slurm.partitions import read_partitions
from providers.dialects.slurm.queue import SHOW_QUEUE, job_gpus, read_queue
from providers.dialects.slurm.units import read_least_count
from providers.errors import UnparsableOutput
from providers.gpus import canonical_gpu, read_gpu
from providers.types import GpuPool, SlicePool
from tests.unit.slurm_read.as_json import read_nodes_json
from tests.unit.slurm_read.recordings import by_id, case, node_text, queue_text

# --- gres-parse ----------------------------------------------------------------------------------


def test_gres_parse_01_an_affinity_is_no_count_and_a_type_is_optional() -> None:
    given, expected = case("gres-parse-01")

    for line in given["output"].splitlines():
        name, _, gres = line.partition("|")
        found = [{"gres": e.name, "type": e.type, "count": e.count} for e in read_gres(gres)]
        assert found == expected[name]


def test_gres_parse_02_every_entry_counts_and_slices_count_apart() -> None:
    given, expected = case("gres-parse-02")
    gres = dict(line.split() for line in given["output"].splitlines())

    priv, migq = read_gres(gres["priv"]), read_gres(gres["migq"])

    assert {e.type: e.count for e in priv} == {"turing": 1, "ampere": 3}
    slices = [e for e in migq if e.type and read_mig(e.type)]
    assert sum(e.count for e in priv) == expected["priv"]["gpu_total"]
    assert sum(e.count for e in migq if e not in slices) == expected["migq"]["whole_gpu_total"]
    assert sum(e.count for e in slices) == expected["migq"]["mig_slices"]


def test_gres_parse_04_no_index_is_zero_used() -> None:
    given, expected = case("gres-parse-04")
    entries = read_gres(given["output"].removeprefix("GresUsed="))
    gpus = [e for e in entries if e.name == "gpu"]

    assert {f"gpu:{e.type}": e.count for e in gpus} == expected["used"]
    assert {e.type: list(e.indexes or ()) for e in gpus} == expected["gpu_index_used"]
    assert [e.name for e in entries[2:]] == ["shard", "lscratch", "mps"]


def test_gres_parse_08_gpus_of_a_job_come_from_what_it_was_allocated() -> None:
    given, expected = case("gres-parse-08")
    requests = {line.split("|")[0]: line.split("|")[2] for line in given["output"].splitlines()}
    allocated = {name: re.search(r"cpu=\S+", text) for name, text in given["also"].items()}

    found = {"811": job_gpus("cpu=8,mem=1G,node=1,gres/gpu=2,gres/gpu:a100=2", requests["811"], "", 1)[0]}
    for name, tres in allocated.items():
        assert tres is not None
        found[name] = job_gpus(tres[0], requests[name], "N/A", 1)[0]

    assert found == expected["gpus_by_job"]
    assert "tres-alloc" in SHOW_QUEUE[-1]


def test_gres_parse_10_a_property_is_not_consumed_and_suffixes_multiply() -> None:
    given, expected = case("gres-parse-10")
    entries = read_gres(given["value"])

    assert [(e.name, e.type, e.count) for e in entries] == [
        (e["name"], e["type"], e["count"]) for e in expected["entries"]
    ]
    assert [e.consumed for e in entries] == [True, False, True]
    assert sum(e.count for e in entries if e.name == "gpu") == expected["gpus"]


def test_gres_parse_12_columns_never_have_a_width_so_none_can_run_together() -> None:
    given, _ = case("gres-parse-12")

    assert re.search(r":\.?\d", SHOW_QUEUE[-1]) is None
    with pytest.raises(UnparsableOutput, match="cut record"):
        read_queue(given["output"])


def test_gres_parse_13_a_draining_node_offers_nothing() -> None:
    given, expected = case("gres-parse-13")
    text = given["output"].replace(" Reason=", " RealMemory=512000 AllocMem=36000 Reason=")

    (node,) = read_nodes(text)

    want = expected["wg01"]
    assert node.gpus == (
        GpuPool(
            type="a100",
            total=want["gpus_total"],
            used=want["gpus_allocated"],
            free=want["gpus_schedulable_now"],
        ),
    )
    assert node.reason == "GPU 2 ECC errors"


def test_gres_parse_14_gpus_without_a_free_cpu_or_memory_are_stranded() -> None:
    given, expected = case("gres-parse-14")
    for line in given["output"].splitlines():
        name, cpus, gres, used, allocated, memory, _ = line.split()
        busy, _, _, total = cpus.split("/")
        text = node_text(
            name,
            CPUAlloc=busy,
            CPUTot=total,
            Gres=gres,
            GresUsed=used,
            AllocMem=allocated,
            RealMemory=memory,
            State="ALLOCATED",
            AllocTRES="gres/gpu=2",
        )

        (pool,) = read_nodes(text)[0].gpus

        assert pool.total - pool.used == expected[name]["gpus_idle_hw"]
        assert pool.free == expected[name]["gpus_schedulable_now"]


@pytest.mark.parametrize(("busy_cpus", "free"), [("0", 4), ("1", 3)])
def test_a_gpu_that_a_killed_controller_left_in_alloctres_is_held_only_where_a_job_is(
    busy_cpus: str, free: int
) -> None:
    text = node_text(
        Gres="gpu:a100:4(S:0-1)",
        GresUsed="gpu:a100:0(IDX:N/A)",
        CPUAlloc=busy_cpus,
        CPUTot="64",
        State="MIXED" if free < 4 else "IDLE",
        AllocTRES="gres/gpu:a100=1",
    )

    assert read_nodes(text)[0].gpus == (GpuPool(type="a100", total=4, used=4 - free, free=free),)


def test_gres_parse_16_nodes_are_counted_by_node_not_by_lines_of_a_partition() -> None:
    _, expected = case("gres-parse-16")
    draining = {"State": "MIXED+DRAIN", "CPUTot": "128", "CPUAlloc": "32"}  # printed as 32/0/96/128
    text = (
        node_text("a", Gres="gpu:X1:2(S:0-1)", Partitions="dev", **draining)
        + node_text("b", Gres="gpu:X1:2", CPUTot="128", State="DOWN", Partitions="dev")
        + node_text("c", CPUTot="40", CPUAlloc="5", State="MIXED", Partitions="dev")
    )

    nodes = read_nodes(text)

    assert len(nodes) == expected["dev"]["nodes_total"]
    assert sum(n.state == "down" for n in nodes) == expected["dev"]["nodes_other"]
    assert sum(p.total for n in nodes for p in n.gpus) == expected["dev"]["gpus_configured"]
    assert sum(n.cpus_free for n in nodes) == expected["dev"]["cpus_idle"]
    assert {p.type for n in nodes for p in n.gpus} == set(expected["dev"]["gpu_types"])


def test_gres_parse_17_a_node_that_registered_wrongly_offers_nothing() -> None:
    given, expected = case("gres-parse-17")
    text = given["output"].replace(" CfgTRES", " CPUAlloc=0 CPUTot=64 RealMemory=512000 AllocMem=0 CfgTRES")

    (node,) = read_nodes(text)

    assert node.gpus == (GpuPool(type="a100", total=4, used=0, free=expected["gpus_schedulable_now"]),)
    assert "INVALID_REG" in node.flags
    assert not node.usable
    assert node.reason.startswith("gres/gpu count reported lower than configured (0 < 4), Low RealMemory")
    assert not read_state(given["sinfo_state"]).usable


def test_gres_parse_18_typed_entries_of_a_tres_string_are_the_whole_gpus() -> None:
    given, expected = case("gres-parse-18")
    tres = read_tres(given["output"].partition(" TRES=")[2])
    typed = {k.removeprefix("gres/gpu:"): n for k, n in tres.items() if k.startswith("gres/gpu:")}

    assert typed == expected["typed"]
    assert sum(typed.values()) == expected["whole_gpus"]
    assert tres["gres/gpu"] - sum(typed.values()) == expected["mig_or_untyped"]


def test_gres_parse_19_the_node_knows_what_the_job_of_20_11_does_not() -> None:
    given, expected = case("gres-parse-19")
    gres = NodeGres(read_gres("gpu:a100:4"), (), read_tres(given["node_AllocTRES"]["20.11"]))

    assert tres_gpus(read_tres(given["job_AllocTRES"]["20.11"])) == (1, None)
    assert tres_gpus(read_tres(given["job_AllocTRES"]["22.05"])) == (1, expected["job_gpu_type"]["22.05"])
    assert gres.pools(open_now=True)[0] == (
        GpuPool(type="a100", total=4, used=expected["node_used"]["a100"], free=1),
    )


def test_dialect_differences_02_two_requests_for_gpus_are_not_added_up() -> None:
    given, expected = case("dialect-differences-02")

    for spelling in given["scheduler_reports"].values():
        request = spelling.removeprefix("TresPerNode=")
        assert job_gpus(given["ReqTRES"], request, "N/A", 1)[0] == expected["gpus_per_node"]


# --- slices --------------------------------------------------------------------------------------


def test_shards_01_a_gpu_with_a_shard_in_use_is_not_whole_and_a_whole_one_has_no_shards() -> None:
    given, expected = case("shards-01")
    fields = dict(line.partition("=")[::2] for line in given["output"].splitlines())

    gpus, slices = NodeGres(
        read_gres(fields["Gres"]), read_gres(fields["GresUsed"]), read_tres(fields["AllocTRES"])
    ).pools(open_now=True)

    assert gpus == (
        GpuPool(
            type="a100",
            total=expected["gpu_total"],
            used=expected["gpu_allocated_whole"],
            free=expected["gpu_free_whole"],
        ),
    )
    assert slices == (
        SlicePool(
            kind="shard",
            profile="a100",
            total=expected["shards_total"],
            used=expected["shards_used"],
            free=expected["shards_free_on_shareable_gpus"],
        ),
    )
    assert read_gres(fields["GresUsed"])[1].per_device == tuple(
        (gpu["used"], gpu["of"]) for gpu in expected["per_gpu_shards"]
    )


def test_mig_01_a_profile_at_the_end_of_a_type_makes_it_a_slice() -> None:
    given, expected = case("mig-01")
    entries = read_gres(given["output"].split()[1])
    profile = expected["hn12"]["mig"]["nvidia_h200_nvl_4g.71gb"]

    gpus, slices = NodeGres(entries, (), {}).pools(open_now=True)
    mig = read_mig("nvidia_h200_nvl_4g.71gb")

    assert {pool.type: pool.total for pool in gpus} == expected["hn12"]["whole_gpus"]
    assert [(s.profile, s.total) for s in slices] == [("nvidia_h200_nvl_4g.71gb", profile["slices"])]
    assert mig is not None
    assert (mig.compute_slices, mig.memory_gb) == (profile["compute_slices"], profile["memory_gb"])
    assert mig.model == "nvidia_h200_nvl"


# --- node-state ----------------------------------------------------------------------------------


def test_node_state_02_planned_is_known_and_is_a_flag() -> None:
    given, _ = case("node-state-02")
    states = {n: read_state(s) for n, s in (line.split() for line in given["output"].splitlines())}

    assert {n: (s.base, *s.flags) for n, s in states.items()} == {
        "wg01": ("idle", "PLANNED"),
        "wg02": ("mixed", "PLANNED"),
        "wg03": ("idle",),
    }


def test_node_state_03_symbols_of_power_saving_are_flags_and_keep_jobs_out() -> None:
    given, _ = case("node-state-03")
    states = [read_state(line.split()[1]) for line in given["output"].splitlines()]

    assert [(s.base, *s.flags) for s in states] == [
        ("idle", "POWERED_DOWN"),
        ("idle", "POWERING_UP"),
        ("idle", "POWERING_DOWN"),
        ("idle", "POWER_DOWN"),
        ("allocated", "POWERING_UP"),
    ]
    assert not any(s.usable for s in states)


def test_node_state_05_a_reserved_node_is_not_for_everybody() -> None:
    given, _ = case("node-state-05")

    assert not read_state(given["scontrol"].removeprefix("State=")).usable
    assert not read_state("+".join(given["json_state"])).usable
    (node,) = read_nodes(node_text(State="MIXED+RESERVED", CPUTot="48", CPUAlloc="1"))
    assert node.cpus_free == 0
    (part,) = read_nodes(
        node_text("wm01", State="MIXED+RESERVED", CPUTot="48", CPUAlloc="1"), partly_reserved={"wm01": 8}
    )
    assert part.cpus_free == 39, "only cores outside the reservation"


def test_node_state_08_four_spellings_are_one_state() -> None:
    given, expected = case("node-state-08")
    same = given["same_node"]
    spellings = [
        same["scontrol"].removeprefix("State="),
        "+".join((same["json_22_05"]["state"], *same["json_22_05"]["state_flags"])),
        "+".join(same["json_25_11"]["state"]),
        *same["sinfo"].split(" / "),
    ]

    for spelling in spellings:
        state = read_state(spelling)
        assert (state.base, [flag.lower() for flag in state.flags]) == (
            expected["canonical"]["base"],
            expected["canonical"]["flags"],
        )
        assert state.usable is expected["canonical"]["accepts_new_jobs"]


def test_node_state_09_symbols_inside_old_states_mean_the_same_as_words() -> None:
    given, expected = case("node-state-09")

    for spelling in ("slurm20", "slurm21+"):
        for text, want in zip(given["scontrol"][spelling], expected["canonical"], strict=True):
            state = read_state(text)
            assert state.base == want["base"]
            assert sorted(flag.lower() for flag in state.flags) == want["flags"]


def test_node_state_10_cpus_of_a_drained_node_are_not_idle() -> None:
    given, expected = case("node-state-10")
    for line in given["output"].splitlines():
        name, state, cpus = line.split("|")
        busy, _, _, total = cpus.split("/")

        (node,) = read_nodes(node_text(name, State=state.upper(), CPUAlloc=busy, CPUTot=total))

        assert node.cpus_free == expected["idle_cpus"][name]


def test_node_state_11_a_plus_marks_a_minimum() -> None:
    given, expected = case("node-state-11")
    name, cpus, memory, _, _ = given["output"].split()

    assert read_least_count(cpus) == expected["min_cpus_per_node"]
    assert read_least_count(memory) == expected["min_mem_mb"]
    (partition,) = read_partitions(
        f"PartitionName={name.removesuffix('*')} Default=YES State=UP TotalNodes=11 TotalCPUs=500 "
        "Nodes=a[01-11] MaxTime=UNLIMITED MaxNodes=UNLIMITED"
    )
    assert (partition.name, partition.is_default) == (expected["partition"], expected["default"])
    assert partition.nodes_total == expected["nodes"]


def test_node_state_13_counts_decide_how_full_a_node_is_not_the_base_word() -> None:
    given, expected = case("node-state-13")
    one = given["same_node_same_second_22.05"]
    busy, _, _, total = one["%C"].split("/")
    for spelling in (one["sinfo -O StateComplete"], one["scontrol State"], one["sinfo %T"]):
        (node,) = read_nodes(node_text(State=spelling.upper(), CPUAlloc=busy, CPUTot=total))

        assert node.cpus_total == 64
        assert node.cpus_free == expected["canonical"]["cpus_idle_usable"]
        assert "DRAIN" in node.flags


def test_json_schema_drift_05_renamed_and_reshaped_keys_give_the_same_node() -> None:
    given, _ = case("json-schema-drift-05")
    common = (
        '"name": "wg01", "cpus": 64, "alloc_cpus": 9, "real_memory": 512000, "alloc_memory": 36000,'
        ' "gres": "", "gres_used": "", "tres_used": "", "partitions": ["gpu"]'
    )
    documents = [
        f'{{"nodes": [{{{common}, {str(node)[1:-1].replace(chr(39), chr(34)).replace("True", "true")}}}]}}'
        for node in given["node"].values()
    ]
    old, new = (read_nodes_json(text.replace("False", "false"))[0] for text in documents)

    assert old == new
    assert (old.state, *old.flags, *old.features) == ("mixed", "DRAIN", "a100", "ib")


def test_exclusive_billing_02_cpus_set_aside_for_the_system_are_not_offered() -> None:
    _, expected = case("exclusive-billing-02")

    (node,) = read_nodes(node_text(CPUTot="128", CPUEfctv="124", ThreadsPerCore="2"))

    assert node.cpus_total == expected["schedulable_cpus"]
    row = {"name": "a", "state": ["IDLE"], "cpus": 128, "effective_cpus": 124, "alloc_cpus": 0}
    row |= {"real_memory": 1000, "alloc_memory": 0}
    (from_json,) = read_nodes_json(json.dumps({"nodes": [row]}))
    assert from_json.cpus_free == expected["schedulable_cpus"]


def test_exclusive_billing_01_an_exclusive_job_holds_the_whole_node() -> None:
    given, expected = case("exclusive-billing-01")
    allocated = re.search(r"AllocTRES=(\S+)", given["output"])

    assert allocated is not None
    assert job_gpus(allocated[1], "(null)", "N/A", 1) == (
        expected["allocated"]["gpus"],
        "a100",
        expected["allocated"]["mem_mb"],
    )


# --- node-list -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["node-list-01", "node-list-02", "node-list-05"])
def test_node_lists_expand_in_their_own_order(name: str) -> None:
    given, expected = case(name)

    assert list(expand(given["expr"])) == expected["hosts"]


def test_node_list_06_no_nodes_has_many_spellings() -> None:
    given, expected = case("node-list-06")

    assert [list(expand(field["value"])) for field in given["fields"]] == expected["hosts"]


# --- gpu-naming ----------------------------------------------------------------------------------


def test_gpu_naming_01_types_as_sites_spell_them() -> None:
    given, expected = case("gpu-naming-01")
    families = {"h100nvl": "h100", "mi200family": "mi200"}

    for spelled, want in zip(given["types"], expected["canonical"], strict=True):
        gpu = read_gpu(spelled)
        if want["model"] == "MIG":
            assert gpu is None
            assert read_mig(spelled) is not None
            continue
        assert gpu is not None, spelled
        plain = want["model"].lower().replace("-", "")
        assert gpu.family == families.get(plain, plain)
        assert gpu.mig == want.get("mig", "")
        assert canonical_gpu(spelled) == (None if gpu.mig else gpu.family)
        size = want.get("mem_gb")
        assert gpu.memory_mib == (size * 1024 if size else None), spelled
    nvl = read_gpu("h100_nvl")
    assert nvl is not None
    assert nvl.variant == "nvl"


# --- queue ---------------------------------------------------------------------------------------


def test_memory_per_cpu_06_a_pending_job_is_read_by_its_requested_tres() -> None:
    given, expected = case("memory-per-cpu-vs-per-node-06")
    for reported in given["pending"].values():
        tres = reported.partition("ReqTRES=")[2].replace("...", "node=1")
        job = by_id(read_queue(queue_text({"tres-alloc": tres, "tres-per-job": "gres:gpu:4"})))["44"]

        assert (job.gpus, job.memory_mib) == (expected["gpus"], expected["mem_total_mb"])


def test_memory_per_cpu_01_memory_is_what_was_allocated() -> None:
    given, expected = case("memory-per-cpu-vs-per-node-01")
    allocated = given["sacct"].split("|")[3]

    assert read_tres(allocated)["mem"] == expected["allocated_mem_mb"]


@pytest.mark.parametrize("text", ["ß", "ıdle", "idle\u00a0", "", "?"])
def test_a_letter_that_only_looks_like_a_state_in_upper_case_is_refused(text: str) -> None:
    with pytest.raises(UnparsableOutput, match="no node state"):
        read_state(text)
