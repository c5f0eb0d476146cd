-- Creates and fills the tables and caches of the scripts in this folder, in the schema "bench", which is dropped first.
--
--   psql -f setup.sql                   1,000,000 entries in each table and cache
--   psql -v scale=30 -f setup.sql       30,000,000, the published size; the scripts then take pgbench -s 30
--   psql -v only=memory -f setup.sql    one of plain, plain_logged, unlogged, logged and memory, or several: 'plain memory'
--
-- Run it as a superuser. The hot tier and the memory cache need shared_preload_libraries = 'pgcache'.
\set ON_ERROR_STOP on
\if :{?scale}
\else
  \set scale 1
\endif
\if :{?only}
\else
  \set only 'plain plain_logged unlogged logged memory'
\endif
\if :{?value}
\else
  \set value QfM0ZFNwGgQLrxTB78ZferwRZINJcGnzaO4eJ
\endif

SET client_min_messages = warning;
DROP SCHEMA IF EXISTS bench CASCADE;
CREATE SCHEMA bench;

-- Keys are UUIDs whose last 12 digits are a number. Every fifth number is left out, so that 80 of 100 uniform draws
-- hit, and the misses are spread among the hits. The entries are inserted in random order, as by an application.
CREATE VIEW bench.entries AS
SELECT '6f1d7a52-3c08-4b9e-a5d4-' || (100000000000 + n) AS key, :'value' AS value
FROM generate_series(0, (1250000 * :scale)::bigint - 1) AS n WHERE n % 5 <> 0 ORDER BY hashint8(n);

SELECT 'plain' = ANY (names) AS plain, 'plain_logged' = ANY (names) AS plain_logged, 'unlogged' = ANY (names) AS unlogged,
  'logged' = ANY (names) AS logged, 'memory' = ANY (names) AS memory, names && '{unlogged,logged,memory}' AS caches
FROM string_to_array(:'only', ' ') AS names \gset

\if :plain
CREATE UNLOGGED TABLE bench.plain (key text COLLATE "C" PRIMARY KEY, value text, expires_at timestamptz);
INSERT INTO bench.plain (key, value) SELECT key, value FROM bench.entries;
VACUUM (ANALYZE) bench.plain;
\endif

\if :plain_logged
CREATE TABLE bench.plain_logged (key text COLLATE "C" PRIMARY KEY, value text, expires_at timestamptz);
INSERT INTO bench.plain_logged (key, value) SELECT key, value FROM bench.entries;
VACUUM (ANALYZE) bench.plain_logged;
\endif

\if :caches
CREATE EXTENSION IF NOT EXISTS pgcache;
SELECT size > 0 AS preloaded, size > 0 AND :'memory' AS memory FROM pgcache.hot_tier \gset
  \if :preloaded
  \else
    \warn 'pgcache is not preloaded: there are no copies in the hot tier and no memory cache'
  \endif
\endif

-- One read of each entry makes its copy in the hot tier.
\if :unlogged
SELECT cache_create('bench.unlogged') AS made;
INSERT INTO bench.unlogged (key, value) SELECT key, value FROM bench.entries;
VACUUM (ANALYZE) bench.unlogged;
  \if :preloaded
SELECT count(cache_get(key, 'bench.unlogged')) AS read FROM bench.unlogged;
  \endif
\endif

\if :logged
SELECT cache_create('bench.logged', storage => 'logged') AS made;
INSERT INTO bench.logged (key, value) SELECT key, value FROM bench.entries;
VACUUM (ANALYZE) bench.logged;
  \if :preloaded
SELECT count(cache_get(key, 'bench.logged')) AS read FROM bench.logged;
  \endif
\endif

\if :memory
SELECT cache_create('bench.memory', storage => 'memory') AS made;
SELECT count(cache_set(key, value, NULL, 'bench.memory')) AS stored FROM bench.entries;
\endif

CHECKPOINT;

-- If this shows evictions, or fewer entries than all caches have, pgcache.hot_size is too small for this scale.
\if :caches
SELECT pg_size_pretty(size) AS hot_size, entries, evictions FROM pgcache.hot_tier;
\endif
