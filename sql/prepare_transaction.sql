-- PREPARE TRANSACTION after a write to a table cache is refused, with a hint.
-- Were one prepared after all, its locks must not hang the rest.
SET lock_timeout = '10s';
SELECT cache_create('tpc');
SELECT cache_set('k', 'v', cache => 'tpc');
BEGIN;
SELECT cache_set('k', 'w', cache => 'tpc');
PREPARE TRANSACTION 'pgcache';
SELECT cache_get('k', 'tpc'), count(*) FROM pg_prepared_xacts;

\set VERBOSITY sqlstate
-- By every way of writing, plain SQL and definitions included.
BEGIN;
INSERT INTO tpc VALUES ('new', 'v');
PREPARE TRANSACTION 'pgcache';
BEGIN;
UPDATE tpc SET value = 'w';
PREPARE TRANSACTION 'pgcache';
BEGIN;
DELETE FROM tpc;
PREPARE TRANSACTION 'pgcache';
BEGIN;
TRUNCATE tpc;
PREPARE TRANSACTION 'pgcache';
BEGIN;
COPY tpc FROM stdin;
copied	v	\N
\.
PREPARE TRANSACTION 'pgcache';
BEGIN;
SELECT cache_clear('tpc');
PREPARE TRANSACTION 'pgcache';
BEGIN;
SELECT cache_incr('n', cache => 'tpc');
PREPARE TRANSACTION 'pgcache';
BEGIN;
SELECT cache_delete('k', 'tpc');
PREPARE TRANSACTION 'pgcache';
BEGIN;
SAVEPOINT a;
SELECT cache_touch('k', '1 hour', 'tpc');
RELEASE a;
PREPARE TRANSACTION 'pgcache';
-- Also where the session asks for no triggers.
BEGIN;
SET LOCAL session_replication_role = replica;
INSERT INTO tpc VALUES ('new', 'v');
PREPARE TRANSACTION 'pgcache';
SELECT key, value FROM tpc;
\set VERBOSITY default

-- A transaction that only reads may be prepared, and so may one after a refused or an aborted one.
SELECT current_setting('max_prepared_transactions')::int > 0 AS can_prepare \gset
\if :can_prepare
BEGIN;
SELECT cache_get('k', 'tpc') \gset
PREPARE TRANSACTION 'pgcache';
SELECT count(*) AS prepared FROM pg_prepared_xacts \gset
COMMIT PREPARED 'pgcache';
BEGIN;
SELECT cache_set('k', 'w', cache => 'tpc') \gset
ROLLBACK;
BEGIN;
CREATE TABLE tpc_other (i int);
PREPARE TRANSACTION 'pgcache';
COMMIT PREPARED 'pgcache';
DROP TABLE tpc_other;
\else
\set prepared 1
\endif
\echo prepared :prepared
DROP TABLE tpc;
