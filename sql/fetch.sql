-- cache_fetch in one session: valid loaders, stored values, errors. t/tests/fetch.rs uses several sessions.
CREATE SEQUENCE runs;
SELECT cache_create('fetched', ttl => '1 hour');

-- A miss runs the loader, with the key as $1; a hit does not.
SELECT cache_fetch('a', 'SELECT $1 || nextval(''runs'')', cache => 'fetched');
SELECT cache_fetch('a', 'SELECT $1 || nextval(''runs'')', cache => 'fetched');
SELECT value, expires_at > now() + '59 minutes' AS has_ttl FROM fetched;
-- The ttl of the call overrides the cache's.
SELECT cache_fetch('forever', 'VALUES (''x'')', cache_forever(), 'fetched');
SELECT expires_at FROM fetched WHERE key = 'forever';

-- A loader that returns no row or a NULL creates a negative entry, which is a hit.
SELECT cache_fetch('none', 'SELECT nextval(''runs'') WHERE false', cache => 'fetched');
SELECT cache_fetch('null', 'SELECT NULL', cache => 'fetched');
SELECT key, value FROM fetched WHERE value IS NULL ORDER BY key;
SELECT cache_fetch('none', 'SELECT nextval(''runs'')', cache => 'fetched');
SELECT last_value FROM runs;
-- Negative entries can have their own ttl.
SELECT cache_tune('fetched', negative_ttl => '5 seconds');
SELECT cache_fetch('none2', 'SELECT 1 WHERE false', '1 hour', 'fetched');
SELECT expires_at < now() + '1 minute' AS soon FROM fetched WHERE key = 'none2';

-- text, jsonb and bytea are stored as they are, any other type as its text.
SELECT cache_fetch('int', 'SELECT 5', cache => 'fetched'), cache_fetch('bool', 'SELECT true', cache => 'fetched'),
       cache_fetch('array', 'SELECT ARRAY[1,2]', cache => 'fetched'), cache_fetch('bytes', 'SELECT ''\x6869''::bytea', cache => 'fetched'),
       cache_fetch('json', 'SELECT ''{"a":1}''::jsonb', cache => 'fetched');
SELECT cache_create('documents', value_type => 'jsonb'), cache_create('blobs', value_type => 'bytea');
SELECT cache_fetch_json('d', 'SELECT jsonb_build_object(''key'', $1)', cache => 'documents') ->> 'key';
SELECT cache_fetch('row', 'SELECT row_to_json(r) FROM (SELECT 1 AS one) r', cache => 'documents');
SELECT cache_fetch('b', 'SELECT ''\x00ff''::bytea', cache => 'blobs');
SELECT cache_get_bytes('b', 'blobs');
SELECT cache_fetch('no json', 'SELECT ''{''', cache => 'documents');

-- A loader is one statement that returns one column and at most one row.
SELECT cache_fetch('x', 'INSERT INTO fetched VALUES (''by hand'', ''y'') RETURNING value', cache => 'fetched');
SELECT cache_fetch('y', 'SELECT 1; SELECT 2', cache => 'fetched');
SELECT cache_fetch('y', 'DELETE FROM fetched', cache => 'fetched');
SELECT cache_fetch('y', 'VACUUM', cache => 'fetched');
SELECT cache_fetch('y', '', cache => 'fetched');
SELECT cache_fetch('y', 'SELECT 1, 2', cache => 'fetched');
SELECT cache_fetch('y', 'SELECT generate_series(1, 3)', cache => 'fetched');
SELECT cache_fetch('y', 'SELECT $2', cache => 'fetched');

-- An error of the loader is raised with the loader's text as context, and nothing is stored.
SELECT cache_fetch('y', 'SELECT 1 / (length($1) - 1)', cache => 'fetched');
SELECT cache_exists('y', 'fetched');

-- A loader that fetches its own key, directly or indirectly, raises an error; it may fetch another key.
SELECT cache_fetch('y', 'SELECT cache_fetch($1, ''SELECT 1'', cache => ''fetched'')', cache => 'fetched');
CREATE FUNCTION chain(key text) RETURNS text LANGUAGE sql AS $$
    SELECT cache_fetch(CASE key WHEN 'p' THEN 'q' WHEN 'q' THEN 'p' END, 'SELECT chain($1)', cache => 'fetched')
$$;
\set VERBOSITY terse
SELECT cache_fetch('p', 'SELECT chain($1)', cache => 'fetched');
\set VERBOSITY default
SELECT cache_fetch('outer', 'SELECT cache_fetch(''inner'', ''SELECT 7'', cache => ''fetched'') || ''!''', cache => 'fetched');
-- After the error the key can be fetched.
SELECT cache_fetch('p', 'SELECT 1', cache => 'fetched');

