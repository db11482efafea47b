"""The compose file and the image say what is true: programs, options, variables and files exist as named.

No container engine runs here; what the engine itself does is not tested.
"""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
import yaml
from celery.bin.beat import beat
from celery.bin.worker import worker
from click import Context
from django.core.management import get_commands, load_command_class

import run
from portal import alive, chores, env, heartbeat
from portal.celery import QUEUES, app

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
DOCKERFILE = (ROOT / "Dockerfile").read_text()
GUIDE = (ROOT / "docs/howto/run-on-one-machine.md").read_text()


def _celery(name: str, program: str) -> dict[str, Any]:
    """Return the options of a Celery service as Celery itself reads them."""
    words = SERVICES[name]["command"]
    assert words[:5] == ["celery", "--app", "portal.celery:app", "--quiet", program]
    command = {"worker": worker, "beat": beat}[program]
    return dict(
        command.make_context(
            program, list(words[5:]), parent=Context(worker, obj=SimpleNamespace(app=app))
        ).params
    )


def test_every_queue_of_every_chore_has_a_worker() -> None:
    served = {
        name: words[words.index("--queues") + 1]
        for name, words in ((name, service["command"]) for name, service in OURS.items())
        if "worker" in words
    }

    assert served == {"control-worker": "control", "default-worker": "default,delivery"}
    queues = {queue for queues in served.values() for queue in queues.split(",")}
    assert {every.queue for every in chores.RHYTHM.values()} <= queues == set(QUEUES)


def test_there_is_exactly_one_clock() -> None:
    clocks = [name for name, service in OURS.items() if "beat" in service["command"]]

    assert clocks == ["clock"]
    assert SERVICES["clock"]["deploy"] == {"replicas": 1}


def test_celery_takes_the_options_given() -> None:
    for name in ("control-worker", "default-worker"):
        given = _celery(name, "worker")
        assert (given["concurrency"], given["without_gossip"], given["without_mingle"]) == (2, True, True)
    assert _celery("clock", "beat")["scheduler"] == "celery.beat:Scheduler"


def test_uvicorn_takes_the_options_given() -> None:
    words = SERVICES["web"]["command"]
    assert words[:3] == ["python", "-m", "uvicorn"]
    given = uvicorn.main.make_context("uvicorn", list(words[3:])).params

    assert (given["app"], given["host"], given["port"]) == ("portal.asgi:application", "0.0.0.0", 8000)
    assert (given["proxy_headers"], given["forwarded_allow_ips"]) == (True, "*")


@pytest.mark.parametrize("name", ["migrate", "grafana-role"])
def test_commands_of_django_exist_and_take_the_options_given(name: str) -> None:
    python, script, command, *words = SERVICES[name]["command"]

    assert (python, script) == ("python", "manage.py")
    load_command_class(get_commands()[command], command).create_parser("manage.py", command).parse_args(words)


def test_every_variable_given_to_facet_is_one_it_reads() -> None:
    known = {env.variable_of(name) for name in env.Env.model_fields} | {"HOME"}
    files = {f"{name}_FILE" for name in env.secret_variables()}

    for service in OURS.values():
        given = service["environment"]
        assert set(given) <= known | files
        assert {given[name].removeprefix("/run/secrets/") for name in given if name in files} <= set(
            service["secrets"]
        )


def test_no_secret_is_a_variable_of_a_process_of_ours() -> None:
    for service in OURS.values():
        given = set(service["environment"]) & set(env.secret_variables())
        assert {service["environment"][name] for name in given} <= {"redis://valkey:6379/0"}
    for name, service in SERVICES.items():
        assert set(service.get("secrets", ())) <= set(COMPOSE["secrets"])
        known = {"GRAFANA_DB_PASSWORD"} if name == "grafana" else set()  # of the role that can only read
        assert {key for key in service.get("environment", {}) if key.endswith(("PASSWORD", "KEY"))} == known


def test_our_containers_run_with_nothing_they_do_not_need() -> None:
    for service in OURS.values():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]
    for service in SERVICES.values():
        assert service["restart"] in {"no", "unless-stopped"}
        assert service["restart"] == "no" or "healthcheck" in service
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}


def test_prometheus_is_given_its_files_and_starts_only_when_asked() -> None:
    service = SERVICES["prometheus"]

    assert service["profiles"] == ["prometheus"]
    assert [name for name, each in SERVICES.items() if "profiles" in each] == ["prometheus"]
    assert {mount.split(":")[0] for mount in service["volumes"]} == {
        "prometheus", "./prometheus/prometheus.yml", "./prometheus/rules.yml",
    }  # fmt: skip
    assert "web" in SERVICES["web"]["environment"]["FACET_ALLOWED_HOSTS"].split(",")


@pytest.mark.parametrize("name", ["control-worker", "default-worker", "clock"])
def test_health_is_asked_of_a_part_that_there_is(name: str) -> None:
    python, module, asked, part = SERVICES[name]["healthcheck"]["test"][1:]

    assert (python, module, asked) == ("python", "-m", "portal.alive")
    assert alive.KEYS[part] in {heartbeat.key_of(known) for known in (*heartbeat.WORKERS, heartbeat.CLOCK)}
    assert part == name.removesuffix("-worker")


def test_only_loopback_ports_are_published() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}

    assert published == {
        "web": ["127.0.0.1:8000:8000"],
        "grafana": ["127.0.0.1:3000:3000"],
        "prometheus": ["127.0.0.1:9090:9090"],
    }


def test_the_servers_keep_what_must_be_kept_and_evict_nothing() -> None:
    valkey = SERVICES["valkey"]["command"]

    assert "postgres:/var/lib/postgresql" in SERVICES["postgres"]["volumes"]
    assert valkey[valkey.index("--maxmemory-policy") + 1] == "noeviction"


def test_everything_mounted_is_in_the_repository_or_a_named_volume() -> None:
    for service in SERVICES.values():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            assert (ROOT / source).exists() if source.startswith("./") else source in COMPOSE["volumes"]


def test_every_dependency_is_a_service_that_can_meet_its_condition() -> None:
    for service in SERVICES.values():
        for name, wanted in service.get("depends_on", {}).items():
            if wanted["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[name]
            else:
                assert SERVICES[name]["restart"] == "no"


def test_grafana_is_given_what_its_datasource_names() -> None:
    source = (ROOT / "grafana/provisioning/datasources/facet.yaml").read_text()
    wanted = set(re.findall(r"\$(\w+)", source))

    assert wanted == {name for name in SERVICES["grafana"]["environment"] if name.startswith("GRAFANA_DB_")}


def test_the_guide_makes_every_variable_that_must_be_set() -> None:
    wanted = set(re.findall(r"\$\{(\w+):\?", TEXT)) | {
        each["environment"] for each in COMPOSE["secrets"].values()
    }
    made = set(re.findall(r"^(\w+)=", GUIDE, flags=re.MULTILINE))

    assert wanted <= made


def test_the_image_is_built_from_the_lock_file_and_runs_as_nobody_special() -> None:
    users = re.findall(r"^USER (\w+)$", DOCKERFILE, flags=re.MULTILINE)

    assert "uv sync --frozen --no-dev" in DOCKERFILE
    assert f"uv=={run.UV}" in DOCKERFILE
    assert users == ["facet"]
    for name in ("pyproject.toml", "uv.lock", "manage.py"):
        assert name in DOCKERFILE
        assert (ROOT / name).exists()
