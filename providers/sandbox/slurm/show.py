"""`scontrol show`: nodes, partitions, reservations, jobs and configuration, one line each or many.

Source: scontrol(1), recorded output of 22.05.8. Lines within a record are joined by a blank with -o.
"""

from __future__ import annotations

from providers.sandbox.slurm import tres
from providers.sandbox.slurm.environment import expand_pattern
from providers.sandbox.slurm.limits import priority
from providers.sandbox.slurm.model import Cluster, Job, Partition, Reservation
from providers.sandbox.slurm.nodestate import NodeView
from providers.sandbox.slurm.squeue import Queue
from providers.sandbox.slurm.text import clock, full_span, host_list, memory

ONE_LINE, MANY_LINES = " ", "\n   "


def node_lines(cluster: Cluster, view: NodeView, *, detail: bool) -> list[str]:
    """Return the lines of one node."""
    node, held = view.node, view.held
    features = ",".join(node.features) or "(null)"
    partitions = ",".join(p.name for p in cluster.partitions.values() if node.name in p.nodes)
    used = [f"GresDrain=N/A GresUsed={tres.gres_used(node, held)}"] if detail else []
    lines = [
        f"NodeName={node.name} Arch={node.arch} CoresPerSocket={node.cores} ",
        f"CPUAlloc={held.cpus} CPUEfctv={node.cpus} CPUTot={node.cpus} CPULoad={view.load}",
        f"AvailableFeatures={features}",
        f"ActiveFeatures={features}",
        f"Gres={tres.gres(node)}",
        *used,
        f"NodeAddr={node.addr or node.name} NodeHostName={node.host or node.name} Port={node.port} Version={cluster.version}",
        f"OS={node.os} ",
        f"RealMemory={node.mem} AllocMem={held.mem} FreeMem={view.free_mem} Sockets={node.sockets} Boards=1",
        f"State={view.scontrol} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A",
        f"Partitions={partitions} ",
        f"BootTime={clock(node.boot, 'None')} SlurmdStartTime={clock(node.started, 'None')}",
        f"LastBusyTime={clock(node.busy_at, 'Unknown')}",
        f"CfgTRES={tres.configured(cluster, node)}",
        f"AllocTRES={tres.allocated(cluster, node, held)}",
        "CapWatts=n/a",
        "CurrentWatts=0 AveWatts=0",
        "ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s",
    ]
    if node.reason:
        stamp = f" [{node.reason_user}@{clock(node.reason_at)}]" if node.reason_at else ""
        lines.append(f"Reason={node.reason}{stamp}")
    return lines


def partition_lines(cluster: Cluster, part: Partition) -> list[str]:
    """Return the lines of one partition."""
    nodes = [cluster.nodes[name] for name in part.nodes]
    cpus = sum(node.cpus for node in nodes)
    counts: dict[str, int] = {}
    for node in nodes:
        for kind, count in tres.gpu_counts(node).items():
            counts[kind] = counts.get(kind, 0) + count
    total = tres.joined(
        [
            ("cpu", str(cpus)),
            ("mem", memory(sum(node.mem for node in nodes))),
            ("node", str(len(nodes))),
            ("billing", str(cpus)),
            *tres.gpu_pairs(cluster, counts),
        ]
    )
    defaults = [f"DefCpuPerGPU={part.def_cpus_per_gpu}"] if part.def_cpus_per_gpu else []
    defaults += [f"DefMemPerGPU={part.def_mem_per_gpu}"] if part.def_mem_per_gpu else []
    per_cpu = part.def_mem_per_cpu
    yes = {True: "YES", False: "NO"}
    return [
        f"PartitionName={part.name}",
        f"AllowGroups={','.join(part.allow_groups) or 'ALL'} AllowAccounts={','.join(part.allow_accounts) or 'ALL'} "
        "AllowQos=ALL",
        f"AllocNodes=ALL Default={yes[part.default]} QoS={part.qos or 'N/A'}",
        f"DefaultTime={full_span(part.default_time) if part.default_time else 'NONE'} DisableRootJobs=NO "
        f"ExclusiveUser=NO GraceTime={part.grace} Hidden={yes[part.hidden]}",
        f"MaxNodes={part.max_nodes or 'UNLIMITED'} MaxTime={full_span(part.max_time) if part.max_time else 'UNLIMITED'} "
        f"MinNodes={part.min_nodes} LLN=NO MaxCPUsPerNode=UNLIMITED",
        f"Nodes={host_list(part.nodes)}",
        f"PriorityJobFactor=1 PriorityTier={part.tier} RootOnly=NO ReqResv=NO "
        f"OverSubscribe={'EXCLUSIVE' if part.exclusive else 'NO'}",
        f"OverTimeLimit=NONE PreemptMode={part.preempt}",
        f"State={part.state} TotalCPUs={cpus} TotalNodes={len(nodes)} SelectTypeParameters=NONE",
        f"JobDefaults={','.join(defaults) or '(null)'}",
        f"{f'DefMemPerCPU={per_cpu}' if per_cpu else 'DefMemPerNode=UNLIMITED'} MaxMemPerNode=UNLIMITED",
        f"TRES={total}",
    ]


