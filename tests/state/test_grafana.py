"""Dashboards say only what the database answers, and the role that reads for them can read nothing else."""

import json
import os
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection
from psycopg.conninfo import make_conninfo

from portal.embedded import address
from portal.grafana_role import embedded_admin

pytestmark = pytest.mark.django_db

GRAFANA = Path(__file__).resolve().parents[2] / "grafana"
DASHBOARDS = {
    path.stem: json.loads(path.read_text()) for path in sorted((GRAFANA / "dashboards").glob("*.json"))
}
TIME = "'2026-01-01T00:00:00Z'"
MACROS = (
    (r"\$__timeFilter\(([^()]+)\)", rf"\1 BETWEEN {TIME} AND now()"),
    (r"\$__timeGroup\(([^(),]+), \$__interval\)", r"floor(extract(epoch FROM \1) / 300) * 300"),
    (r"\(\$system\)", "('delta','vista')"),
)
PANELS = [
    pytest.param(panel, id=f"{name}: {panel['title']}")
    for name, dashboard in DASHBOARDS.items()
    for panel in dashboard["panels"]
]


def _plain(sql: str) -> str:
    """Return a panel's SQL with Grafana's macros and variables written out; none may be left."""
    for macro, written_out in MACROS:
        sql = re.sub(macro, written_out, sql)
    assert "$" not in sql
    return sql


def _columns(sql: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(_plain(sql))
        return [column.name for column in cursor.description]


def _relations(sql: str) -> set[str]:
    """Return what follows FROM and JOIN, `extract(epoch FROM …)` aside."""
    return set(re.findall(r"\b(?:FROM|JOIN) ([\w.]+)", re.sub(r"epoch FROM", "", sql)))


def test_the_dashboards_are_there_under_names_of_their_own() -> None:
    assert set(DASHBOARDS) == {
        "federation", "capacity", "placements", "outcomes", "events", "allocations", "control", "budgets",
    }  # fmt: skip
    assert {dashboard["uid"] for dashboard in DASHBOARDS.values()} == {f"facet-{name}" for name in DASHBOARDS}


@pytest.mark.parametrize("panel", PANELS)
def test_each_panel_asks_what_the_database_answers(panel: dict[str, Any]) -> None:
    (target,) = panel["targets"]
    columns = _columns(target["rawSql"])

    assert len(columns) == len(set(columns))
    if panel["type"] == "timeseries":
        assert columns[0] == "time"
    overridden = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}
    assert overridden <= set(columns)


