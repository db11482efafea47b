"""What a probe shows of this machine, and of GPUs as nvidia-smi prints them."""

import os
from pathlib import Path

from providers.links.local import LocalLink
from providers.types import GpuPool, JobState
from tests.unit.machine.conftest import Host

SMI = """\
0, GPU-aaaa, NVIDIA A100-SXM4-40GB, 40960, 3, Disabled
1, GPU-bbbb, NVIDIA A100-SXM4-40GB, 40960, 30000, Disabled
2, GPU-cccc, NVIDIA A100-SXM4-40GB, 40960, 0, Enabled
3, GPU-dddd, Tesla V100-PCIE-16GB, 16384, 0, [N/A]
"""


def _with_gpus(host: Host, printed: str, *, rc: int = 0) -> None:
    folder = host.root / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "smi.txt").write_text(printed)
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat '{folder}/smi.txt'\nexit {rc}\n")
    program.chmod(0o755)
    host.env["PATH"] = f"{folder}:{os.environ['PATH']}"
    host.link = LocalLink(env=host.env)


def test_the_figures_are_this_machines(host: Host) -> None:
    probe = host.probe()

    node = probe.nodes[0]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert node.name == probe.cluster == os.uname().nodename
    assert node.cpus_total == node.cpus_free <= len(os.sched_getaffinity(0))
    assert node.memory_total_mib == node.memory_free_mib
    assert node.memory_total_mib is not None
    assert 0 < node.memory_total_mib <= pages // 2**20
    assert node.architecture == os.uname().machine
    assert (node.state, node.usable, node.partitions) == ("idle", True, ("local",))
    assert probe.scheduler == f"machine (Linux {os.uname().release})"
    assert (probe.user, probe.jobs, probe.jobs_visible) == ("ada", (), True)
    assert probe.partitions is not None
    partition = probe.partitions[0]
    assert (partition.name, partition.state, partition.max_nodes) == ("local", "up", 1)
    assert (partition.max_walltime_s, partition.nodes_total, partition.cpus_total) == (
        None,
        1,
        node.cpus_total,
    )


def test_our_own_jobs_are_the_queue(host: Host) -> None:
    cpus = host.probe().nodes[0].cpus_total
    host.submit("k1", "sleep 30", cpus=cpus, memory_mib=100)
    host.submit("k2", "true", cpus=1)

    running, waiting = host.probe().jobs

    assert (running.job_id, running.state, running.name, running.comment) == (
        "1",
        JobState.RUNNING,
        "job k1",
        "facet:k1",
    )
    assert (running.user, running.cpus, running.memory_mib, running.walltime_s) == ("ada", cpus, 100, 60)
    assert running.node_names == (os.uname().nodename,)
    assert running.start_at is not None
    assert (waiting.job_id, waiting.state, waiting.node_names) == ("2", JobState.QUEUED, ())
    assert (waiting.start_at, waiting.reason) == (None, "It waits for its turn; open jobs before it: 1.")


def test_gpus_are_free_when_nobody_uses_them_and_whole(host: Host) -> None:
    _with_gpus(host, SMI)

    probe = host.probe()

    assert probe.nodes[0].gpus == (
        GpuPool(type="NVIDIA A100-SXM4-40GB", total=2, used=1, free=1),
        GpuPool(type="Tesla V100-PCIE-16GB", total=1, used=0, free=1),
    )
    assert "GPUs sliced by MIG are not offered: 1" in probe.warnings


def test_a_job_is_given_free_gpus_of_its_type_and_the_next_waits(host: Host) -> None:
    _with_gpus(host, SMI)
    kind = "NVIDIA A100-SXM4-40GB"

    host.submit("k1", "echo $CUDA_VISIBLE_DEVICES; sleep 30", gpus=1, gpu_type=kind)
    host.submit("k2", "echo $CUDA_VISIBLE_DEVICES", gpus=1, gpu_type=kind)
    host.wait(lambda: host.text("k1"))

    assert host.text("k1") == "GPU-aaaa\n"
    assert host.see("k2").state is JobState.QUEUED
    assert host.probe().nodes[0].gpus[0].free == 0
    host.cancel("k1")
    assert host.until("k2").state is JobState.COMPLETED
    assert host.text("k2") == "GPU-aaaa\n"


def test_a_job_without_gpus_sees_none(host: Host) -> None:
    _with_gpus(host, SMI)

    host.submit("k1", 'echo "[${CUDA_VISIBLE_DEVICES-unset}]"')
    host.until("k1")

    assert host.text("k1") == "[]\n"


def test_more_gpus_than_there_are_is_refused(host: Host) -> None:
    _with_gpus(host, SMI)

    result = host.submit("k1", gpus=3, gpu_type="NVIDIA A100-SXM4-40GB")

    assert (result.outcome, result.said) == ("rejected", "the job wants 3 NVIDIA A100-SXM4-40GB GPUs of 2")


def test_an_nvidia_smi_that_fails_offers_nothing_and_says_so(host: Host) -> None:
    _with_gpus(host, "Failed to initialize NVML\n", rc=9)

    probe = host.probe()

    assert probe.nodes[0].gpus == ()
    assert "nvidia-smi gave no answer; no GPU is offered" in probe.warnings


def test_the_queue_is_in_the_home_directory_where_nothing_else_is_said(tmp_path: Path) -> None:
    host = Host(tmp_path)
    del host.env["FACET_MACHINE_DIR"]
    host.link = LocalLink(env=host.env)

    host.probe()

    assert (tmp_path / ".facet-machine" / os.uname().nodename / "jobs").is_dir()
