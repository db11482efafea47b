"""The backup that the guide describes: dumped while in use, restored on another server, found whole there."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from psycopg.conninfo import make_conninfo

from federation import charges
from federation.ledger import Happening, record
from federation.models import Allocation, System
from federation.services import allocate
from orchestrator.models import Subscription
from portal.embedded import address
from portal.embedded.binaries import postgres_programs
from portal.embedded.engine import Engine
from portal.grafana_role import embedded_admin, make_role
from portal.sealing import seal
from portal.webhooks.signing import PURPOSE

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[2]
READER = f"facet_reader_{os.getpid()}"
PASSWORD = "a-password-of-our-own"
KEY = "the-secret-key-of-the-backup-0123456789"


@pytest.fixture
def admin() -> Iterator[dict[str, str]]:
    """How to reach the embedded server as its administrator; the role that the test makes is dropped."""
    engine = address.read(settings.DATA_DIR)
    whom = embedded_admin(settings.DATA_DIR, settings.DATABASE_URL, engine.database_url if engine else None)
    if not whom:
        pytest.skip("needs the embedded server: nobody else's may be given roles and databases")
    own = connection.settings_dict
    whom |= {"host": own["HOST"], "port": own["PORT"]}
    yield whom
    with psycopg.connect(make_conninfo("", **whom, dbname=own["NAME"]), autocommit=True) as server:
        if server.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [READER]).fetchone():
            server.execute(f"DROP OWNED BY {READER}")
            server.execute(f"DROP ROLE {READER}")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Engine]:
    """Another machine's server, empty."""
    engine = Engine(tmp_path / "other", valkey=False, durable=False).start()
    yield engine
    engine.stop()


def _run(admin: dict[str, str], program: str, *words: str) -> None:
    """Run one of PostgreSQL's own programs as the administrator."""
    variables = {f"PG{key.upper()}": each for key, each in admin.items()}
    subprocess.run(
        [str(postgres_programs() / program), *words], env=os.environ | variables, check=True, timeout=60
    )


def _verified(database_url: str, key: Path) -> subprocess.CompletedProcess[str]:
    """Run the check on the other machine, with a key of a file."""
    kept = {name: each for name, each in os.environ.items() if not name.startswith(("FACET_", "DATABASE_"))}
    given = {"DATABASE_URL": database_url, "FACET_SECRET_KEY_FILE": str(key), "DATA_DIR": str(key.parent)}
    return subprocess.run(
        [sys.executable, "manage.py", "verify_restore"],
        cwd=ROOT, env=kept | given, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def _history(alice: User, now: datetime) -> None:
    """Leave something of each kind: events, a reservation, a sealed secret."""
    with transaction.atomic():
        record([Happening("task.accepted", f"task_{n}", "x", user_id=alice.pk) for n in range(3)], now=now)
    system = System.objects.create(slug="delta", name="Delta")
    allocate(alice, system, "x-gpu", unit="SU", granted=Decimal(100), now=now)
    for attempt in ("att_1", "att_2"):
        with transaction.atomic():
            charges.reserve(
                user_id=alice.pk, system_id=system.pk, account="x-gpu", attempt=attempt, amount=Decimal(5),
                now=now,
            )  # fmt: skip
    with transaction.atomic():
        charges.settle(attempt="att_1", amount=Decimal(3), now=now)
    Subscription.objects.create(
        handle="sub_1", user=alice, name="s", target="webhook", url="https://x.example", cursor_seq=0,
        acked_seq=0, created_at=now, updated_at=now, sealed_secret=seal("whsec_1", purpose=PURPOSE),
    )  # fmt: skip


def test_a_dump_restored_elsewhere_with_its_key_is_whole(
    admin: dict[str, str], other: Engine, alice: User, now: datetime, settings: Any, tmp_path: Path
) -> None:
    settings.SECRET_KEY = KEY
    _history(alice, now)
    ours, dump = str(connection.settings_dict["NAME"]), str(tmp_path / "facet.dump")
    with psycopg.connect(make_conninfo("", **admin, dbname=ours), autocommit=True) as server:
        assert make_role(server, READER, PASSWORD)
    url = other.address.database_url
    there = embedded_admin(tmp_path / "other", url, url) | _place(url)

    _run(admin, "pg_dump", "--format", "custom", "--file", dump, ours)
    _run(there, "dropdb", "--force", "facet")
    _run(there, "createdb", "--owner", "facet", "facet")
    _run(there, "createuser", READER)
    _run(there, "pg_restore", "--dbname", "facet", "--exit-on-error", dump)
    with psycopg.connect(make_conninfo("", **there, dbname="facet"), autocommit=True) as server:
        assert not make_role(server, READER, PASSWORD)

    (tmp_path / "key").write_text(f"{KEY}\n")
    done = _verified(url, tmp_path / "key")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line[:5] for line in done.stdout.splitlines()] == ["ok   "] * 5
    assert "sealed secrets: 1 open" in done.stdout
    with psycopg.connect(url) as restored:
        counted = restored.execute("SELECT username, count(*) OVER () FROM auth_user").fetchall()
        assert counted == [("alice", 1)]
        assert restored.execute("SELECT count(*) FROM federation_eventposition").fetchone() == (3,)
    with psycopg.connect(make_conninfo(url, user=READER, password=PASSWORD), autocommit=True) as reader:
        assert reader.execute("SELECT count(*) FROM metrics.events").fetchone() == (3,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("SELECT 1 FROM public.auth_user")

    (tmp_path / "key").write_text("another-key-that-is-not-of-the-backup-0\n")
    wrong = _verified(url, tmp_path / "key")
    assert wrong.returncode == 1
    assert (
        "WRONG sealed secrets: 1 of 1 cannot be opened: this is not the secret key of the backup"
        in wrong.stdout
    )


def _place(url: str) -> dict[str, str]:
    found = psycopg.conninfo.conninfo_to_dict(url)
    return {"host": str(found["host"]), "port": str(found.get("port") or "5432")}


def test_what_is_not_whole_is_named(alice: User, now: datetime, capsys: pytest.CaptureFixture[str]) -> None:
    _history(alice, now)
    Allocation.objects.update(used=Decimal(4))

    with pytest.raises(CommandError, match="Not whole: ledger"):
        call_command("verify_restore")

    (wrong,) = re.findall(r"^WRONG (.*)$", capsys.readouterr().out, flags=re.MULTILINE)
    handle = Allocation.objects.get().handle
    assert wrong == f"ledger: 1 totals differ from their lines: {handle}"
