-- cache_fetch: what a loader may be, what is stored, what is refused. One session: t/tests/fetch.rs has many.
CREATE SEQUENCE runs;
SELECT cache_create('fetched', ttl => '1 hour');

-- A miss runs the loader, with the key as $1; a hit does not.
SELECT cache_fetch('a', 'SELECT $1 || nextval(''runs'')', cache => 'fetched');
SELECT cache_fetch('a', 'SELECT $1 || nextval(''runs'')', cache => 'fetched');
SELECT value, expires_at > now() + '59 minutes' AS has_ttl FROM fetched;
-- The ttl of the call counts more than the cache's.
SELECT cache_fetch('forever', 'VALUES (''x'')', cache_forever(), 'fetched');
SELECT expires_at FROM fetched WHERE key = 'forever';

-- No row and a NULL both make a negative entry, which is a hit.
SELECT cache_fetch('none', 'SELECT nextval(''runs'') WHERE false', cache => 'fetched');
SELECT cache_fetch('null', 'SELECT NULL', cache => 'fetched');
SELECT key, value FROM fetched WHERE value IS NULL ORDER BY key;
SELECT cache_fetch('none', 'SELECT nextval(''runs'')', cache => 'fetched');
SELECT last_value FROM runs;
-- It can have a ttl of its own.
SELECT cache_tune('fetched', negative_ttl => '5 seconds');
SELECT cache_fetch('none2', 'SELECT 1 WHERE false', '1 hour', 'fetched');
SELECT expires_at < now() + '1 minute' AS soon FROM fetched WHERE key = 'none2';

-- Any type comes as its text; text, jsonb and bytea as they are.
SELECT cache_fetch('int', 'SELECT 5', cache => 'fetched'), cache_fetch('bool', 'SELECT true', cache => 'fetched'),
       cache_fetch('array', 'SELECT ARRAY[1,2]', cache => 'fetched'), cache_fetch('bytes', 'SELECT ''\x6869''::bytea', cache => 'fetched'),
       cache_fetch('json', 'SELECT ''{"a":1}''::jsonb', cache => 'fetched');
SELECT cache_create('documents', value_type => 'jsonb'), cache_create('blobs', value_type => 'bytea');
SELECT cache_fetch_json('d', 'SELECT jsonb_build_object(''key'', $1)', cache => 'documents') ->> 'key';
SELECT cache_fetch('row', 'SELECT row_to_json(r) FROM (SELECT 1 AS one) r', cache => 'documents');
SELECT cache_fetch('b', 'SELECT ''\x00ff''::bytea', cache => 'blobs');
SELECT cache_get_bytes('b', 'blobs');
SELECT cache_fetch('no json', 'SELECT ''{''', cache => 'documents');

-- What is a loader: one statement that returns rows, one column, at most one row.
SELECT cache_fetch('x', 'INSERT INTO fetched VALUES (''by hand'', ''y'') RETURNING value', cache => 'fetched');
SELECT cache_fetch('y', 'SELECT 1; SELECT 2', cache => 'fetched');
SELECT cache_fetch('y', 'DELETE FROM fetched', cache => 'fetched');
SELECT cache_fetch('y', 'VACUUM', cache => 'fetched');
SELECT cache_fetch('y', '', cache => 'fetched');
SELECT cache_fetch('y', 'SELECT 1, 2', cache => 'fetched');
SELECT cache_fetch('y', 'SELECT generate_series(1, 3)', cache => 'fetched');
SELECT cache_fetch('y', 'SELECT $2', cache => 'fetched');

-- Its errors pass through, with its text in the context, and store nothing.
SELECT cache_fetch('y', 'SELECT 1 / (length($1) - 1)', cache => 'fetched');
SELECT cache_exists('y', 'fetched');

-- A loader that fetches the key it loads, directly or not, is an error; another key is none.
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

-- Arguments.
SELECT * FROM error_of($$SELECT cache_fetch(NULL, 'SELECT 1')$$);
SELECT * FROM error_of($$SELECT cache_fetch('k', NULL)$$);
SELECT * FROM error_of($$SELECT cache_fetch('', 'SELECT 1')$$);
SELECT * FROM error_of($$SELECT cache_fetch('a', 'SELECT 1', '0', 'fetched')$$);
SELECT * FROM error_of($$SELECT cache_fetch('k', 'SELECT 1', cache => 'pg_class')$$);

-- The loader runs as the caller, with his search_path.
CREATE ROLE fetcher;
GRANT SELECT, INSERT, UPDATE ON fetched TO fetcher;
CREATE TABLE secret AS SELECT 'secret' AS s;
CREATE SCHEMA theirs;
CREATE FUNCTION theirs.whoami() RETURNS text LANGUAGE sql AS 'SELECT current_user::text';
GRANT USAGE ON SCHEMA theirs TO fetcher;
SET ROLE fetcher;
SELECT cache_fetch('s', 'SELECT s FROM secret', cache => 'fetched');
-- From 19 on Postgres has another hint.
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

-- A read-only transaction gets the value and stores nothing; the loader cannot write there either.
BEGIN READ ONLY;
SELECT cache_fetch('a', 'SELECT 0', cache => 'fetched'), cache_fetch('ro', 'SELECT 9', cache => 'fetched');
SELECT cache_exists('ro', 'fetched');
ROLLBACK;

-- A fetch is part of its transaction and of its savepoint.
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

-- Many keys in one statement: more than there are leases for one session.
SELECT count(cache_fetch('many' || i, 'SELECT $1', cache => 'fetched')) FROM generate_series(1, 3000) AS i;
SELECT count(*) FROM fetched WHERE key LIKE 'many%' AND value = key;

-- Settings of a refresh.
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
