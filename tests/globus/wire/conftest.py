"""One broker, one stand-in and two real agents for all tests of this folder; skipped with the reason else."""

import json
import os
import pwd
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from providers.sandbox.globus.server import StandIn
from providers.sandbox.globus.spec import Application, Endpoint, Person
from tests.globus.conftest import ALICE, BOB, CLIENT, CLIENT_SECRET
from tests.globus.wire.agent import SERVER, Daemon, Rabbit, agent_environment, installed

OWNER = "6d0f3a3c-53f4-4a0c-9c39-0c6a4f8d3d12"
"""The application that registers both endpoints, and its own identity."""
_SECRET = "planted-agent-secret"  # of the stand-in
LOCAL_USER = "daemon"
"""Whom alice is mapped to; every Debian has them."""
GUIDE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "prepare-an-endpoint.md"
_USERNAMES = {ALICE: "alice@example.org", BOB: "bob@example.com", OWNER: f"{OWNER}@clients.auth.globus.org"}


@dataclass
class Wire:
    """What the tests talk to."""

    server: StandIn
    own: str
    """Endpoint of the application itself, not mapped."""
    mapped: str
    """Multi-user endpoint of root."""
    logs: dict[str, Daemon]


def _missing() -> str:
    """Return what this machine lacks; empty = nothing."""
    if os.geteuid() != 0:
        return "the agent maps identities to users only as root"
    if not SERVER.exists():
        return "there is no RabbitMQ (Debian package rabbitmq-server)"
    try:
        installed()
    except (FileNotFoundError, OSError) as error:
        return str(error)
    return ""


def template() -> str:
    """Return the template that the guide for site administrators shows: what is documented is what runs."""
    block = GUIDE.read_text(encoding="utf-8").split("# user_config_template.yaml.j2\n", 1)[1]
    return block.split("```", 1)[0]


@pytest.fixture(scope="session")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    missing = _missing()
    if missing:
        if os.environ.get("CI"):
            pytest.fail(f"CI must try the real Globus agent: {missing}")
        pytest.skip(f"the real Globus agent cannot be tried here: {missing}")
    root = Path("/var/tmp") / f"facet-wire-{os.getpid()}"  # the mapped user must get there
    root.mkdir(mode=0o755)
    (root / "rabbit").mkdir()
    rabbit = Rabbit(root / "rabbit")
    daemons: dict[str, Daemon] = {}
    server: StandIn | None = None
    try:
        rabbit.start()
        server = _stand_in(tmp_path_factory.mktemp("globus"), rabbit)
        ids: dict[str, str] = {}
        for name in ("own", "mapped"):
            daemons[name] = _agent(root / name, server, name)
            ids[name] = _registered(server, daemons[name], besides=set(ids.values()))
        server.state.know(
            endpoints=[
                _with_users(server, ids["own"], (OWNER,)),
                _with_users(server, ids["mapped"], (ALICE, BOB)),
            ]
        )
        yield Wire(server, ids["own"], ids["mapped"], daemons)
    finally:
        for daemon in daemons.values():
            daemon.stop()
        rabbit.stop()
        if server is not None:
            server.stop()
        shutil.rmtree(root, ignore_errors=True)


def _stand_in(folder: Path, rabbit: Rabbit) -> StandIn:
    from tests.globus.wire.service import Broker, WireCompute  # noqa: PLC0415  # the agent's own packages

    server = StandIn(folder / "globus.db")
    server.state.know(
        applications=[
            Application(id=CLIENT, secret=CLIENT_SECRET, name="Facet", redirect_uris=()),
            Application(id=OWNER, secret=_SECRET, name="site", redirect_uris=()),
        ],
        people=[Person(sub=sub, username=name, name=name) for sub, name in _USERNAMES.items()],
    )
    server.compute = WireCompute(server.state, Broker(rabbit.url), _USERNAMES)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server


def _agent(folder: Path, server: StandIn, name: str) -> Daemon:
    """Write an endpoint's files as an administrator does, and start it."""
    place = folder / name
    place.mkdir(parents=True)
    config = ["email: operators@example.org", "display_name: null"]
    own = folder / "of-the-user"
    own.mkdir()
    if name == "mapped":
        mapping = {"source": "{username}", "match": "alice@example\\.org", "output": LOCAL_USER}
        document = [{"DATA_TYPE": "expression_identity_mapping#1.0.0", "mappings": [mapping]}]
        (place / "mapping.json").write_text(json.dumps(document))
        config.append(f"identity_mapping_config_path: {place}/mapping.json")
        local = pwd.getpwnam(LOCAL_USER)
        os.chown(own, local.pw_uid, local.pw_gid)
    environment = {"PATH": f"{installed().parent}:/usr/bin:/bin", "GLOBUS_COMPUTE_USER_DIR": str(own)}
    (place / "config.yaml").write_text("\n".join(config) + "\n")
    (place / "user_config_template.yaml.j2").write_text(template())
    (place / "user_config_schema.json").write_text(
        json.dumps(
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "properties": {"partition": {"type": "string"}},
                "additionalProperties": False,
            }
        )
    )
    (place / "user_environment.yaml").write_text(
        "".join(f"{variable}: {value}\n" for variable, value in environment.items())
    )
    env = agent_environment(folder, server.url, (OWNER, _SECRET))
    daemon = Daemon([str(installed()), "start", name], folder, env)
    daemon.start()
    return daemon


def _registered(server: StandIn, daemon: Daemon, *, besides: set[str]) -> str:
    """Return the id of a new agent once its first heartbeat is in."""
    from tests.globus.wire.service import WireCompute  # noqa: PLC0415  # as above

    compute = server.compute
    assert isinstance(compute, WireCompute)
    deadline = time.monotonic() + 60
    while True:
        fresh = (set(compute.agents) & set(compute.alive)) - besides
        if fresh:
            return fresh.pop()
        assert time.monotonic() < deadline, daemon.tail()
        time.sleep(0.1)


def _with_users(server: StandIn, key: str, people: tuple[str, ...]) -> Endpoint:
    known = server.state.endpoint(key)
    assert known is not None
    return known.model_copy(update={"users": {sub: {} for sub in people}})
