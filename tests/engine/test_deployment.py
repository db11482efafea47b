"""Production settings pass Django's own check, and every answer carries the headers that keep a page ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.test import Client

ROOT = Path(__file__).resolve().parents[2]
PRODUCTION = {
    "FACET_PRODUCTION": "1",
    "FACET_SECRET_KEY": "Zx3-only-for-this-check-9f8e7d6c5b4a39281706f5e4d3c2b1a0-qwertyuiop",
    "FACET_PUBLIC_URL": "https://facet.example.org",
    "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/facet",
    "REDIS_URL": "redis://127.0.0.1:1/0",
}
ASK = """
import django; django.setup()
from django.test import Client
client = Client()
def tell(path, **more):
    answer = client.get(path, headers={"Host": "facet.example.org", **more})
    print(path, answer.status_code, answer.get("Location", "-"), answer.get("Strict-Transport-Security", "-"))
tell("/healthz")
tell("/admin/login/")
tell("/healthz", **{"X-Forwarded-Proto": "https"})
"""


def _run(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {name: each for name, each in os.environ.items() if not name.startswith("FACET_")}
    given = PRODUCTION | {"DATA_DIR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "portal.settings"}
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=kept | given, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip


def test_djangos_check_of_a_deployment_finds_nothing(tmp_path: Path) -> None:
    done = _run(tmp_path, "manage.py", "check", "--deploy", "--fail-level", "WARNING")

    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout


def test_plain_http_is_led_to_https_but_for_what_is_asked_from_beside(tmp_path: Path) -> None:
    told = _run(tmp_path, "-W", "ignore", "-c", ASK).stdout.splitlines()

    assert told == [
        "/healthz 200 - -",
        "/admin/login/ 301 https://facet.example.org/admin/login/ -",
        "/healthz 200 - max-age=31536000",
    ]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path", ["/sign-in/", "/admin/login/", "/api/v1/nothing", "/healthz", "/static/none"]
)
def test_every_answer_carries_the_policies(path: str) -> None:
    headers = Client().get(path).headers

    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "camera=()" in headers["Permissions-Policy"]
    policy = headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "object-src 'none'" in policy
    assert ("unsafe-eval" in policy) == path.startswith("/admin")
