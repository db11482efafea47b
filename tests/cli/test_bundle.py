"""The skill bundle is whole, the same bytes every time, and every command in it works as it stands."""

import io
import json
import os
import re
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from portal import bundle, cli_wheel
from portal.skills.every import SKILLS
from portal.skills.registry import described
from tests.cli import installed
from tests.cli.conftest import Facet, World

services = pytest.mark.services
MILESTONES = installed.ROOT / "docs" / "howto" / "report-milestones.md"
FAILING = """#!/bin/bash
#SBATCH --job-name=train
#SBATCH --cpus-per-task=1
#SBATCH --time=00:10:00
echo broken >&2
exit 3
"""
MENDED = FAILING.replace("exit 3", "echo fine")
_FENCED = re.compile(r"^## (?P<title>.+?)$|^```bash\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_HANDLES = {"task": "TASK", "env": "ENVELOPE", "grp": "GROUP"}


def test_the_bundle_obeys_the_rules_for_skills() -> None:
    made = bundle.files(described())

    head = made["SKILL.md"].split("---\n")[1]
    name = re.search(r"^name: (.+)$", head, re.MULTILINE)
    description = re.search(r"^description: (.+)$", head, re.MULTILINE)
    assert name is not None
    assert description is not None
    assert name[1] == bundle.NAME == "facet"
    assert re.fullmatch(r"[a-z][a-z0-9-]{0,63}", name[1])
    assert 100 < len(description[1]) <= 1024
    assert ": " not in description[1]
    assert len(made["SKILL.md"].splitlines()) < 500
    assert "untrusted" in made["SKILL.md"]
    for skill in SKILLS:
        assert f"\n## {skill}\n" in made["references/skills.md"]
        assert json.loads(made[f"references/schemas/{skill}.json"])["input_schema"]


def test_every_object_that_a_field_holds_is_told() -> None:
    page = bundle.files(described())["references/skills.md"]

    named = set(re.findall(r"object `(\w+)`", page))
    assert named >= {"EnvironmentInput", "RetryInput", "ChildInput", "MatrixInput", "BudgetInput"}
    assert [name for name in sorted(named) if f"\n## {name}\n" not in page] == []
    assert "Answers with an object" not in page


def test_every_link_in_the_bundle_leads_somewhere() -> None:
    made = bundle.files(described())

    links = [
        os.path.normpath(Path(path).parent / link)
        for path, text in made.items()
        for link in re.findall(r"\]\(([^)]+)\)", text)
    ]

    assert len(links) > 10
    assert [link for link in links if link not in made] == []


def test_the_same_skills_give_the_same_bytes_and_others_another_version() -> None:
    skills = [dict(each) for each in described()]
    other = [{**skills[0], "summary": "Something else."}, *skills[1:]]

    first, again, changed = bundle.archive(skills), bundle.archive(skills[::-1]), bundle.archive(other)

    def version(content: bytes) -> str:
        text = zipfile.ZipFile(io.BytesIO(content)).read("facet/SKILL.md").decode()
        found = re.search(r'version: "([0-9a-f]{12})"', text)
        assert found is not None
        return found[1]

    assert first == again
    assert first != changed
    assert version(first) != version(changed)


def test_scripts_of_the_bundle_can_be_run_and_are_plain_sh() -> None:
    with zipfile.ZipFile(io.BytesIO(bundle.archive(described()))) as made:
        entry = made.getinfo("facet/scripts/facet-wait.sh")
        done = subprocess.run(["sh", "-n"], input=made.read(entry), check=False, timeout=10)

    assert stat.S_IMODE(entry.external_attr >> 16) == 0o755
    assert done.returncode == 0


def unzipped(content: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(content)) as made:
        return {name.removeprefix("facet/"): made.read(name).decode() for name in made.namelist()}


def test_the_milestone_that_is_told_fails_no_job_without_a_kit(tmp_path: Path) -> None:
    lines = [
        line
        for page in (bundle.texts()["references/events.md"], MILESTONES.read_text())
        for line in page.splitlines()
        if line.startswith('"$') and "epoch 3" in line
    ]

    assert len(lines) == 2
    for line in lines:
        assert subprocess.run(["sh", "-ceu", line], cwd=tmp_path, env={}, check=False).returncode == 0


@services
def test_anybody_may_fetch_it_and_only_once(world: World) -> None:
    url = f"{world.server.url}/api/v1/bundle"
    with urlopen(url, timeout=10) as response:
        tag, content = response.headers["ETag"], response.read()

    assert unzipped(content) == bundle.files(described())
    assert content == bundle.archive(described())
    with pytest.raises(HTTPError) as error:
        urlopen(Request(url, headers={"If-None-Match": tag}), timeout=10)
    assert error.value.code == 304
    error.value.close()


@services
def test_the_command_line_puts_it_where_agents_look(facet: Facet) -> None:
    skills = facet.home / "skills"
    (skills / "facet").mkdir(parents=True)
    (skills / "facet" / "left over").write_text("from before")

    ran = facet("bundle", "--claude", str(skills), "--output", str(facet.home / "facet.zip"), "--json")

    assert ran.code == 0
    assert ran.json["folders"] == [str(skills / "facet")]
    assert sorted(path.name for path in skills.iterdir()) == ["facet"]
    assert sorted(path.name for path in (skills / "facet").iterdir()) == ["SKILL.md", "references", "scripts"]
    assert os.access(skills / "facet" / "scripts" / "facet-wait.sh", os.X_OK)
    assert (facet.home / "facet.zip").read_bytes() == bundle.archive(described())


def test_a_bundle_that_would_write_elsewhere_is_refused(tmp_path: Path) -> None:
    harmful = io.BytesIO()
    with zipfile.ZipFile(harmful, "w") as made:
        made.writestr("facet/SKILL.md", "x")
        made.writestr("facet/../../outside", "x")
    program = (
        "import sys; from pathlib import Path; from facet_cli.commands.bundle import unpack\n"
        "unpack(sys.stdin.buffer.read(), Path(sys.argv[1]))"
    )

    done = subprocess.run(
        [installed.python(), "-c", program, str(tmp_path / "a" / "b")],
        input=harmful.getvalue(),
        capture_output=True,
        check=False,
        timeout=20,
    )

    assert b"it was not unpacked" in done.stderr
    assert list(tmp_path.rglob("outside")) == []


class Reader:
    """A newcomer who has the bundle, a token and a shell, and does what the page says, block by block."""

    def __init__(self, facet: Facet, skill: Path) -> None:
        self.home, self.skill = facet.home, skill
        self.variables = {**facet.environment, "SKILL": str(skill), "ENVELOPE": "", "TASK": "", "GROUP": ""}
        self.setup = ""
        self.answers: list[tuple[str, Any]] = []
        self.printed: dict[str, str] = {}

    def blocks(self, page: str) -> Iterator[tuple[str, str]]:
        title = ""
        for found in _FENCED.finditer((self.skill / page).read_text()):
            if found["title"]:
                title = found["title"]
            else:
                yield title, found["code"]

    def do(self, title: str, code: str) -> None:
        """Run one block as it stands; what it answers gives the variables that the page names."""
        if code.startswith("api()"):
            self.setup = code
        done = subprocess.run(
            ["bash", "-ceu", self.setup + code],
            env=self.variables,
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        assert done.returncode == 0, f"{title}: {done.stdout} {done.stderr}"
        self.printed[title] = done.stdout
        for answer in documents(done.stdout):
            assert "errors" not in answer, f"{title}: {answer}"
            self.answers.append((title, answer))
            handle = str(answer.get("id") or "")
            name = _HANDLES.get(handle.partition("_")[0])
            if name and "attempts" not in answer:
                self.variables[name] = handle

    def answers_to(self, title: str) -> list[Any]:
        return [answer for each, answer in self.answers if each.startswith(title)]


def documents(text: str) -> Iterator[Any]:
    """Yield every JSON object in some output."""
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        document, end = decoder.raw_decode(text, at)
        yield document
        at = text.find("{", end)


@pytest.fixture
def newcomer(facet: Facet) -> Reader:
    """Somebody with nothing but the bundle as it is downloaded, and the command line on the PATH."""
    with urlopen(f"{facet.url}/api/v1/bundle", timeout=10) as response:
        zipfile.ZipFile(io.BytesIO(response.read())).extractall(facet.home / "skills")
    program = facet.home / "bin" / "facet"
    program.write_text(f'#!/bin/sh\nexec {installed.python()} -m facet_cli "$@"\n')
    program.chmod(0o755)
    (facet.home / "bin" / "python3").symlink_to(sys.executable)
    (facet.home / "job.sbatch").write_text(FAILING)
    return Reader(facet, facet.home / "skills" / "facet")


def read_through(newcomer: Reader, page: str) -> None:
    for title, code in newcomer.blocks(page):
        if title.startswith("Mend"):
            (newcomer.home / "job.sbatch").write_text(MENDED)
        newcomer.do(title, code)


@services
def test_every_curl_example_works_from_look_to_resubmission(newcomer: Reader, facet: Facet) -> None:
    read_through(newcomer, "references/http.md")

    (drafted,) = newcomer.answers_to("Draft")
    assert drafted["said"]["cpus"] == {"min": 1, "max": 1}
    assert newcomer.answers_to("Preview")[0]["selected"]["system"] == "delta"
    submitted = newcomer.answers_to("Submit")[0]["id"]
    heard = newcomer.answers_to("Stop")[-1]["events"][0]
    assert (heard["type"], heard["task"]) == ("task.failed", submitted)
    assert newcomer.answers_to("Triage")[0]["text"] == "broken\n"
    (again,) = newcomer.answers_to("Mend")
    assert again["id"] != submitted
    assert newcomer.answers_to("Change")[0]["id"] == again["id"]
    assert facet("wait", again["id"]).code in {0, 7}

    result, crate = newcomer.answers_to("Read the result")
    assert (result["state"], result["task"]["cause"]) == ("failed", "exit_code")
    assert submitted in json.dumps(crate["@graph"])
    group, heard, children = newcomer.answers_to("Many")
    assert (heard["events"][0]["type"], heard["events"][0]["subject"]) == ("group.succeeded", group["id"])
    assert [child["state"] for child in children["results"]] == ["succeeded", "succeeded"]
    (streamed,) = newcomer.answers_to("Or hear it")
    assert (streamed["type"], streamed["task"]) == ("task.failed", submitted)


@services
def test_the_server_has_the_command_line_that_fits_it(world: World, tmp_path: Path) -> None:
    subprocess.run([installed.oldest(), "-m", "venv", str(tmp_path / "fresh")], check=True, timeout=120)
    fresh = tmp_path / "fresh" / "bin"
    words = ("--no-index", "--disable-pip-version-check", "--find-links", f"{world.server.url}/api/v1/cli/")
    subprocess.run([fresh / "pip", "install", "-q", *words, "facet-cli"], check=True, timeout=120)
    told = subprocess.run(
        [fresh / "facet", "version"], capture_output=True, text=True, check=True, timeout=60
    )
    assert told.stdout.startswith("facet 0.1.0 (Python 3.")

    served = zipfile.ZipFile(io.BytesIO(cli_wheel.content()))
    built = zipfile.ZipFile(installed.build(tmp_path))
    assert served.testzip() is None
    names = [name for name in built.namelist() if not name.endswith(("METADATA", "RECORD", "WHEEL"))]
    assert {name: served.read(name) for name in names} == {name: built.read(name) for name in names}
    with pytest.raises(HTTPError, match="404"):
        urlopen(f"{world.server.url}/api/v1/cli/facet_cli-9.9-py3-none-any.whl", timeout=10)


@services
def test_every_example_of_the_command_line_works(newcomer: Reader) -> None:
    read_through(newcomer, "references/cli.md")

    assert newcomer.answers_to("Wait")[0]["results"][0]["state"] == "failed"
    assert newcomer.answers_to("Read")[0]["task"]["cause"] == "exit_code"
    events = [answer["type"] for answer in newcomer.answers_to("Read") if "cursor" in answer]
    assert (events[0], events[-1]) == ("task.accepted", "task.failed")
    assert "\nbroken\n" in newcomer.printed["Read"]
    mended, again = newcomer.answers_to("Mend")[0], newcomer.answers_to("The same work")[0]
    assert mended["results"][0]["state"] == "succeeded"
    assert again["shape"]["walltime_s"] == 1500
    (called,) = newcomer.answers_to("Call what")
    assert called["id"] == again["id"]
    swept, steps = newcomer.answers_to("Many")
    assert swept["results"][0]["counts"] == {"succeeded": 2}
    assert [child["key"] for child in steps["group"]["children"]] == ["make", "use"]


@services
def test_waiting_with_curl_alone_tells_what_was_refused(newcomer: Reader) -> None:
    script = str(newcomer.skill / "scripts" / "facet-wait.sh")

    def run(*words: str, **more: str) -> "subprocess.CompletedProcess[str]":
        environment = {**newcomer.variables, **more}
        return subprocess.run(
            ["sh", script, *words], env=environment, capture_output=True, text=True, check=False, timeout=30
        )

    assert run().returncode == 2
    unknown = run("task_none")
    assert unknown.returncode == 1
    assert json.loads(unknown.stdout)["code"] == "not_found"
    assert json.loads(run("task_none", FACET_TOKEN="facet_wrong").stdout)["status"] == 401
