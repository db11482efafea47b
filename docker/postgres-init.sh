#!/bin/sh
# Run once by the PostgreSQL image, on an empty volume: Facet's role owns its database and is no superuser.
set -eu
psql --username "$POSTGRES_USER" --dbname postgres --set ON_ERROR_STOP=1 --set password="$(cat /run/secrets/postgres_facet_password)" <<'SQL'
CREATE ROLE facet LOGIN PASSWORD :'password';
CREATE DATABASE facet OWNER facet;
SQL
