"""The reverse proxies of the guide: the servers accept what is written, and it sets what Facet trusts."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

GUIDE = (Path(__file__).resolve().parents[2] / "docs/howto/run-on-one-machine.md").read_text()
BLOCKS = re.findall(r"```text\n(.*?)```", GUIDE, flags=re.DOTALL)
NGINX = next(block for block in BLOCKS if "proxy_pass" in block)
CADDY = next(block for block in BLOCKS if "reverse_proxy" in block)


def _run(program: str, package: str, *words: str, folder: Path) -> None:
    found = shutil.which(program, path="/usr/sbin:/usr/bin:/usr/local/bin")
    if found is None:
        pytest.skip(f"needs {program} (Debian's package {package})")
    given = {"HOME": str(folder), "PATH": "/usr/bin"}
    done = subprocess.run([found, *words], capture_output=True, text=True, check=False, env=given)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nginx_accepts_the_configuration_of_the_guide(tmp_path: Path) -> None:
    key, certificate = tmp_path / "facet.key", tmp_path / "facet.pem"
    made = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=facet.example.org",
        "-keyout",
    ]
    _run("openssl", "openssl", *made, str(key), "-out", str(certificate), folder=tmp_path)
    server = NGINX.replace("/etc/ssl/facet.pem", str(certificate)).replace("/etc/ssl/facet.key", str(key))
    places = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    frame = f"pid {tmp_path}/pid;\nerror_log {tmp_path}/log;\nevents {{}}\n"
    whole = f"{frame}http {{\naccess_log off;\n{places}{server}}}\n"
    (tmp_path / "nginx.conf").write_text(whole.replace("listen 443 ssl", "listen 127.0.0.1:8443 ssl"))

    _run("nginx", "nginx-light", "-t", "-c", str(tmp_path / "nginx.conf"), folder=tmp_path)


def test_caddy_accepts_the_configuration_of_the_guide(tmp_path: Path) -> None:
    (tmp_path / "Caddyfile").write_text(CADDY)

    words = ("validate", "--adapter", "caddyfile", "--config", str(tmp_path / "Caddyfile"))
    _run("caddy", "caddy", *words, folder=tmp_path)


def test_nginx_sets_what_facet_trusts_and_does_not_hold_streams_back() -> None:
    said = set(re.findall(r"^\s*(proxy_\w+ [^;]+);", NGINX, flags=re.MULTILINE))

    assert said == {
        "proxy_pass http://127.0.0.1:8000",
        "proxy_http_version 1.1",
        "proxy_set_header Host $host",
        "proxy_set_header X-Forwarded-Proto https",
        "proxy_set_header X-Forwarded-For $remote_addr",
        "proxy_buffering off",
        "proxy_read_timeout 1h",
    }
