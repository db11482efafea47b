"""What a job's script sees: SLURM_* variables, and output file names with their % patterns.

Source: sbatch(1) OUTPUT ENVIRONMENT VARIABLES and FILENAME PATTERN.
"""

from __future__ import annotations

import re

from providers.sandbox.slurm.model import Cluster, Job
from providers.sandbox.slurm.text import host_list


def expand_pattern(pattern: str, job: Job) -> str:
    r"""Return a file name with `%j %A %a %x %u %N %n %t %s %b %J %%` replaced; a backslash turns it off."""
    if "\\" in pattern:
        return pattern.replace("\\", "")
    values = {
        "j": str(job.id),
        "J": str(job.id),
        "A": str(job.array or job.id),
        "a": str(job.task if job.task >= 0 else 4294967294),
        "b": str(job.task % 10 if job.task >= 0 else 4),
        "x": job.name,
        "u": job.user,
        "N": job.batch_host,
        "n": "0",
        "t": "0",
        "s": "batch",
    }

    def replaced(found: re.Match[str]) -> str:
        width, letter = found.groups()
        if letter == "%":
            return "%"
        if letter not in values:
            return found.group(0)
        value = values[letter]
        return value.zfill(min(10, int(width))) if width and value.isdigit() else value

    return re.sub(r"%(\d*)([a-zA-Z%])", replaced, pattern)


def job_environment(cluster: Cluster, job: Job) -> dict[str, str]:
    """Return the variables Slurm sets for the batch script."""
    hosts = host_list(list(job.alloc))
    first = job.alloc.get(job.batch_host, (job.cpus, 0, []))
    per_node = f"{first[0]}(x{len(job.alloc)})" if len(job.alloc) > 1 else str(first[0])
    values = {
        "ENVIRONMENT": "BATCH",
        "SLURM_CLUSTER_NAME": cluster.name,
        "SLURM_JOB_ID": str(job.id),
        "SLURM_JOBID": str(job.id),
        "SLURM_JOB_NAME": job.name,
        "SLURM_JOB_USER": job.user,
        "SLURM_JOB_UID": str(cluster.uid(job.user)),
        "SLURM_JOB_ACCOUNT": job.account,
        "SLURM_JOB_QOS": job.qos,
        "SLURM_JOB_PARTITION": job.partition,
        "SLURM_JOB_NODELIST": hosts,
        "SLURM_NODELIST": hosts,
        "SLURM_JOB_NUM_NODES": str(len(job.alloc)),
        "SLURM_NNODES": str(len(job.alloc)),
        "SLURM_JOB_CPUS_PER_NODE": per_node,
        "SLURM_CPUS_ON_NODE": str(first[0]),
        "SLURM_CPUS_PER_TASK": str(job.cpus_per_task),
        "SLURM_NTASKS": str(job.tasks_n),
        "SLURM_NPROCS": str(job.tasks_n),
        "SLURM_SUBMIT_DIR": job.workdir,
        "SLURM_SUBMIT_HOST": f"{cluster.name}-login01",
        "SLURMD_NODENAME": job.batch_host,
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_RESTART_COUNT": str(job.restarts),
        "SLURM_JOB_START_TIME": str(job.start),
        "SLURM_JOB_END_TIME": str(job.start + job.limit) if job.limit else "",
        "SLURM_MEM_PER_NODE" if job.mem_node else "SLURM_MEM_PER_CPU": str(job.mem_node or job.mem_cpu),
    }
    if first[2]:
        listed = ",".join(str(index) for index in first[2])
        values |= {
            "SLURM_JOB_GPUS": listed,
            "GPU_DEVICE_ORDINAL": listed,
            "CUDA_VISIBLE_DEVICES": ",".join(str(index) for index in range(len(first[2]))),
            "SLURM_GPUS_ON_NODE": str(len(first[2])),
        }
    if job.array:
        values |= {
            "SLURM_ARRAY_JOB_ID": str(job.array),
            "SLURM_ARRAY_TASK_ID": str(job.task),
            "SLURM_ARRAY_TASK_COUNT": str(job.array_size),
        }
    return {name: value for name, value in values.items() if value}
