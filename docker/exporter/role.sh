#!/bin/bash
# Makes the exporter's role at the first start. pg_monitor shows figures and no entry.
set -euo pipefail
psql -X -q -v ON_ERROR_STOP=1 --username="${POSTGRES_USER:-postgres}" --dbname=postgres \
    --set=password="${EXPORTER_PASSWORD:?}" <<'SQL'
CREATE ROLE exporter LOGIN PASSWORD :'password';
GRANT pg_monitor TO exporter;
SQL
