"""The command line is one wheel without dependencies that the oldest Python it promises can run."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.cli.conftest import CLI, ROOT

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


def test_the_wheel_builds_and_runs_in_a_fresh_environment(tmp_path: Path) -> None:
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("no uv on the PATH to build the wheel with")
    source = tmp_path / "source"
    shutil.copytree(CLI, source, ignore=shutil.ignore_patterns("__pycache__", "dist"))
    built = subprocess.run(
        [uv, "build", "--wheel", "--out-dir", str(tmp_path), str(source)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    if built.returncode and "hatchling" in built.stderr and "resolve" in built.stderr:
        pytest.skip("no package index from which the build backend hatchling could be had")
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as made:
        names = [name for name in made.namelist() if ".dist-info/" not in name]
    assert wheel.name == "facet_cli-0.1.0-py3-none-any.whl"
    assert sorted(names) == [f"{path.relative_to(CLI)}" for path in SOURCES]

    venv.create(tmp_path / "fresh", with_pip=False)
    python = tmp_path / "fresh" / "bin" / "python"
    install = [uv, "pip", "install", "--offline", "--no-deps", "--python", str(python), str(wheel)]
    subprocess.run(install, capture_output=True, check=True, timeout=60)
    told = subprocess.run(
        [str(tmp_path / "fresh" / "bin" / "facet"), "version"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert told.stdout.startswith("facet 0.1.0 (Python 3.")


def test_the_oldest_python_here_can_run_it(tmp_path: Path) -> None:
    names = ("python3.9", "python3.10")
    usable = [
        name
        for name in names
        if shutil.which(name)
        and subprocess.run([name, "-c", ""], capture_output=True, check=False, timeout=20).returncode == 0
    ]
    if not usable:
        pytest.skip("no python3.9 or python3.10 on the PATH")

    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(CLI), "HOME": str(tmp_path)}
    done = subprocess.run(
        [usable[0], "-W", "error", "-m", "facet_cli", "systems", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )

    assert done.returncode == 3, done.stderr
    assert '"code": "not_logged_in"' in done.stdout
