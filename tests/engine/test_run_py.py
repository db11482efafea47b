"""`run.py` on a machine that has only python3: what it fetches, what it refuses, when it does nothing."""

import ast
import hashlib
import http.server
import importlib.util
import io
import json
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from portal.checks import lock_hosts

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run_py() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_py", ROOT / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Index(http.server.BaseHTTPRequestHandler):
    """A package index of one page and one wheel."""

    page = ""
    wheel = b""

    def do_GET(self) -> None:
        content = self.wheel if self.path.endswith(".whl") else self.page.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class names it
        pass


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_py: ModuleType) -> Iterator[type[Index]]:
    """Answer instead of the package index, to a python3 without pip."""
    name = f"uv-{run_py.UV}-py3-none-{run_py.UV_WHEELS[run_py.this_platform()][0]}.whl"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as wheel:
        wheel.writestr(f"uv-{run_py.UV}.data/scripts/uv", f"#!/bin/sh\necho uv {run_py.UV}\n")
    Index.wheel = archive.getvalue()
    Index.page = f'<a href="../../files/{name}#sha256=0">{name}</a>'
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{server.server_port}/simple/")
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    monkeypatch.setattr(run_py, "wheel_by_pip", lambda _name: None)
    monkeypatch.setattr(run_py, "ROOT", tmp_path)
    yield Index
    server.shutdown()
    thread.join(5)
    server.server_close()


def test_it_is_written_for_python_3_9_and_the_standard_library() -> None:
    tree = ast.parse((ROOT / "run.py").read_text(), feature_version=(3, 9))

    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names


def test_a_wheel_with_another_hash_is_refused(index: type[Index], run_py: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(run_py.CannotStart, match="it is refused"):
        run_py.fetch_uv()

    assert list(tmp_path.iterdir()) == []


def test_a_fetched_uv_is_kept_and_found_again(
    index: type[Index], run_py: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = run_py.this_platform()
    tag = run_py.UV_WHEELS[key][0]
    monkeypatch.setitem(run_py.UV_WHEELS, key, (tag, hashlib.sha256(index.wheel).hexdigest()))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    fetched = run_py.fetch_uv()

    assert fetched == str(tmp_path / "bin" / "uv")
    assert run_py.find_uv() == fetched
    assert run_py.uv_version(fetched) == tuple(int(part) for part in run_py.UV.split("."))


def test_an_index_without_the_wheel_is_named(index: type[Index], run_py: ModuleType) -> None:
    index.page = "<a href='uv-0.0.1.tar.gz'>"

    with pytest.raises(run_py.CannotStart, match=r"http://127.0.0.1:\d+/simple/uv/ does not offer uv-"):
        run_py.fetch_uv()


def test_a_uv_too_old_for_the_lock_file_is_passed_over(
    run_py: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "uv"
    old.write_text("#!/bin/sh\necho uv 0.4.2\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(run_py, "ROOT", tmp_path)

    assert run_py.uv_version(str(old)) == (0, 4, 2)
    assert run_py.find_uv() is None


def test_an_environment_made_from_this_lock_is_used_as_it_is(
    run_py: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(run_py, "VENV", tmp_path)
    made = run_py.wanted_state(dev=False)
    (tmp_path / ".facet-made").write_text(json.dumps(made))

    assert run_py.is_made(made)
    assert not run_py.is_made(run_py.wanted_state(dev=True))
    assert not run_py.is_made({**made, "lock": "another"})
    (tmp_path / "bin" / "python").unlink()
    assert not run_py.is_made(made)


@pytest.mark.parametrize("home", ["/nonexistent", "/proc"])
def test_a_home_that_cannot_be_written_moves_the_cache_into_the_data_directory(
    run_py: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setenv("HOME", home)
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    monkeypatch.delenv("UV_CACHE_DIR", raising=False)
    monkeypatch.setattr(run_py.os, "access", lambda path, _mode: str(path).startswith(str(tmp_path)))

    assert run_py.uv_environment()["UV_CACHE_DIR"] == str(tmp_path / "cache" / "uv")


def test_the_lock_file_names_public_hosts_only() -> None:
    assert lock_hosts((ROOT / "uv.lock").read_text()) == []


def test_a_strange_host_or_folder_in_a_lock_file_is_named() -> None:
    lock = """
    source = { registry = "https://mirror.example/simple" }
    sdist = { url = "https://files.pythonhosted.org/a.tar.gz" }
    source = { registry = "/opt/wheels" }
    source = { path = "../thing" }
    source = { virtual = "." }
    """

    assert lock_hosts(lock) == ["../thing", "/opt/wheels", "mirror.example"]
