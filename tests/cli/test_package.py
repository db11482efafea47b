"""The command line is one wheel without dependencies that the oldest Python it promises can run."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from tests.cli import installed
from tests.cli.installed import CLI, ROOT

SOURCES = sorted((CLI / "facet_cli").rglob("*.py"))
PROJECT = tomllib.loads((CLI / "pyproject.toml").read_text())


def test_the_sources_are_python_3_9_and_import_only_the_standard_library() -> None:
    assert PROJECT["project"]["requires-python"] == ">=3.9"
    assert PROJECT["project"]["dependencies"] == []
    assert PROJECT["tool"]["ruff"]["target-version"] == "py39"
    assert len(SOURCES) > 20
    for path in SOURCES:
        tree = ast.parse(path.read_text(), feature_version=(3, 9))
        roots = {
            alias.name.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        } | {
            str(node.module).partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
        }
        assert roots <= {*sys.stdlib_module_names, "facet_cli"}, path
        assert not any(isinstance(node, ast.Match) for node in ast.walk(tree)), path


def test_exit_codes_in_help_and_bundle_are_those_of_the_code() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "facet_cli", "--help"],
        env={**os.environ, "PYTHONPATH": str(CLI)},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    helped = {int(code) for code in re.findall(r"^ +(\d+)  \w", done.stdout, re.MULTILINE)}
    page = (ROOT / "templates" / "bundle" / "references" / "cli.md").read_text()
    bundled = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}

    code = (CLI / "facet_cli" / "exits.py").read_text()
    known = {int(value) for value in re.findall(r"^    [A-Z_]+ = (\d+)$", code, re.MULTILINE)}
    assert helped == known
    assert bundled == known - {130}


def test_the_wheel_holds_the_sources_and_runs_alone_on_the_oldest_python_here(tmp_path: Path) -> None:
    wheel = installed.build(tmp_path)
    with zipfile.ZipFile(wheel) as made:
        names = [name for name in made.namelist() if ".dist-info/" not in name]
    assert wheel.name == "facet_cli-0.1.0-py3-none-any.whl"
    assert sorted(names) == [f"{path.relative_to(CLI)}" for path in SOURCES]

    oldest = installed.oldest()
    python = installed.install(wheel, tmp_path / "fresh", oldest)
    given: dict[str, Any] = {
        "env": {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        "cwd": tmp_path,
        "timeout": 60,
    }
    asks = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
    version = subprocess.run([oldest, "-c", asks], capture_output=True, text=True, check=True, **given).stdout
    facet = tmp_path / "fresh" / "bin" / "facet"
    told = subprocess.run([facet, "version"], capture_output=True, text=True, check=True, **given)
    assert told.stdout.startswith(f"facet 0.1.0 (Python {version.strip()}")

    refused = subprocess.run(
        [python, "-W", "error", "-m", "facet_cli", "systems", "--json"],
        capture_output=True,
        text=True,
        check=False,
        **given,
    )
    assert refused.returncode == 3, refused.stderr
    assert json.loads(refused.stdout)["error"]["code"] == "not_logged_in"