@pytest.mark.parametrize("panel", PANELS)
def test_each_panel_reads_views_of_metrics_only(panel: dict[str, Any]) -> None:
    relations = _relations(panel["targets"][0]["rawSql"])

    assert relations
    assert {name for name in relations if not name.startswith("metrics.")} == set()


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_have_ids_of_their_own_and_do_not_overlap(name: str) -> None:
    panels = DASHBOARDS[name]["panels"]
    cells = [
        (x, y)
        for box in (panel["gridPos"] for panel in panels)
        for x in range(box["x"], box["x"] + box["w"])
        for y in range(box["y"], box["y"] + box["h"])
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_variable_used_is_defined_and_answers(name: str) -> None:
    variables = {each["name"]: each["query"] for each in DASHBOARDS[name]["templating"]["list"]}
    asked = " ".join(panel["targets"][0]["rawSql"] for panel in DASHBOARDS[name]["panels"])

    assert set(re.findall(r"\$(?!__)(\w+)", asked)) == set(variables)
    for query in variables.values():
        assert _relations(query) == {"metrics.systems"}
        assert len(_columns(query)) == 1


def test_dashboards_use_the_provisioned_datasource() -> None:
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/facet.yaml").read_text())["datasources"]
    named = {
        (panel["datasource"]["type"], panel["datasource"]["uid"])
        for dashboard in DASHBOARDS.values()
        for panel in [*dashboard["panels"], *dashboard["templating"]["list"]]
    }

    assert named == {(source["type"], source["uid"])}
    assert source["user"] == "facet_grafana"
    assert source["secureJsonData"]["password"] == "$GRAFANA_DB_PASSWORD"


class Role:
    """A role of this test's own on the test server, made by the command."""

    def __init__(self, folder: Path) -> None:
        self.name = f"facet_grafana_{os.getpid()}"
        self.folder = folder
        self.database = str(connection.settings_dict["NAME"])

    def make(self, password: str | None = None) -> str:
        """Run the command; return what it prints."""
        words = ["--role", self.name]
        if password is not None:
            (self.folder / "password").write_text(f"{password}\n")
            words += ["--password-file", str(self.folder / "password")]
        printed = StringIO()
        call_command("facet_grafana_role", *words, stdout=printed, stderr=StringIO())
        return printed.getvalue().strip()

    def sign_in(self, password: str) -> psycopg.Connection[Any]:
        """Connect as the role."""
        return self.connect(user=self.name, password=password)

    def connect(self, **whom: str) -> psycopg.Connection[Any]:
        given = {
            key: str(each)
            for key, each in connection.get_connection_params().items()
            if key in ("host", "port")
        }
        return psycopg.connect(make_conninfo("", **{**given, **whom}, dbname=self.database), autocommit=True)


@pytest.fixture
def role(tmp_path: Path, transactional_db: None) -> Iterator[Role]:
    engine = address.read(settings.DATA_DIR)
    admin = embedded_admin(settings.DATA_DIR, settings.DATABASE_URL, engine.database_url if engine else None)
    if not admin:
        pytest.skip("needs the embedded server: nobody else's may be given roles")
    made = Role(tmp_path)
    yield made
    with made.connect(**admin) as server:
        if server.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [made.name]).fetchone():
            server.execute(f"DROP OWNED BY {made.name}")
            server.execute(f"DROP ROLE {made.name}")


def test_the_role_reads_every_view_and_no_table(role: Role) -> None:
    with role.sign_in(role.make()) as reader:
        views = {
            name for (name,) in reader.execute("SELECT viewname FROM pg_views WHERE schemaname = 'metrics'")
        }
        for view in views:
            reader.execute(f"SELECT * FROM metrics.{view} LIMIT 1")
        for table in ("auth_user", "portal_apitoken", "federation_connection", "orchestrator_task"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                reader.execute(f"SELECT 1 FROM public.{table} LIMIT 1")

    assert "calibration" in views


def test_the_role_writes_nothing_and_asks_for_ten_seconds_at_most(role: Role) -> None:
    with role.sign_in(role.make()) as reader:
        assert reader.execute("SHOW statement_timeout").fetchone() == ("10s",)
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            reader.execute("CREATE TEMP TABLE mine (n int)")
        reader.execute("SET default_transaction_read_only = off")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("CREATE TABLE metrics.mine (n int)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("DELETE FROM metrics.systems")


def test_a_second_run_renews_the_password(role: Role) -> None:
    first = role.make()
    assert role.make("a-password-of-our-own") == ""

    role.sign_in("a-password-of-our-own").close()
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        role.sign_in(first)


def test_a_view_made_later_is_read_too(role: Role) -> None:
    password = role.make()
    with connection.cursor() as cursor:
        cursor.execute("CREATE VIEW metrics.later AS SELECT 1 AS one")
    try:
        with role.sign_in(password) as reader:
            assert reader.execute("SELECT one FROM metrics.later").fetchone() == (1,)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP VIEW metrics.later")


def test_a_role_that_could_read_more_is_refused(role: Role) -> None:
    role.make()
    with connection.cursor() as cursor:
        cursor.execute(f"GRANT SELECT (username) ON auth_user TO {role.name}")

    with pytest.raises(CommandError, match=r"could read 1 tables outside metrics: public\.auth_user"):
        role.make("a-password-of-our-own")


def test_a_privileged_role_is_not_taken_over() -> None:
    with pytest.raises(CommandError, match="exists with rights beyond reading"):
        call_command("facet_grafana_role", "--role", str(connection.settings_dict["USER"]), stdout=StringIO())


def test_a_short_password_is_refused(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("short\n")
    with pytest.raises(CommandError, match="at least 16 characters"):
        call_command("facet_grafana_role", "--password-file", str(tmp_path / "password"))
