"""The link over the wire: the unmodified SDK against the stand-in, with every fault of site and service."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import requests
from globus_compute_sdk.serialize import ComputeSerializer

from portal.globus import links
from providers.errors import (
    FacetError,
    InvalidInput,
    NotAuthorized,
    RateLimited,
    SiteUnreachable,
    UnparsableOutput,
)
from providers.links import globus_wire, site_function
from providers.links.globus_board import SharedBoard
from providers.sandbox.globus.server import StandIn, serving
from providers.sandbox.globus.spec import Endpoint, EndpointState, Fault, ResultFault
from providers.types import Batch, Exec, WriteFile
from tests.globus.conftest import ALICE, BOB, DELTA, VISTA, Access, echo, link_to

SUBMIT = f"/v3/endpoints/{DELTA}/submit"
STATUS = "/v2/batch_status"


@pytest.fixture
def access(globus: StandIn) -> Access:
    return Access(globus)


def _submissions(globus: StandIn) -> int:
    return globus.state.requests("POST /v3/endpoints/")


def test_a_batch_runs_in_one_task_and_the_function_is_registered_once(
    globus: StandIn, access: Access
) -> None:
    link = link_to(access)

    first, second = link.run(echo("one")), link.run(echo("two"))

    assert (first.replies["echo"].stdout, second.replies["echo"].stdout) == ("one\n", "two\n")
    assert globus.state.requests("POST /v3/functions") == 1
    assert _submissions(globus) == 2


def test_what_we_register_is_our_source_text_as_the_sdk_reads_it() -> None:
    document = globus_wire.function_document()

    function = ComputeSerializer().deserialize(ComputeSerializer.unpack_buffers(document["function_code"])[0])

    reply = function(
        {"operations": [{"kind": "exec", "name": "x", "argv": ["true"], "timeout_s": 5, "max_bytes": 9}]}
    )
    assert reply["replies"]["x"]["rc"] == 0
    assert document["function_code"].split("\n", 2)[1] == "st"
    assert (
        Path(site_function.__file__).read_text().endswith(document["function_code"].split("run_batch:", 1)[1])
    )


def test_a_task_of_somebody_else_is_not_seen(globus: StandIn, access: Access) -> None:
    link_to(access).run(echo("mine"))
    task = globus.state.run("SELECT id FROM task")[0]["id"]

    bob = Access(globus, sub=BOB, owner="bob")
    answer = requests.post(
        f"{globus.url}{STATUS}",
        json={"task_ids": [task]},
        headers={"Authorization": f"Bearer {bob.token()}"},
        timeout=5,
    )

    assert answer.json()["results"] == {}


@pytest.mark.parametrize(
    ("state", "kind", "words"),
    [
        (EndpointState.OFFLINE, SiteUnreachable, "is not online"),
        (None, SiteUnreachable, "There is no Globus Compute endpoint"),
    ],
)
def test_an_endpoint_that_is_off_or_gone_is_unreachable_in_plain_words(
    globus: StandIn, access: Access, state: EndpointState | None, kind: type[FacetError], words: str
) -> None:
    if state is None:
        globus.state.drop("endpoint", DELTA)
    else:
        globus.state.set_endpoint(DELTA, state)

    with pytest.raises(kind, match=words) as caught:
        link_to(access).run(echo("x"))

    assert caught.value.remediation
    assert DELTA in str(caught.value)


def test_an_endpoint_of_somebody_else_says_how_to_be_let_in(globus: StandIn, access: Access) -> None:
    globus.state.know(endpoints=[Endpoint(id=DELTA, name="delta", users={BOB: {}})])

    with pytest.raises(NotAuthorized, match="does not let you in") as caught:
        link_to(access).run(echo("x"))

    assert "map your Globus identity" in caught.value.remediation


def test_a_function_that_the_site_does_not_list_names_the_list(globus: StandIn, access: Access) -> None:
    globus.state.know(
        endpoints=[Endpoint(id=DELTA, name="delta", users={ALICE: {}}, allowed_functions=(VISTA,))]
    )

    with pytest.raises(NotAuthorized, match="does not allow Facet's function") as caught:
        link_to(access).run(echo("x"))

    assert "allowed_functions" in caught.value.remediation


def test_a_function_that_vanished_is_registered_again_and_the_task_handed_over_once(
    globus: StandIn, access: Access
) -> None:
    link = link_to(access)
    link.run(echo("x"))
    (known,) = access.functions.values()
    globus.state.drop("function", known)

    assert link.run(echo("again")).replies["echo"].stdout == "again\n"
    assert list(access.functions.values()) != [known]
    assert len(globus.state.run("SELECT id FROM task")) == 2


def test_an_endpoint_asleep_answers_late_and_runs_nothing_of_it(
    globus: StandIn, access: Access, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("providers.links.globus_compute.MARGIN_S", 0.2)
    globus.state.set_endpoint(DELTA, EndpointState.ASLEEP)
    mark = tmp_path / "mark"
    batch = Batch(operations=(WriteFile(name="w", path=str(mark), text="ran"),), deadline_s=0.5)

    with pytest.raises(SiteUnreachable, match="did not answer in time"):
        link_to(access).run(batch)
    globus.state.set_endpoint(DELTA, EndpointState.ONLINE)
    deadline = time.monotonic() + 5
    while not globus.state.run("SELECT 1 FROM task WHERE completion_t IS NOT NULL"):
        assert time.monotonic() < deadline
        time.sleep(0.05)

    assert not mark.exists()


def test_a_request_that_the_site_starts_too_late_is_no_answer(
    globus: StandIn, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    globus.state.set_endpoint(DELTA, EndpointState.ASLEEP)
    threading.Timer(0.8, globus.state.set_endpoint, (DELTA, EndpointState.ONLINE)).start()

    with pytest.raises(SiteUnreachable, match="started our request after its 0 s"):
        link_to(access).run(echo("x", deadline_s=0.3))


def test_a_lost_result_ends_at_the_deadline(
    globus: StandIn, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("providers.links.globus_compute.MARGIN_S", 0.2)
    globus.state.arm_result(ResultFault.LOST)
    began = time.monotonic()

    with pytest.raises(SiteUnreachable, match="did not answer in time"):
        link_to(access).run(echo("x", deadline_s=0.5))

    assert 0.6 < time.monotonic() - began < 3


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (ResultFault.KILLED, SiteUnreachable, "lost the worker"),
        (ResultFault.TOO_LARGE, UnparsableOutput, "larger than the 10 MB"),
        (ResultFault.PICKLE, UnparsableOutput, "only JSON is taken"),
    ],
)
def test_a_worker_killed_a_giant_and_a_pickle_each_have_their_sentence(
    globus: StandIn, access: Access, fault: ResultFault, kind: type[FacetError], words: str
) -> None:
    trap = Path("/tmp/facet-opened-a-pickle")
    trap.unlink(missing_ok=True)
    globus.state.arm_result(fault)

    with pytest.raises(kind, match=words):
        link_to(access).run(echo("x"))

    assert not trap.exists()
    assert link_to(access).run(echo("after")).replies["echo"].stdout == "after\n"


def test_a_real_answer_over_ten_megabytes_is_told_as_such(access: Access) -> None:
    loud = tuple(
        Exec(name=f"e{n}", argv=("head", "-c", "4000000", "/dev/zero"), max_bytes=5_000_000) for n in range(3)
    )

    with pytest.raises(UnparsableOutput, match="larger than the 10 MB"):
        link_to(access).run(Batch(operations=loud, deadline_s=20))


def test_a_request_over_ten_megabytes_is_refused_before_it_is_sent(globus: StandIn, access: Access) -> None:
    batch = Batch(operations=(WriteFile(name="w", path="/x", text="a" * (10 * 1024 * 1024)),))

    with pytest.raises(InvalidInput, match="larger than the 10 MB"):
        link_to(access).run(batch)

    assert globus.state.requests() == 0


def test_an_endpoint_python_that_cannot_run_the_function_is_named(
    globus: StandIn, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = link_to(access)
    link.run(echo("x"))
    (known,) = access.functions.values()
    doc = globus.state.get("function", known)
    assert doc is not None
    source = "st\nrun_batch:def run_batch(request):\n    import module_of_a_newer_python\n"
    globus.state.put("function", known, doc | {"function_code": f"{len(source)}\n{source}"})

    with pytest.raises(SiteUnreachable, match=r"Python of endpoint .* cannot run Facet's function"):
        link.run(echo("x"))


def test_too_many_requests_waits_as_long_as_it_is_told(globus: StandIn, access: Access) -> None:
    link = link_to(access)
    link.run(echo("x"))
    globus.state.arm(Fault(path=SUBMIT, status=429, headers={"Retry-After": "1"}))
    began = time.monotonic()

    assert link.run(echo("y")).replies["echo"].rc == 0

    assert 1.0 <= time.monotonic() - began < 4


def test_a_storm_of_429_ends_before_the_deadline_with_the_time_to_come_back(
    globus: StandIn, access: Access
) -> None:
    globus.state.arm(Fault(path="/v3/", status=429, times=100, headers={"Retry-After": "60"}))

    with pytest.raises(RateLimited) as caught:
        link_to(access).run(echo("x"))

    assert caught.value.facts["retry_after_s"] == 60
    assert caught.value.retryable


@pytest.mark.parametrize("how", [{"status": 503}, {"is_cut": True}, {"status": 502, "after": True}])
def test_a_submission_in_doubt_is_never_repeated(
    globus: StandIn, access: Access, how: dict[str, Any]
) -> None:
    link = link_to(access)
    link.run(echo("x"))
    globus.state.arm(Fault(path=SUBMIT, times=100, **how))

    with pytest.raises(SiteUnreachable):
        link.run(echo("y"))

    assert globus.state.run("SELECT times FROM fault")[0]["times"] == 99


def test_status_requests_are_repeated_through_an_outage(globus: StandIn, access: Access) -> None:
    globus.state.arm(Fault(path=STATUS, status=503, times=2))

    assert link_to(access).run(echo("x")).replies["echo"].stdout == "x\n"


def test_an_outage_of_minutes_ends_at_the_deadline(
    globus: StandIn, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("providers.links.globus_compute.MARGIN_S", 1.0)
    globus.state.arm(Fault(path=STATUS, status=503, times=10_000))
    began = time.monotonic()

    with pytest.raises(SiteUnreachable):
        link_to(access).run(echo("x", deadline_s=1))

    assert time.monotonic() - began < 5


def test_a_refused_token_is_renewed_once(globus: StandIn, access: Access) -> None:
    stale = access.token()
    globus.state.expire()

    assert link_to(access).run(echo("x")).replies["echo"].rc == 0
    assert access.refused == [stale]


def test_a_token_refused_twice_asks_for_a_sign_in(globus: StandIn, access: Access) -> None:
    globus.state.arm(
        Fault(path="/v3/", status=401, times=10, body={"code": "UNAUTHENTICATED", "message": "no"})
    )

    with pytest.raises(NotAuthorized):
        link_to(access).run(echo("x"))

    assert access.asked == [("Globus does not accept the access any more.", {})]


def test_a_step_up_is_an_action_with_what_the_sign_in_must_satisfy(globus: StandIn, access: Access) -> None:
    wanted = {
        "session_message": "Use your university login.",
        "session_required_single_domain": ["example.org"],
    }
    globus.state.arm(
        Fault(
            path="/v3/",
            status=403,
            body={"code": "FORBIDDEN", "message": "no", "authorization_parameters": wanted},
        )
    )

    with pytest.raises(NotAuthorized):
        link_to(access).run(echo("x"))

    assert access.asked == [("Use your university login.", wanted)]


def test_a_configuration_that_the_endpoint_refuses_is_the_administrators_to_correct(
    globus: StandIn, access: Access
) -> None:
    schema = {"type": "object", "properties": {"account": {"type": "string"}}, "additionalProperties": False}
    globus.state.know(endpoints=[Endpoint(id=DELTA, name="d", users={ALICE: {}}, user_config_schema=schema)])

    with pytest.raises(InvalidInput, match="does not accept the connection's settings"):
        link_to(access, user_endpoint_config={"account": 5}).run(echo("x"))
    assert link_to(access, user_endpoint_config={"account": "a"}).run(echo("x")).replies["echo"].rc == 0
    assert link_to(access).describe()["user_config_schema"] == schema


def test_the_site_keeps_its_environment_and_gets_nothing_of_ours(
    globus: StandIn, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FACET_SECRET_KEY", "planted")
    globus.state.know(
        endpoints=[Endpoint(id=DELTA, name="d", env={"SITE": "delta"}, users={ALICE: {"USER": "alice"}})]
    )

    reply = link_to(access).run(Batch(operations=(Exec(name="env", argv=("env",)),)))

    lines = set(reply.replies["env"].stdout.splitlines())
    assert {"SITE=delta", "USER=alice"} <= lines
    assert not any("planted" in line for line in lines)


def test_calls_side_by_side_share_their_status_requests(
    globus: StandIn, access: Access, settings: Any
) -> None:
    board = SharedBoard(links._redis)
    globus.state.set_endpoint(DELTA, EndpointState.ASLEEP)
    access.token()
    link_to(access, VISTA, board=board).run(echo("warm"))
    said: list[str] = []

    def call(word: str) -> None:
        said.append(link_to(access, board=board).run(echo(word)).replies["echo"].stdout)

    threads = [threading.Thread(target=call, args=(word,)) for word in "abcdef"]
    for thread in threads:
        thread.start()
    time.sleep(1)
    globus.state.set_endpoint(DELTA, EndpointState.ONLINE)
    for thread in threads:
        thread.join(15)

    assert sorted(said) == ["a\n", "b\n", "c\n", "d\n", "e\n", "f\n"]


def test_a_restarted_service_goes_on_with_the_tasks_it_had(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    with serving(path) as first:
        first.state.know(
            endpoints=[Endpoint(id=DELTA, name="d", users={ALICE: {}}, state=EndpointState.ASLEEP)]
        )
        port = first.server_address[1]
        access = Access(first)
        access.token()
        said: list[str] = []
        link = link_to(access)
        thread = threading.Thread(target=lambda: said.append(link.run(echo("x")).replies["echo"].stdout))
        thread.start()
        deadline = time.monotonic() + 10
        while not first.state.run("SELECT 1 FROM task"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    with serving(path, port) as second:
        second.state.set_endpoint(DELTA, EndpointState.ONLINE)
        thread.join(15)

    assert said == ["x\n"]
