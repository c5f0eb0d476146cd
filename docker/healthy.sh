#!/bin/sh
# Healthy: the server answers, and the hot tier exists.
set -eu
exec psql -X -q -A -t -v ON_ERROR_STOP=1 --username="${POSTGRES_USER:-postgres}" \
    --dbname="${POSTGRES_DB:-${POSTGRES_USER:-postgres}}" \
    --command="SELECT 1 / (size > 0)::int FROM pgcache.hot_tier" >/dev/null
