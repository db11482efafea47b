"""Facet's link against the unmodified agent, over AMQP: one endpoint of its owner, one that maps users."""

import time

import pytest

from providers.errors import InvalidInput, NotAuthorized
from providers.types import Batch, Exec, ListFiles, WriteFile
from tests.globus.conftest import ALICE, BOB, Access, echo, link_to
from tests.globus.wire.conftest import LOCAL_USER, OWNER, Wire

pytestmark = [pytest.mark.wire, pytest.mark.timeout(300)]


def test_an_agent_with_the_guides_template_runs_a_batch_and_answers_in_json(wire: Wire) -> None:
    link = link_to(Access(wire.server, sub=OWNER, owner="service"), wire.own)

    reply = link.run(
        Batch(
            operations=(
                Exec(name="echo", argv=("printf", "%s", "a b; $HOME `id`"), timeout_s=20),
                Exec(name="gone", argv=("no-such-command",), timeout_s=20),
            ),
            deadline_s=90,
        )
    )

    assert (reply.replies["echo"].rc, reply.replies["echo"].stdout) == (0, "a b; $HOME `id`")
    assert reply.replies["gone"].missing


def test_a_warm_agent_answers_within_seconds(wire: Wire) -> None:
    link = link_to(Access(wire.server, sub=OWNER, owner="service"), wire.own)
    link.run(echo("first", deadline_s=90))

    began = time.monotonic()
    reply = link.run(echo("again", deadline_s=60))

    assert reply.replies["echo"].stdout == "again\n"
    assert time.monotonic() - began < 30, "the agent's own publishing takes half a second"


def test_an_identity_runs_as_the_local_user_it_is_mapped_to(wire: Wire) -> None:
    link = link_to(Access(wire.server, sub=ALICE), wire.mapped)

    reply = link.run(
        Batch(
            operations=(
                Exec(name="who", argv=("id", "-un"), timeout_s=20),
                WriteFile(name="write", path="/root/planted", text="x"),
                ListFiles(name="list", path="/root"),
            ),
            deadline_s=90,
        )
    )

    assert reply.replies["who"].stdout == f"{LOCAL_USER}\n"
    assert reply.replies["write"].rc != 0, "nobody becomes root on the way"


def test_an_identity_that_is_not_mapped_is_refused_in_a_sentence(wire: Wire) -> None:
    link = link_to(Access(wire.server, sub=BOB), wire.mapped)

    with pytest.raises(NotAuthorized, match="does not let you in: Identity failed to map"):
        link.run(echo("hello", deadline_s=60))


def test_values_that_the_endpoints_schema_does_not_know_are_refused(wire: Wire) -> None:
    link = link_to(Access(wire.server, sub=ALICE), wire.mapped, user_endpoint_config={"shell": "rm -rf /"})

    with pytest.raises(InvalidInput, match="shell"):
        link.run(echo("hello", deadline_s=60))
