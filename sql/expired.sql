-- An entry is absent for every function from its deadline on, whether it has been swept or not.
SET pgcache.show_expired = on; -- lets plain SQL see the stored rows
CREATE FUNCTION expire_now(cache regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('UPDATE %s SET expires_at = clock_timestamp() - interval ''1 ms''', cache);
END $$;
-- Resets cache 'x' to one entry, k, that has just expired.
CREATE FUNCTION one_expired(v text = 'v') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM cache_clear('x');
    PERFORM cache_set('k', v, '1 hour', 'x');
    PERFORM expire_now('x');
END $$;
SELECT cache_create('x');

-- Reads.
SELECT one_expired();
SELECT cache_get('k', 'x'), cache_get_bytes('k', 'x'), cache_exists('k', 'x'), cache_ttl('k', 'x'), cache_get_json('k', 'x');
SELECT found, value, expires_at FROM cache_lookup('k', 'x');
SELECT * FROM cache_get_many('{k}', 'x');
SELECT * FROM cache_get_many_bytes('{k}', 'x');
SELECT * FROM cache_scan(cache => 'x');
SELECT cache_get_touch('k', '1 hour', 'x'), cache_get_touch('k', NULL, 'x'), cache_get('k', 'x');
SELECT count(*) FROM x;

-- touch, persist and replace do not find an expired entry.
SELECT cache_touch('k', '1 hour', 'x'), cache_touch('k', NULL, 'x'), cache_persist('k', 'x'), cache_replace('k', 'new', cache => 'x'), cache_exists('k', 'x');

-- cas does not match an expired value; an expired entry matches NULL, which means absent.
SELECT cache_cas('k', 'v', 'new', cache => 'x'), cache_cas('k', NULL, 'new', cache => 'x'), cache_get('k', 'x'), cache_ttl('k', 'x');

-- add, set, set_many and incr write over an expired entry and keep neither its value nor its deadline.
SELECT one_expired();
SELECT cache_add('k', 'new', cache => 'x'), cache_get('k', 'x'), cache_ttl('k', 'x');
SELECT one_expired();
SELECT cache_add('k', 'new', '1 hour', 'x'), cache_get('k', 'x'), cache_ttl('k', 'x') > '59 min' AS hour;
SELECT one_expired();
SELECT cache_set('k', 'new', cache => 'x'), cache_get('k', 'x'), cache_ttl('k', 'x');
SELECT one_expired();
SELECT cache_set_many('{k}', '{new}', cache => 'x'), cache_get('k', 'x'), cache_ttl('k', 'x');
SELECT one_expired('41');
SELECT cache_incr('k', cache => 'x'), cache_get('k', 'x'), cache_ttl('k', 'x');
SELECT one_expired('no integer');
SELECT cache_incr('k', 5, '1 hour', 'x'), cache_get('k', 'x'), cache_ttl('k', 'x') > '59 min' AS hour;

-- Deletes report an expired entry as absent.
SELECT one_expired();
SELECT cache_delete_if('k', 'v', 'x'), cache_delete_if('k', NULL, 'x'), cache_delete('k', 'x'), cache_delete('k', 'x');
SELECT one_expired();
SELECT cache_take('k', 'x');
SELECT one_expired();
SELECT cache_delete_many('{k}', 'x');
SELECT one_expired();
SELECT cache_delete_prefix('k', 'x');
SELECT one_expired(NULL);
SELECT cache_exists('k', 'x'), cache_delete_if('k', NULL, 'x'), cache_cas('k', 'v', 'w', cache => 'x'), cache_add('k', 'v', cache => 'x');

-- Expiry follows the wall clock, not the start of the transaction or of the statement.
CREATE FUNCTION gone(key text, cache regclass) RETURNS bool LANGUAGE plpgsql AS
$$BEGIN WHILE cache_get(key, cache) IS NOT NULL LOOP PERFORM pg_sleep(0.05); END LOOP; RETURN true; END$$;
BEGIN;
SELECT cache_set('k', 'v', '3 seconds', 'x'), cache_get('k', 'x'), gone('k', 'x'), cache_get('k', 'x'), cache_exists('k', 'x');
SELECT now() < expires_at AS in_time_of_transaction, cache_get('k', 'x') FROM x;
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT cache_set('k', 'v', '3 seconds', 'x');
SELECT cache_get('k', 'x'), gone('k', 'x'), cache_get('k', 'x'), cache_add('k', 'w', cache => 'x');
COMMIT;

-- Plain SQL sees expired rows until they are swept, unless it checks the deadline itself.
SELECT cache_clear('x'), cache_set('live', 'v', '1 hour', 'x'), cache_set('forever', 'v', cache => 'x');
INSERT INTO x VALUES ('dead', 'v', clock_timestamp() - interval '1 s');
SELECT key FROM x WHERE expires_at IS NULL OR expires_at > clock_timestamp() ORDER BY key;
SELECT count(*) FROM x;

-- A sweep removes expired rows, at most max_rows, of one cache or of all.
SELECT cache_create('y');
SELECT cache_expire('x'), cache_expire('x');
SELECT key FROM x ORDER BY key;
INSERT INTO x SELECT 'dead' || i, 'v', clock_timestamp() - interval '1 s' FROM generate_series(1, 10) AS i;
INSERT INTO y SELECT 'dead' || i, 'v', clock_timestamp() - interval '1 s' FROM generate_series(1, 10) AS i;
SELECT cache_expire('x', 0), cache_expire('x', 4), (SELECT count(*) FROM x);
SELECT count(*) FROM x;
SELECT cache_expire(max_rows => 9);
SELECT (SELECT count(*) FROM x) + (SELECT count(*) FROM y) AS rows;
SELECT cache_expire(), cache_expire(), cache_expire(NULL), cache_expire(NULL, 5);
SELECT key FROM x UNION ALL SELECT key FROM y ORDER BY 1;
\set VERBOSITY sqlstate
SELECT cache_expire('x', -1);
SELECT cache_expire('x', NULL);
SELECT cache_expire('pg_class');
\set VERBOSITY default

-- Within the grace an expired entry is absent, but sweeps keep it.
SELECT cache_alter('x', grace => '1 hour'), cache_set('stale', 'v', '1 hour', 'x');
UPDATE x SET expires_at = clock_timestamp() - interval '59 minutes' WHERE key = 'stale';
INSERT INTO x VALUES ('dead', 'v', clock_timestamp() - interval '61 minutes');
SELECT cache_get('stale', 'x'), cache_exists('stale', 'x'), cache_expire('x');
SELECT key FROM x ORDER BY key;
SELECT cache_alter('x', grace => cache_forever()), cache_expire('x'), cache_expire();
SELECT cache_alter('x', grace => '6000 years'), cache_expire('x');
SELECT cache_alter('x', grace => '0'), cache_expire('x');
SELECT key FROM x ORDER BY key;

-- Without pg_cron in this database, cache_schedule_expiry raises an error with a hint.
SELECT state, hint <> '' AS hint FROM error_of('SELECT cache_schedule_expiry()');
SELECT state, hint <> '' AS hint FROM error_of('SELECT cache_schedule_expiry(NULL)');

DROP FUNCTION one_expired, expire_now, gone;
DROP TABLE x, y;
