"""The database role of dashboards: it signs in, reads the views of schema `metrics`, and can do nothing else.

Roles belong to the whole server, and Facet's own role may not make any. So this is done as an administrator
of the server: the embedded server's own, or whoever a given URL names.
"""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from portal.embedded.postgres import ADMIN

ROLE = "facet_grafana"
SCHEMA = "metrics"
CONNECTIONS = 10
"""How many connections the role may hold at once; Grafana's pool is told to stay below."""

_READABLE_ELSEWHERE = """
    SELECT format('%%I.%%I', n.nspname, c.relname)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'v', 'm', 'f', 'p')
      AND n.nspname NOT IN ('pg_catalog', 'information_schema', %(schema)s)
      AND n.nspname NOT LIKE 'pg_toast%%'
      AND has_schema_privilege(%(role)s, n.oid, 'USAGE')
      AND (has_table_privilege(%(role)s, c.oid, 'SELECT, INSERT, UPDATE, DELETE')
           OR has_any_column_privilege(%(role)s, c.oid, 'SELECT'))
    ORDER BY 1
"""


class RoleRefused(ValueError):
    """The role would hold more, or could hold less, than it should; the message says what."""


def embedded_admin(data_dir: Path, database_url: str, embedded_url: str | None) -> dict[str, str]:
    """Return user and password of the embedded server's administrator, or nothing for any other server.

    Args:
        data_dir: where the embedded server keeps its passwords, one `role:password` a line.
        database_url: the database in use.
        embedded_url: where the embedded server of this data directory was last reached.
    """
    file = data_dir / "postgres.passwords"
    if embedded_url is None or urlsplit(database_url) != urlsplit(embedded_url) or not file.exists():
        return {}
    passwords = dict(line.split(":", 1) for line in file.read_text().split())
    return {"user": ADMIN, "password": passwords[ADMIN]}


def make_role(server: psycopg.Connection[Any], role: str, password: str) -> bool:
    """Create the role or bring an earlier one up to date, whole or not at all; return whether it is new.

    The password leaves this process as a SCRAM verifier only, so no server log holds it.

    Raises:
        RoleRefused: the schema is missing, the role is privileged, or it could read anything else.
        psycopg.Error: the administrator may not do this.
    """
    with server.transaction():
        owner = _owner_of_schema(server)
        is_new = _create(server, role)
        verifier = server.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256")
        for statement in _statements(role, owner, server.info.dbname, verifier.decode()):
            server.execute(statement)
        readable = server.execute(_READABLE_ELSEWHERE, {"role": role, "schema": SCHEMA}).fetchall()
        if readable:
            named = ", ".join(name for (name,) in readable[:5])
            raise RoleRefused(f"{role} could read {len(readable)} tables outside {SCHEMA}: {named}.")
    return is_new


def _owner_of_schema(server: psycopg.Connection[Any]) -> str:
    found = server.execute(
        "SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = %s", [SCHEMA]
    ).fetchone()
    if found is None:
        raise RoleRefused(f"There is no schema {SCHEMA} in {server.info.dbname}: apply the migrations first.")
    return str(found[0])


def _create(server: psycopg.Connection[Any], role: str) -> bool:
    """Make the role unless it is there; refuse one that holds attributes or memberships beyond reading."""
    found = server.execute(
        "SELECT rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls"
        " OR EXISTS (SELECT FROM pg_auth_members m WHERE m.member = r.oid)"
        " FROM pg_roles r WHERE rolname = %s",
        [role],
    ).fetchone()
    if found is None:
        server.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(role)))
        return True
    if found[0]:
        raise RoleRefused(f"{role} exists with rights beyond reading; choose another name or drop it.")
    return False


def _statements(role: str, owner: str, database: str, verifier: str) -> list[sql.Composed]:
    """Return what gives the role its rights, by default privileges on views of later releases too."""
    names = {
        "role": sql.Identifier(role),
        "owner": sql.Identifier(owner),
        "schema": sql.Identifier(SCHEMA),
        "database": sql.Identifier(database),
        "verifier": sql.Literal(verifier),
        "connections": sql.Literal(CONNECTIONS),
    }
    return [
        sql.SQL(text).format(**names)
        for text in (
            "ALTER ROLE {role} LOGIN PASSWORD {verifier} CONNECTION LIMIT {connections}",
            "ALTER ROLE {role} SET default_transaction_read_only = on",
            "ALTER ROLE {role} SET statement_timeout = '10s'",
            "ALTER ROLE {role} SET search_path = {schema}",
            "GRANT CONNECT ON DATABASE {database} TO {role}",
            "GRANT USAGE ON SCHEMA {schema} TO {role}",
            "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
            "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema} GRANT SELECT ON TABLES TO {role}",
        )
    ]
