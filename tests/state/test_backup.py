"""The backup that the guide describes: dumped while in use, restored whole, rights included."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from psycopg.conninfo import make_conninfo

from portal.embedded import address
from portal.embedded.binaries import postgres_programs
from portal.grafana_role import embedded_admin, make_role

pytestmark = pytest.mark.django_db(transaction=True)

NAME = f"facet_restored_{os.getpid()}"
PASSWORD = "a-password-of-our-own"


@pytest.fixture
def admin() -> Iterator[dict[str, str]]:
    """How to reach the embedded server as its administrator; what the test makes there is dropped."""
    engine = address.read(settings.DATA_DIR)
    whom = embedded_admin(settings.DATA_DIR, settings.DATABASE_URL, engine.database_url if engine else None)
    if not whom:
        pytest.skip("needs the embedded server: nobody else's may be given roles and databases")
    own = connection.settings_dict
    whom |= {"host": own["HOST"], "port": own["PORT"]}
    yield whom
    with psycopg.connect(make_conninfo("", **whom, dbname="postgres"), autocommit=True) as server:
        server.execute(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")
    with psycopg.connect(make_conninfo("", **whom, dbname=own["NAME"]), autocommit=True) as server:
        if server.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [NAME]).fetchone():
            server.execute(f"DROP OWNED BY {NAME}")
            server.execute(f"DROP ROLE {NAME}")


def _run(admin: dict[str, str], program: str, *words: str) -> None:
    """Run one of PostgreSQL's own programs as the administrator."""
    variables = {f"PG{key.upper()}": each for key, each in admin.items()}
    subprocess.run(
        [str(postgres_programs() / program), *words], env=os.environ | variables, check=True, timeout=60
    )


def test_a_dump_restores_the_rows_the_views_and_the_rights_of_dashboards(
    admin: dict[str, str], tmp_path: Path
) -> None:
    User.objects.create_user("alice")
    ours, dump = str(connection.settings_dict["NAME"]), str(tmp_path / "facet.dump")
    with psycopg.connect(make_conninfo("", **admin, dbname=ours), autocommit=True) as server:
        assert make_role(server, NAME, PASSWORD)

    _run(admin, "pg_dump", "--format", "custom", "--file", dump, ours)
    _run(admin, "createdb", "--owner", str(connection.settings_dict["USER"]), NAME)
    _run(admin, "pg_restore", "--dbname", NAME, "--exit-on-error", dump)

    counted = (
        "SELECT schemaname, viewname FROM pg_views UNION ALL SELECT schemaname, tablename FROM pg_tables"
    )
    with connection.cursor() as cursor:
        cursor.execute(counted)
        relations = sorted(cursor.fetchall())
    with psycopg.connect(make_conninfo("", **admin, dbname=NAME)) as restored:
        assert sorted(restored.execute(counted).fetchall()) == relations
        assert restored.execute("SELECT username FROM auth_user").fetchall() == [("alice",)]
    reader = {**admin, "user": NAME, "password": PASSWORD}
    with psycopg.connect(make_conninfo("", **reader, dbname=NAME)) as restored:
        assert restored.execute("SELECT count(*) FROM metrics.tasks").fetchone() == (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            restored.execute("SELECT 1 FROM public.auth_user")