def reservation_lines(cluster: Cluster, one: Reservation, now: int) -> list[str]:
    """Return the lines of one reservation."""
    cpus = sum(cluster.nodes[name].cpus for name in one.nodes)
    active = "ACTIVE" if one.start <= now < one.end else "INACTIVE"
    return [
        f"ReservationName={one.name} StartTime={clock(one.start)} EndTime={clock(one.end)} "
        f"Duration={full_span(one.end - one.start)}",
        f"Nodes={host_list(one.nodes)} NodeCnt={len(one.nodes)} CoreCnt={cpus} Features=(null) PartitionName=(null) "
        f"Flags={','.join(one.flags)}",
        f"TRES=cpu={cpus}",
        f"Users={','.join(one.users) or '(null)'} Groups=(null) Accounts={','.join(one.accounts) or '(null)'} "
        f"Licenses=(null) State={active} BurstBuffer=(null) Watts=n/a",
        "MaxStartDelay=(null)",
    ]


def job_lines(cluster: Cluster, job: Job, now: int) -> list[str]:
    """Return the lines of one job."""
    queue = Queue(cluster, now)
    uid = cluster.uid(job.user)
    array = ""
    if job.array:
        task = queue.array_task(job).split("%")[0]
        throttle = f" ArrayTaskThrottle={job.throttle}" if job.throttle else ""
        array = f" ArrayJobId={job.array} ArrayTaskId={task}{throttle}"
    pending = job.state == "PENDING"
    out = _path(job, job.stdout or ("slurm-%A_%a.out" if job.array else "slurm-%j.out"))
    lines = [
        f"JobId={job.id}{array} JobName={job.name}",
        f"UserId={job.user}({uid}) GroupId={job.user}({uid}) MCS_label=N/A",
        f"Priority={priority(cluster, job, now)} Nice={job.nice} Account={job.account} QOS={job.qos}",
        f"JobState={queue.state(job)} Reason={_reason(job)} Dependency={queue.dependency(job)}",
        f"Requeue={int(job.requeue)} Restarts={job.restarts} BatchFlag=1 Reboot=0 ExitCode={job.exit}:{job.exit_signal}",
        f"RunTime={full_span(queue.seconds(job))} TimeLimit={full_span(job.limit) if job.limit else 'UNLIMITED'} TimeMin=N/A",
        f"SubmitTime={clock(job.submit)} EligibleTime={clock(job.eligible, 'Unknown')}",
        f"AccrueTime={clock(job.eligible, 'Unknown')}",
        f"StartTime={clock(job.expected if pending else job.start, 'Unknown')} "
        f"EndTime={queue.end(job).replace('N/A', 'Unknown')} Deadline={clock(job.deadline)}",
        *([] if pending else [f"PreemptEligibleTime={clock(job.start)} PreemptTime=None"]),
        f"SuspendTime=None SecsPreSuspend=0 LastSchedEval={clock(now)} Scheduler=Main",
        f"Partition={queue.partition(job)} AllocNode:Sid={cluster.name}-login01:1",
        f"ReqNodeList={host_list(job.want_nodes) or '(null)'} ExcNodeList={host_list(job.avoid_nodes) or '(null)'}",
        f"NodeList={host_list(list(job.alloc)) or '(null)'}",
        *([f"BatchHost={job.batch_host}"] if job.batch_host else []),
        f"NumNodes={len(job.alloc) or job.nodes} NumCPUs={job.alloc_cpus} NumTasks={job.tasks_n} "
        f"CPUs/Task={job.cpus_per_task} ReqB:S:C:T=0:0:*:*",
        f"TRES={tres.joined(tres.job_pairs(cluster, job))}",
        "Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*",
        f"MinCPUsNode={max(1, job.cpus // job.nodes)} "
        f"{f'MinMemoryNode={memory(job.mem_node)}' if job.mem_node else f'MinMemoryCPU={memory(job.mem_cpu)}'} "
        "MinTmpDiskNode=0",
        f"Features={job.constraint or '(null)'} DelayBoot=00:00:00",
        f"OverSubscribe={'NO' if job.exclusive else 'OK'} Contiguous=0 Licenses=(null) Network=(null)",
        f"Command={job.command or '(null)'}",
        f"WorkDir={job.workdir}",
        *([f"Comment={job.comment} "] if job.comment else []),
        f"StdErr={_path(job, job.stderr) if job.stderr else out}",
        f"StdIn={job.stdin}",
        f"StdOut={out}",
        "Power=",
    ]
    if job.gpu_words:
        lines.append(f"TresPerNode={job.gpu_words}")
    return lines


def _reason(job: Job) -> str:
    """Return the reason as one word, as scontrol does."""
    return (job.words or job.reason).replace(" ", "_")


def _path(job: Job, pattern: str) -> str:
    path = expand_pattern(pattern, job)
    return path if path.startswith("/") else f"{job.workdir.rstrip('/')}/{path}"


def config_lines(cluster: Cluster, now: int) -> list[str]:
    """Return `scontrol show config`."""
    host = cluster.config.get("SlurmctldHost[0]", "ctl").split("(")[0]
    values = dict(cluster.config) | {"NEXT_JOB_ID": str(cluster.next_id), "BOOT_TIME": clock(cluster.boot)}
    lines = [f"Configuration data as of {clock(now)}"]
    lines += [
        f"{name:<23} = {value}" for name, value in sorted(values.items(), key=lambda item: item[0].lower())
    ]
    return [*lines, "", f"Slurmctld(primary) at {host} is UP"]
