"""sacctmgr and sprio: associations, QoS, users, and why a job's priority is what it is. Read only.

Source: sacctmgr(1), sprio(1), recorded output of 22.05.8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from providers.sandbox.slurm.call import NEEDS, NONE, Call, Options, Refused, options
from providers.sandbox.slurm.limits import priority
from providers.sandbox.slurm.model import Assoc, Cluster, Job, Qos
from providers.sandbox.slurm.text import full_span

LONGS = {
    "immediate": NONE, "noheader": NONE, "oneliner": NONE, "parsable": NONE, "parsable2": NONE, "quiet": NONE,
    "readonly": NONE, "associations": NONE, "version": NONE, "verbose": NONE,
}  # fmt: skip
SHORTS = {
    "i": "immediate", "n": "noheader", "o": "oneliner", "p": "parsable", "P": "parsable2", "Q": "quiet",
    "r": "readonly", "s": "associations", "V": "version", "v": "verbose",
}  # fmt: skip
Row = Mapping[str, str]


def _count(value: int) -> str:
    return str(value) if value else ""


def _gpus(value: int) -> str:
    return f"gres/gpu={value}" if value else ""


def assoc_row(cluster: Cluster, one: Assoc) -> Row:
    """Return the fields of one association."""
    return {
        "cluster": cluster.name,
        "account": one.account,
        "user": one.user,
        "partition": "",
        "share": str(one.share),
        "fairshare": str(one.share),
        "priority": "",
        "grpjobs": "",
        "grptres": _gpus(one.grp_gpus),
        "grpsubmit": "",
        "grpsubmitjobs": "",
        "grpwall": "",
        "grptresmins": ",".join(f"{name}={most}" for name, most in one.grp_minutes.items()),
        "maxjobs": _count(one.max_jobs),
        "maxtres": _gpus(one.max_gpus),
        "maxtresperjob": _gpus(one.max_gpus),
        "maxtrespernode": "",
        "maxsubmit": _count(one.max_submit),
        "maxsubmitjobs": _count(one.max_submit),
        "maxwall": full_span(one.max_wall) if one.max_wall else "",
        "maxtresmins": "",
        "qos": ",".join(one.qos),
        "defaultqos": one.default_qos,
        "grptresrunmins": "",
        "id": "",
        "parentname": "" if one.user or one.account == "root" else "root",
    }


ASSOC_HEADS = {
    "cluster": "Cluster",
    "account": "Account",
    "user": "User",
    "partition": "Partition",
    "share": "Share",
    "fairshare": "Share",
    "priority": "Priority",
    "grpjobs": "GrpJobs",
    "grptres": "GrpTRES",
    "grpsubmit": "GrpSubmit",
    "grpsubmitjobs": "GrpSubmit",
    "grpwall": "GrpWall",
    "grptresmins": "GrpTRESMins",
    "maxjobs": "MaxJobs",
    "maxtres": "MaxTRES",
    "maxtresperjob": "MaxTRES",
    "maxtrespernode": "MaxTRESPerNode",
    "maxsubmit": "MaxSubmit",
    "maxsubmitjobs": "MaxSubmit",
    "maxwall": "MaxWall",
    "maxtresmins": "MaxTRESMins",
    "qos": "QOS",
    "defaultqos": "Def QOS",
    "grptresrunmins": "GrpTRESRunMins",
    "id": "ID",
    "parentname": "Par Name",
}
ASSOC_USUAL = (
    "cluster,account,user,partition,share,priority,grpjobs,grptres,grpsubmit,grpwall,grptresmins,maxjobs,"
    "maxtres,maxtrespernode,maxsubmit,maxwall,maxtresmins,qos,defaultqos,grptresrunmins"
)


def qos_row(one: Qos) -> Row:
    """Return the fields of one QoS."""
    per_user = [("cpu", one.max_cpus_user), ("gres/gpu", one.max_gpus_user), ("node", one.max_nodes_user)]
    per_user_text = ",".join(f"{name}={value}" for name, value in per_user if value)
    wall = full_span(one.max_wall) if one.max_wall else ""
    row = {
        "name": one.name,
        "priority": str(one.priority),
        "gracetime": "00:00:00",
        "preempt": "",
        "preemptexempttime": "",
        "preemptmode": "cluster",
        "flags": one.flags,
        "usagethres": "",
        "usagefactor": "1.000000",
        "grptres": _gpus(one.grp_gpus),
        "grptresmins": "",
        "grptresrunmins": "",
        "grpjobs": _count(one.grp_jobs),
        "grpsubmit": "",
        "grpwall": "",
        "maxtres": "",
        "maxtrespernode": "",
        "maxtresmins": "",
        "maxwall": wall,
        "maxtrespu": per_user_text,
        "maxjobspu": _count(one.max_jobs_user),
        "maxsubmitpu": _count(one.max_submit_user),
        "maxtrespa": "",
        "maxjobspa": "",
        "maxsubmitpa": "",
        "mintres": "",
    }
    same = {
        "maxtresperuser": "maxtrespu",
        "maxjobsperuser": "maxjobspu",
        "maxsubmitjobsperuser": "maxsubmitpu",
        "maxsubmitperuser": "maxsubmitpu",
        "maxtresperjob": "maxtres",
        "maxtresperaccount": "maxtrespa",
        "maxjobsperaccount": "maxjobspa",
        "maxsubmitjobsperaccount": "maxsubmitpa",
        "mintresperjob": "mintres",
        "grpsubmitjobs": "grpsubmit",
        "maxwalldurationperjob": "maxwall",
    }
    return row | {alias: row[name] for alias, name in same.items()}


QOS_HEADS = {
    "name": "Name",
    "priority": "Priority",
    "gracetime": "GraceTime",
    "preempt": "Preempt",
    "preemptexempttime": "PreemptExemptTime",
    "preemptmode": "PreemptMode",
    "flags": "Flags",
    "usagethres": "UsageThres",
    "usagefactor": "UsageFactor",
    "grptres": "GrpTRES",
    "grptresmins": "GrpTRESMins",
    "grptresrunmins": "GrpTRESRunMins",
    "grpjobs": "GrpJobs",
    "grpsubmit": "GrpSubmit",
    "grpsubmitjobs": "GrpSubmit",
    "grpwall": "GrpWall",
    "maxtres": "MaxTRES",
    "maxtresperjob": "MaxTRES",
    "maxtrespernode": "MaxTRESPerNode",
    "maxtresmins": "MaxTRESMins",
    "maxwall": "MaxWall",
    "maxwalldurationperjob": "MaxWall",
    "maxtrespu": "MaxTRESPU",
    "maxtresperuser": "MaxTRESPU",
    "maxjobspu": "MaxJobsPU",
    "maxjobsperuser": "MaxJobsPU",
    "maxsubmitpu": "MaxSubmitPU",
    "maxsubmitperuser": "MaxSubmitPU",
    "maxsubmitjobsperuser": "MaxSubmitPU",
    "maxtrespa": "MaxTRESPA",
    "maxtresperaccount": "MaxTRESPA",
    "maxjobspa": "MaxJobsPA",
    "maxjobsperaccount": "MaxJobsPA",
    "maxsubmitpa": "MaxSubmitPA",
    "maxsubmitjobsperaccount": "MaxSubmitPA",
    "mintres": "MinTRES",
    "mintresperjob": "MinTRES",
}
QOS_USUAL = (
    "name,priority,gracetime,preempt,preemptexempttime,preemptmode,flags,usagethres,usagefactor,grptres,"
    "grptresmins,grptresrunmins,grpjobs,grpsubmit,grpwall,maxtres,maxtrespernode,maxtresmins,maxwall,maxtrespu,"
    "maxjobspu,maxsubmitpu,maxtrespa,maxjobspa,maxsubmitpa,mintres"
)
CLUSTER_HEADS = {
    "cluster": "Cluster",
    "controlhost": "ControlHost",
    "controlport": "ControlPort",
    "rpc": "RPC",
    "qos": "QOS",
}


def run(call: Call) -> int:
    """Do `sacctmgr show …`."""
    given = options("sacctmgr", call.argv, LONGS, SHORTS)
    cluster = call.store.read(call.now)
    if given.has("version"):
        call.say(f"slurm-wlm {cluster.version}")
        return 0
    verb, entity, *words = [*given.rest, "", ""]
    if verb not in {"show", "list"}:
        raise Refused(
            f"sacctmgr: error: No command: {verb}"
            if not verb
            else f"sacctmgr: error: {verb}: Access/permission denied"
        )
    words = [word for word in words if word]
    if entity.startswith("assoc"):
        rows: list[Row] = [assoc_row(cluster, one) for one in cluster.assocs]
        heads, usual = ASSOC_HEADS, ASSOC_USUAL
    elif entity == "qos":
        rows, heads, usual = [qos_row(one) for one in cluster.qos.values()], QOS_HEADS, QOS_USUAL
    elif entity.startswith("user"):
        rows, heads, usual = (
            _users(cluster),
            {**ASSOC_HEADS, "defaultaccount": "Def Acct", "adminlevel": "Admin"},
            "user,defaultaccount,adminlevel",
        )
    elif entity.startswith("cluster"):
        rows, heads, usual = [_cluster(cluster)], CLUSTER_HEADS, "cluster,controlhost,controlport,rpc,qos"
    else:
        raise Refused(
            "No valid entity in list command\n"
            f'Input line must include "Association", "Cluster", "QOS" or "User": {entity}'
        )
    _print(call, given, _filtered(rows, words, heads), _fields(words, heads, usual), heads)
    return 0


def _users(cluster: Cluster) -> list[Row]:
    found: dict[str, Row] = {}
    for one in cluster.assocs:
        if one.user:
            admin = "Administrator" if one.user == "root" else "None"
            found.setdefault(
                one.user, {**assoc_row(cluster, one), "defaultaccount": one.account, "adminlevel": admin}
            )
    return [found[name] for name in sorted(found)]


def _cluster(cluster: Cluster) -> Row:
    return {
        "cluster": cluster.name,
        "controlhost": "127.0.0.1",
        "controlport": "6817",
        "rpc": "9728",
        "qos": "normal",
    }


def _filtered(rows: list[Row], words: list[str], heads: Mapping[str, str]) -> list[Row]:
    for word in words:
        name, equals, value = word.partition("=")
        name = {"users": "user", "accounts": "account", "names": "name", "clusters": "cluster"}.get(
            name.lower(), name.lower()
        )
        if name in {"where", "format"} or (name.startswith("with") and not equals) or name == "tree":
            continue
        if not equals or name not in heads:
            raise Refused(f" Unknown condition: {word}\n Use keyword 'set' to modify value")
        rows = [row for row in rows if row[name] in value.split(",")]
    return rows


def _fields(words: list[str], heads: Mapping[str, str], usual: str) -> list[str]:
    text = next((word.partition("=")[2] for word in words if word.lower().startswith("format=")), usual)
    fields = []
    for part in text.lower().split(","):
        name = part.split("%")[0]
        exact = name if name in heads else next((known for known in heads if known.startswith(name)), "")
        if not exact:
            raise Refused(f" Unknown field '{part}'")
        fields.append(exact)
    return fields


def _print(call: Call, given: Options, rows: list[Row], fields: list[str], heads: Mapping[str, str]) -> None:
    if given.has("parsable", "parsable2"):
        tail = "|" if given.has("parsable") else ""
        if not given.has("noheader"):
            call.say("|".join(heads[name] for name in fields) + tail)
        for row in rows:
            call.say("|".join(row[name] for name in fields) + tail)
        return
    if not given.has("noheader"):
        call.say("".join(f"{heads[name][:10]:>10} " for name in fields))
        call.say("".join("-" * 10 + " " for _ in fields))
    for row in rows:
        cells = (row[name] if len(row[name]) <= 10 else row[name][:9] + "+" for name in fields)
        call.say("".join(f"{cell:>10} " for cell in cells))


SPRIO_LONGS = {
    "long": NONE,
    "noheader": NONE,
    "jobs": NEEDS,
    "user": NEEDS,
    "format": NEEDS,
    "partition": NEEDS,
    "weights": NONE,
    "version": NONE,
}
SPRIO_SHORTS = {
    "l": "long",
    "h": "noheader",
    "j": "jobs",
    "u": "user",
    "o": "format",
    "p": "partition",
    "w": "weights",
    "V": "version",
}


def sprio(call: Call) -> int:
    """Print the priority of eligible pending jobs, factor by factor."""
    from providers.sandbox.slurm.columns import BadFormat, short_columns, table  # noqa: PLC0415 - sprio's alone

    given = options("sprio", call.argv, SPRIO_LONGS, SPRIO_SHORTS)
    cluster, now = call.store.read(call.now), int(call.now)
    if given.has("version"):
        call.say(f"slurm-wlm {cluster.version}")
        return 0
    if given.has("weights"):
        raise Refused("sprio: error: weights are not shown by this cluster")
    values: dict[str, tuple[str, Callable[[Job], str]]] = {
        "i": ("JOBID", lambda j: str(j.id)),
        "r": ("PARTITION", lambda j: j.partitions[0]),
        "u": ("USER", lambda j: j.user),
        "Y": ("PRIORITY", lambda j: str(priority(cluster, j, now))),
        "S": ("SITE", lambda _: "0"),
        "A": ("AGE", lambda j: str(priority(cluster, j, now) - max(1, j.base_priority - j.nice))),
        "B": ("ASSOC", lambda _: "0"),
        "F": ("FAIRSHARE", lambda j: str(max(0, j.base_priority - 1000 - _qos(cluster, j)))),
        "J": ("JOBSIZE", lambda _: "0"),
        "P": ("PARTITION", lambda _: "1000"),
        "Q": ("QOS", lambda j: str(_qos(cluster, j))),
        "N": ("NICE", lambda j: str(j.nice)),
        "T": ("TRES", lambda _: ""),
    }
    usual = "%.15i %9r %.8u %.10Y %.10S %.10A %.10B %.10F %.10J %.10P %.10Q %.11N %.20T"
    try:
        columns = short_columns(
            given.get(
                "format", usual if given.has("long") else "%.15i %9r %.10Y %.10S %.10A %.10F %.10P %.10Q"
            ),
            values,
        )
    except BadFormat as bad:
        raise Refused(f"sprio: error: Invalid job format specification: {bad}") from None
    jobs = [
        job
        for job in cluster.jobs
        if job.state == "PENDING"
        and not (job.held or job.dependency or job.begin > now)
        and (not given.has("jobs") or str(job.id) in given.names("jobs"))
        and (not given.has("user") or job.user in given.names("user"))
        and (not given.has("partition") or job.partitions[0] in given.names("partition"))
    ]
    jobs.sort(key=lambda job: (job.partitions[0], job.id))
    for line in table(columns, jobs, values, header=not given.has("noheader")):
        call.say(line)
    return 0


def _qos(cluster: Cluster, job: Job) -> int:
    qos = cluster.qos.get(job.qos)
    most = max((each.priority for each in cluster.qos.values()), default=0)
    return 5000 * qos.priority // most if qos and most else 0
