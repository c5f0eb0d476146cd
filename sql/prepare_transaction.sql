-- PREPARE TRANSACTION after writes to a table cache, in one session. The tests with several sessions are in t/.
SELECT current_setting('max_prepared_transactions')::int > 0 AS can_prepare \gset
\if :can_prepare
\else
\quit
\endif
-- If a prepared transaction keeps a lock, the later statements fail instead of waiting for ever.
SET lock_timeout = '10s';
SELECT cache_create('tpc');
SELECT cache_set('k', 'v', cache => 'tpc');
BEGIN;
SELECT cache_set('k', 'w', cache => 'tpc');
PREPARE TRANSACTION 'pgcache';
-- Before COMMIT PREPARED the change is visible to no session, not even to the one that wrote it.
SELECT cache_get('k', 'tpc');
SELECT gid, cache, owner = current_user AS mine, age >= '0' AS aged, whole_cache FROM pgcache.prepared;
COMMIT PREPARED 'pgcache';
SELECT cache_get('k', 'tpc');
SELECT count(*) FROM pgcache.prepared;

-- ROLLBACK PREPARED undoes every kind of write, plain SQL and DDL included.
BEGIN;
INSERT INTO tpc VALUES ('new', 'v');
PREPARE TRANSACTION 'pgcache';
ROLLBACK PREPARED 'pgcache';
SELECT cache_get('k', 'tpc'), cache_get('new', 'tpc'), (SELECT string_agg(key || ' ' || value, ', ') FROM tpc);
BEGIN;
UPDATE tpc SET value = 'x';
PREPARE TRANSACTION 'pgcache';
ROLLBACK PREPARED 'pgcache';
SELECT cache_get('k', 'tpc'), cache_get('new', 'tpc'), (SELECT string_agg(key || ' ' || value, ', ') FROM tpc);
BEGIN;
DELETE FROM tpc;
PREPARE TRANSACTION 'pgcache';
ROLLBACK PREPARED 'pgcache';
SELECT cache_get('k', 'tpc'), cache_get('new', 'tpc'), (SELECT string_agg(key || ' ' || value, ', ') FROM tpc);
BEGIN;
TRUNCATE tpc;
PREPARE TRANSACTION 'pgcache';
ROLLBACK PREPARED 'pgcache';
SELECT cache_get('k', 'tpc'), cache_get('new', 'tpc'), (SELECT string_agg(key || ' ' || value, ', ') FROM tpc);
BEGIN;
COPY tpc FROM stdin;
copied	v	\N
\.
PREPARE TRANSACTION 'pgcache';
ROLLBACK PREPARED 'pgcache';
SELECT cache_get('k', 'tpc'), cache_get('new', 'tpc'), (SELECT string_agg(key || ' ' || value, ', ') FROM tpc);
BEGIN;
SELECT cache_clear('tpc');
PREPARE TRANSACTION 'pgcache';
ROLLBACK PREPARED 'pgcache';
SELECT cache_get('k', 'tpc'), cache_get('new', 'tpc'), (SELECT string_agg(key || ' ' || value, ', ') FROM tpc);
BEGIN;
SELECT cache_incr('n', cache => 'tpc');
PREPARE TRANSACTION 'pgcache';
ROLLBACK PREPARED 'pgcache';
SELECT cache_get('k', 'tpc'), cache_get('new', 'tpc'), (SELECT string_agg(key || ' ' || value, ', ') FROM tpc);
BEGIN;
SELECT cache_delete('k', 'tpc');
PREPARE TRANSACTION 'pgcache';
ROLLBACK PREPARED 'pgcache';
SELECT cache_get('k', 'tpc'), cache_get('new', 'tpc'), (SELECT string_agg(key || ' ' || value, ', ') FROM tpc);
BEGIN;
SELECT cache_alter('tpc', ttl => '1 hour');
PREPARE TRANSACTION 'pgcache';
ROLLBACK PREPARED 'pgcache';
SELECT cache_get('k', 'tpc'), cache_get('new', 'tpc'), (SELECT string_agg(key || ' ' || value, ', ') FROM tpc);
BEGIN;
DROP TABLE tpc;
PREPARE TRANSACTION 'pgcache';
ROLLBACK PREPARED 'pgcache';
SELECT cache_get('k', 'tpc'), cache_get('new', 'tpc'), (SELECT string_agg(key || ' ' || value, ', ') FROM tpc);
BEGIN;
SAVEPOINT a;
SELECT cache_touch('k', '1 hour', 'tpc');
RELEASE a;
PREPARE TRANSACTION 'pgcache';
ROLLBACK PREPARED 'pgcache';
SELECT cache_get('k', 'tpc'), cache_get('new', 'tpc'), (SELECT string_agg(key || ' ' || value, ', ') FROM tpc);
BEGIN;
-- Also with session_replication_role = replica, which disables ordinary triggers.
SET LOCAL session_replication_role = replica;
INSERT INTO tpc VALUES ('new', 'v');
PREPARE TRANSACTION 'pgcache';
ROLLBACK PREPARED 'pgcache';
SELECT cache_get('k', 'tpc'), cache_get('new', 'tpc'), (SELECT string_agg(key || ' ' || value, ', ') FROM tpc);

-- COMMIT PREPARED applies the changes.
BEGIN;
SELECT cache_delete('k', 'tpc');
INSERT INTO tpc VALUES ('new', 'v');
PREPARE TRANSACTION 'pgcache';
COMMIT PREPARED 'pgcache';
SELECT cache_get('k', 'tpc'), cache_get('new', 'tpc');
BEGIN;
TRUNCATE tpc;
PREPARE TRANSACTION 'pgcache';
COMMIT PREPARED 'pgcache';
SELECT cache_get('new', 'tpc'), cache_count('tpc');

-- A change of a watched cache sends a notification, so PREPARE is refused, as after NOTIFY.
SELECT cache_watch('tpc') IS NOT NULL AS watched;
BEGIN;
SELECT cache_set('k', 'w', cache => 'tpc');
PREPARE TRANSACTION 'pgcache';
SELECT cache_unwatch('tpc');

-- A transaction that only reads, and one after a rollback.
BEGIN;
SELECT cache_get('k', 'tpc');
PREPARE TRANSACTION 'pgcache';
COMMIT PREPARED 'pgcache';
BEGIN;
SELECT cache_set('k', 'w', cache => 'tpc');
ROLLBACK;
BEGIN;
CREATE TABLE tpc_other (i int);
PREPARE TRANSACTION 'pgcache';
COMMIT PREPARED 'pgcache';
DROP TABLE tpc_other;
-- A prepared transaction can also create and drop a cache.
BEGIN;
SELECT cache_create('tpc_made');
SELECT cache_set('k', 'v', cache => 'tpc_made');
PREPARE TRANSACTION 'pgcache';
COMMIT PREPARED 'pgcache';
SELECT cache_get('k', 'tpc_made');
BEGIN;
DROP TABLE tpc, tpc_made;
PREPARE TRANSACTION 'pgcache';
COMMIT PREPARED 'pgcache';
SELECT count(*) FROM pgcache.caches WHERE cache::text LIKE 'tpc%';