-- Invalid arguments.
SELECT * FROM error_of($$SELECT cache_fetch(NULL, 'SELECT 1')$$);
SELECT * FROM error_of($$SELECT cache_fetch('k', NULL)$$);
SELECT * FROM error_of($$SELECT cache_fetch('', 'SELECT 1')$$);
SELECT * FROM error_of($$SELECT cache_fetch('a', 'SELECT 1', '0', 'fetched')$$);
SELECT * FROM error_of($$SELECT cache_fetch('k', 'SELECT 1', cache => 'pg_class')$$);

-- The loader runs as the caller, with the caller's search_path.
CREATE ROLE fetcher;
GRANT SELECT, INSERT, UPDATE ON fetched TO fetcher;
CREATE TABLE secret AS SELECT 'secret' AS s;
CREATE SCHEMA theirs;
CREATE FUNCTION theirs.whoami() RETURNS text LANGUAGE sql AS 'SELECT current_user::text';
GRANT USAGE ON SCHEMA theirs TO fetcher;
SET ROLE fetcher;
SELECT cache_fetch('s', 'SELECT s FROM secret', cache => 'fetched');
-- Terse, because Postgres 19 has another hint.
\set VERBOSITY terse
SELECT cache_fetch('who', 'SELECT whoami()', cache => 'fetched');
\set VERBOSITY default
SET search_path = public, theirs;
SELECT cache_fetch('who', 'SELECT whoami()', cache => 'fetched');
RESET search_path;
RESET ROLE;
SELECT cache_fetch('s', 'SELECT s FROM secret', cache => 'fetched');
REVOKE UPDATE ON fetched FROM fetcher;
SET ROLE fetcher;
SELECT * FROM error_of($$SELECT cache_fetch('s', 'SELECT 1', cache => 'fetched')$$);
RESET ROLE;

-- In a read-only transaction the value is returned and not stored; the loader cannot write either.
BEGIN READ ONLY;
SELECT cache_fetch('a', 'SELECT 0', cache => 'fetched'), cache_fetch('ro', 'SELECT 9', cache => 'fetched');
SELECT cache_exists('ro', 'fetched');
ROLLBACK;

-- A rollback of the transaction or of a savepoint undoes a fetch.
BEGIN;
SELECT cache_fetch('t', 'SELECT 1', cache => 'fetched');
ROLLBACK;
SELECT cache_exists('t', 'fetched');
BEGIN;
SAVEPOINT s;
SELECT cache_fetch('t', 'SELECT 2', cache => 'fetched');
ROLLBACK TO s;
SELECT cache_fetch('t', 'SELECT 3', cache => 'fetched');
COMMIT;
SELECT cache_get('t', 'fetched');

-- One statement fetches more keys than one session can have leases.
SELECT count(cache_fetch('many' || i, 'SELECT $1', cache => 'fetched')) FROM generate_series(1, 3000) AS i;
SELECT count(*) FROM fetched WHERE key LIKE 'many%' AND value = key;

-- The settings for refreshes: cache_tune.
SELECT cache_tune('fetched', ttl_jitter => 0.5, early_refresh => 1);
SELECT negative_ttl, ttl_jitter, early_refresh FROM pgcache.caches WHERE cache = 'fetched'::regclass;
SELECT count(cache_fetch('j' || i, 'SELECT 1', '1 hour', 'fetched')) FROM generate_series(1, 200) AS i;
SELECT max(expires_at) - min(expires_at) > '10 minutes' AS spread, max(expires_at) < now() + '61 minutes' AS never_longer
  FROM fetched WHERE key ~ '^j\d';
SELECT cache_tune('fetched', negative_ttl => cache_forever(), ttl_jitter => 0, early_refresh => 0);
SELECT negative_ttl, ttl_jitter, early_refresh FROM pgcache.caches WHERE cache = 'fetched'::regclass;
SELECT * FROM error_of($$SELECT cache_tune('fetched', ttl_jitter => 1.5)$$);
SELECT * FROM error_of($$SELECT cache_tune('fetched', ttl_jitter => 'NaN')$$);
SELECT * FROM error_of($$SELECT cache_tune('fetched', early_refresh => -1)$$);
SELECT * FROM error_of($$SELECT cache_tune('fetched', negative_ttl => '0')$$);
SET ROLE fetcher;
SELECT * FROM error_of($$SELECT cache_tune('fetched', ttl_jitter => 0.1)$$);
RESET ROLE;

DROP OWNED BY fetcher;
DROP ROLE fetcher;
DROP SCHEMA theirs CASCADE;
DROP TABLE secret, fetched, documents, blobs;
DROP SEQUENCE runs;
DROP FUNCTION chain;
