"""The routes a finished task and a running job have of their own: RO-Crate, and milestones by a job token."""

import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from federation.models import Event, System
from orchestrator import job_tokens
from orchestrator.milestone_kit import SCRIPT
from orchestrator.models import Attempt
from tests.api.conftest import Api, check_problem

pytestmark = pytest.mark.django_db(transaction=True)


def _attempt(api: Api) -> Attempt:
    answer = api.post("tasks?wait_s=0", {"command": "true", "name": "work"})
    return Attempt.objects.get(task__handle=answer.json()["id"])


def _report(token: str | None, body: bytes = b"epoch 3", kind: str = "text/plain") -> Any:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return Client().post("/api/v1/milestones", body, content_type=kind, headers=headers)


def test_a_job_reports_by_its_own_token_in_text_or_json(api: Api, delta: System) -> None:
    attempt = _attempt(api)
    token = job_tokens.issue(attempt, now=timezone.now())

    first = _report(token)
    second = _report(token, b'{"text": "epoch 4"}', "application/json")

    assert (first.status_code, second.status_code) == (202, 202)
    events = Event.objects.filter(type="milestone.reached").order_by("id")
    assert [event.data["text"] for event in events] == ["epoch 3", "epoch 4"]
    assert second.json() == {"event": events[1].handle, "number": 2}
    listed = api.get("events?type=milestone.*").json()["results"]
    assert [event["summary"] for event in listed] == [
        "work reports (untrusted): “epoch 3”",
        "work reports (untrusted): “epoch 4”",
    ]
    assert token not in str(listed)


def test_other_tokens_do_not_report_and_job_tokens_open_nothing_else(api: Api, delta: System) -> None:
    token = job_tokens.issue(_attempt(api), now=timezone.now())

    for wrong in (None, api.token, token + "x"):
        problem = check_problem(_report(wrong))
        assert problem["status"] == 401
        assert "fjt_" not in str(problem)
    assert Client().get("/api/v1/tasks", headers={"authorization": f"Bearer {token}"}).status_code == 401
    assert check_problem(_report(token, b"x" * 5000))["code"] == "body_too_large"
    assert check_problem(_report(token, b"{", "application/json"))["code"] == "malformed_json"
    assert Event.objects.filter(type="milestone.reached").count() == 0


def test_provenance_is_the_owners_and_names_what_ran(api: Api, bob: Any, caller: Any, delta: System) -> None:
    attempt = _attempt(api)

    answer = api.get(f"tasks/{attempt.task.handle}/ro-crate")

    assert answer["Content-Type"] == "application/ld+json"
    found = {each["@id"]: each for each in answer.json()["@graph"]}
    assert found["./"]["name"] == "work"
    assert found[f"#{attempt.handle}"]["name"] == f"Attempt 1 on delta/{attempt.partition}"
    assert found["#scheduler:delta"]["name"] == "slurm"
    assert found["#facet"]["softwareVersion"] == "0.1.0"
    assert found["#token:test"]["description"] == "Acted on behalf of alice."
    assert found["#placing"]["agent"] == {"@id": "#token:test"}
    assert caller(bob).get(f"tasks/{attempt.task.handle}/ro-crate").status_code == 404


class _Heard(BaseHTTPRequestHandler):
    heard: list[tuple[str, bytes]] = []
    status = 202

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.heard.append((self.headers["Authorization"], body))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        pass


@pytest.mark.parametrize(("status", "left"), [(202, []), (401, ["epoch 3; $(rm x)"])])
def test_the_script_speaks_to_the_server_and_else_leaves_a_file(
    tmp_path: Path, status: int, left: list[str]
) -> None:
    _Heard.heard, _Heard.status = [], status
    server = HTTPServer(("127.0.0.1", 0), _Heard)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    kit = tmp_path / "kit"
    kit.mkdir()
    script = kit / "facet-milestone"
    script.write_text(SCRIPT)
    (kit / "token").write_text("fjt_secret")
    try:
        done = subprocess.run(
            ["sh", str(script), "epoch", "3; $(rm x)"],
            env={
                "PATH": "/usr/bin:/bin",
                "FACET_MILESTONE_URL": f"http://127.0.0.1:{server.server_port}/m",
                "FACET_MILESTONE_DIR": str(tmp_path / "drop"),
            },
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert _Heard.heard == [("Bearer fjt_secret", b"epoch 3; $(rm x)")]
    assert [path.read_text().strip() for path in tmp_path.glob("drop/*.txt")] == left
    assert len(SCRIPT.splitlines()) <= 25
