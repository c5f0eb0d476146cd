-- The DEFAULT of the deadline follows the cache's ttl, so rows that plain SQL writes without a deadline expire, too.
SET client_min_messages = warning;
CREATE FUNCTION default_of(cache regclass) RETURNS text LANGUAGE sql AS $$
    SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef AS d JOIN pg_attribute AS a ON (a.attrelid, a.attnum) = (d.adrelid, d.adnum)
     WHERE a.attrelid = cache AND a.attname = 'expires_at';
$$;
SELECT cache_create('timed', ttl => '1 hour'), cache_create('endless');
SELECT default_of('timed'), default_of('endless');
INSERT INTO timed VALUES ('left out', 'v');
INSERT INTO timed VALUES ('by name', 'v', DEFAULT), ('given', 'v', clock_timestamp() + interval '1 day'), ('never', 'v', NULL);
INSERT INTO endless VALUES ('left out', 'v');
SELECT key, date_trunc('hour', cache_ttl(key, 'timed') + '1 min') AS ttl FROM timed ORDER BY key;
SELECT expires_at FROM endless;
COPY timed (key, value) FROM STDIN;
copied	v
\.
SELECT date_trunc('hour', cache_ttl('copied', 'timed') + '1 min') AS ttl;

-- A change of the ttl by cache_alter() changes the DEFAULT; other changes leave it as it is.
SELECT cache_alter('timed', ttl => '1 month 2 days 3.5 seconds'), default_of('timed');
SELECT cache_alter('timed', max_entries => 10), cache_tune('timed', ttl_jitter => 0.1), default_of('timed');
SELECT cache_alter('timed', ttl => cache_forever()), default_of('timed');
SELECT cache_alter('endless', ttl => '2 seconds'), default_of('endless');
BEGIN;
SELECT cache_alter('endless', ttl => '3 seconds'), default_of('endless');
ROLLBACK;
SELECT default_of('endless');
-- A DEFAULT that a user has changed is restored, even if the new ttl equals the old one.
ALTER TABLE endless ALTER COLUMN expires_at DROP DEFAULT;
SELECT cache_alter('endless', max_entries => 5), default_of('endless');
SELECT cache_alter('endless', ttl => '2 seconds'), default_of('endless');
ALTER TABLE endless ALTER COLUMN expires_at DROP DEFAULT;
SELECT pgcache.put_default('endless'), default_of('endless');
-- A new DEFAULT does not rewrite the table.
SELECT pg_relation_filenode('endless') AS before \gset
SELECT cache_alter('endless', ttl => '5 seconds'), pg_relation_filenode('endless') = :before AS same;

-- The deadline starts with the INSERT, not with its transaction, so a late row of a long transaction is not expired.
SELECT cache_alter('endless', ttl => '1 second');
BEGIN;
SELECT pg_sleep(1.1);
INSERT INTO endless VALUES ('late', 'v');
SELECT key FROM endless;
COMMIT;
-- A hand-made cache with a generated deadline, a table that is not a cache, and a cache of another role.
CREATE TABLE by_hand (key text COLLATE "C" PRIMARY KEY, value text, made timestamp, expires_at timestamptz GENERATED ALWAYS AS ('infinity') STORED);
CREATE TRIGGER pgcache_record AFTER INSERT OR UPDATE OR DELETE ON by_hand FOR EACH ROW EXECUTE FUNCTION pgcache.record();
SELECT cache_alter('by_hand', ttl => '1 hour'), pgcache.put_default('by_hand'), pgcache.put_default('pg_class');
SELECT state FROM error_of('SELECT pgcache.put_default(NULL)');
CREATE ROLE regress_pgcache_user;
SET ROLE regress_pgcache_user;
SELECT state FROM error_of($$SELECT pgcache.put_default('timed')$$);
RESET ROLE;
DROP ROLE regress_pgcache_user;

-- The view says whether plain SQL hides expired rows, and why not. It hides them if the library is preloaded.
SELECT cache, hides_expired = (current_setting('shared_preload_libraries') LIKE '%pgcache%') AS as_loaded,
       hides_expired = (not_hidden_because IS NULL) AS says_why
  FROM pgcache.caches WHERE cache::text IN ('timed', 'pgcache.main') ORDER BY cache::text;
SET pgcache.show_expired = on;
SELECT cache, hides_expired, not_hidden_because FROM pgcache.caches WHERE cache::text = 'timed';
RESET pgcache.show_expired;
DROP TABLE timed, endless, by_hand;
DROP FUNCTION default_of;
