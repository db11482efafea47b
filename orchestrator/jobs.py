"""From a task and its attempt to the job a dialect renders. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from federation.profile import ProfileDocument
from orchestrator.milestone_kit import Kit, kit_of
from providers.types import JobRequest


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the request is made of besides the task's spec."""

    task: str
    attempt_number: int
    submit_key: str
    partition: str
    account: str
    qos: str
    shape: Mapping[str, Any]
    gpu_spelling: str | None
    """The site's spelling of the granted GPU type."""
    container_runtime: str | None
    container_image: str | None
    remote_user: str
    home: str
    submission: int = 1
    resumes: bool = False
    """It goes on from a checkpoint of an earlier attempt."""
    milestone_url: str = ""
    """Where the job may report milestones; empty: it is not told."""
    inputs: tuple[Mapping[str, Any], ...] = ()
    """Where each input is at the site (`at`), and its path below the working directory (`path`)."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Where an attempt's own files live at the site."""

    path: str
    stdout: str
    stderr: str


def image_of(spec: Mapping[str, Any], envelope: Mapping[str, Any]) -> str | None:
    """Return the image a task runs in: the one its environment names, else its envelope's; None = none."""
    named: str | None = spec["environment"]["container"] or (envelope.get("container") or {}).get("image")
    return named


def base_folder(profile: ProfileDocument, *, home: str, remote_user: str, account: str) -> str:
    """Return the folder at the site that holds all of a user's attempts and inputs: the profile's pattern."""
    at = home or (profile.home or "/home/{user}").replace("{user}", remote_user)
    base = (
        profile.workdir.replace("{home}", at.rstrip("/"))
        .replace("{user}", remote_user)
        .replace("{account}", account)
    )
    return base.rstrip("/")


def folder(profile: ProfileDocument, facts: JobFacts) -> Folder:
    """Return the attempt's own folder: below the user's, task and attempt."""
    base = base_folder(profile, home=facts.home, remote_user=facts.remote_user, account=facts.account)
    path = f"{base}/{facts.task}/{facts.attempt_number}"
    return Folder(path, f"{path}/stdout.log", f"{path}/stderr.log")


def kit(profile: ProfileDocument, facts: JobFacts) -> Kit | None:
    """Return what the job reports milestones with; None where it is not to."""
    return kit_of(folder(profile, facts).path, facts.milestone_url)


def job_request(spec: Mapping[str, Any], profile: ProfileDocument, facts: JobFacts, name: str) -> JobRequest:
    """Return the job in a scheduler's terms."""
    where = folder(profile, facts)
    partition = profile.partitions.get(facts.partition)
    switches, environment, shape = profile.scheduler, spec["environment"], facts.shape
    command = spec["command"]
    uses_conda = environment["conda"] is not None
    workdir, reporting = spec["workdir"] or where.path, kit(profile, facts)
    saving = spec.get("checkpoint")
    resume = saving["resume"] if saving else None
    return JobRequest(
        submit_key=facts.submit_key,
        name=name,
        partition=profile.scheduler_name(facts.partition) if switches.name_partition else None,
        account=facts.account or None,
        qos=facts.qos or None,
        reservation=switches.reservation,
        nodes=shape["nodes"],
        cpus=shape["cpus"],
        gpus=shape["gpus"],
        gpu_type=facts.gpu_spelling if switches.name_gpu_type and shape["gpus"] else None,
        gpu_spelling=(partition.gpu_spelling if partition else None) or switches.gpu_spelling,
        memory_mib=shape["memory_mib"],
        memory_spelling=switches.memory_spelling,
        walltime_s=shape["walltime_s"],
        submission=facts.submission,
        constraint=partition.constraint if partition else None,
        workdir=workdir,
        stdout_path=where.stdout,
        stderr_path=where.stderr,
        links=tuple((each["at"], f"{workdir.rstrip('/')}/{each['path']}") for each in facts.inputs),
        modules=tuple(environment["modules"]),
        conda=environment["conda"],
        container_runtime=facts.container_runtime,
        container_image=facts.container_image,
        variables={
            **profile.environment.variables,
            **environment["variables"],
            **_own_variables(facts),
            **(reporting.variables(workdir) if reporting else {}),
            **(_checkpoint_variables(profile, facts) if saving else {}),
        },
        setup=(
            *(reporting.setup() if reporting else ()),
            *profile.environment.setup,
            *(profile.environment.conda_setup if uses_conda else ()),
            *environment["setup"],
            *(_CHECKPOINT_SETUP if saving else ()),
        ),
        signal=f"B:{saving['signal']}@{saving['before_s']}" if saving else None,
        resume_argv=tuple(resume) if isinstance(resume, list) else None,
        resume_shell=resume if isinstance(resume, str) else None,
        requeue="preempted" in spec["retry"]["on"],
        extra_directives=switches.extra_directives,
        argv=tuple(command) if isinstance(command, list) else None,
        shell_command=command if isinstance(command, str) else None,
        script=spec["script"],
    )


_CHECKPOINT_SETUP = (
    'mkdir -p -- "$FACET_CHECKPOINT_DIR"',
    # A job that the scheduler itself started again goes on as well.
    'if [ "${SLURM_RESTART_COUNT:-0}" != 0 ]; then export FACET_RESUME=1; fi',
)


def _checkpoint_variables(profile: ProfileDocument, facts: JobFacts) -> dict[str, str]:
    """Return where checkpoints go (one folder for all attempts at a system), and whether to go on."""
    base = base_folder(profile, home=facts.home, remote_user=facts.remote_user, account=facts.account)
    place = {"FACET_CHECKPOINT_DIR": f"{base}/{facts.task}/checkpoint"}
    return place | ({"FACET_RESUME": "1"} if facts.resumes else {})


def _own_variables(facts: JobFacts) -> dict[str, str]:
    return {"FACET_TASK": facts.task, "FACET_ATTEMPT": str(facts.attempt_number)}
