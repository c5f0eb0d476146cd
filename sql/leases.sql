-- cache_lease, cache_set_leased and cache_release in one session, the same for a table cache and a memory cache.
CREATE FUNCTION lease_of(key text, cache regclass) RETURNS bigint LANGUAGE sql AS 'SELECT lease FROM cache_lease(key, cache => cache)';
SELECT cache_create('tab', grace => '1 hour'), cache_create('mem', storage => 'memory', grace => '1 hour');

CREATE FUNCTION state_machine(cache regclass) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    first bigint;
    second bigint;
    l record;
BEGIN
    SELECT * INTO l FROM cache_lease('k', cache => cache);
    first := l.lease;
    RETURN NEXT format('cold: %s %s %s', l.state, coalesce(l.value, '-'), l.lease > 0);
    SELECT * INTO l FROM cache_lease('k', cache => cache);
    RETURN NEXT format('again: %s %s %s', l.state, coalesce(l.value, '-'), coalesce(l.lease::text, '-'));
    RETURN NEXT format('another lease: %s, none: %s', cache_set_leased('k', 'x', first + 1, cache => cache), cache_set_leased('k', 'x', NULL, cache => cache));
    RETURN NEXT format('of another key: %s', cache_set_leased('other', 'x', first, cache => cache));
    RETURN NEXT format('released: %s, again: %s', cache_release('k', first, cache), cache_release('k', first, cache));
    RETURN NEXT format('after release: %s', cache_set_leased('k', 'x', first, cache => cache));
    second := lease_of('k', cache);
    RETURN NEXT format('won again: %s, as another: %s', second > 0, second <> first);
    RETURN NEXT format('stored: %s', cache_set_leased('k', 'v', second, '1 hour', cache));
    RETURN NEXT format('value: %s', cache_get('k', cache));
    SELECT * INTO l FROM cache_lease('k', cache => cache);
    RETURN NEXT format('then: %s %s %s', l.state, l.value, coalesce(l.lease::text, '-'));
    second := lease_of('n', cache);
    RETURN NEXT format('negative: %s', cache_set_leased('n', NULL, second, '1 hour', cache));
    SELECT * INTO l FROM cache_lease('n', cache => cache);
    RETURN NEXT format('then: %s %s', l.state, coalesce(l.value, '-'));
END $$;
SELECT state_machine('tab');
SELECT state_machine('mem');

-- Within the grace, one caller gets a lease and the others the stale value; cache_get never returns it.
CREATE FUNCTION stale(cache regclass) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    l record;
    won bigint;
BEGIN
    PERFORM cache_set('old', 'stale', '1 ms', cache);
    PERFORM pg_sleep(0.01);
    RETURN NEXT format('get: %s', coalesce(cache_get('old', cache), '-'));
    SELECT * INTO l FROM cache_lease('old', cache => cache);
    won := l.lease;
    RETURN NEXT format('first: %s %s', l.state, l.value);
    SELECT * INTO l FROM cache_lease('old', cache => cache);
    RETURN NEXT format('second: %s %s', l.state, l.value);
    RETURN NEXT format('fetch: %s', cache_fetch('old', 'SELECT ''fresh''', '1 hour', cache));
    RETURN NEXT format('stored: %s', cache_set_leased('old', 'fresh', won, '1 hour', cache));
    RETURN NEXT format('fetch: %s', cache_fetch('old', 'SELECT ''never''', '1 hour', cache));
    PERFORM cache_alter(cache, grace => '0');
    PERFORM cache_set('old', 'stale', '1 ms', cache);
    PERFORM pg_sleep(0.01);
    SELECT * INTO l FROM cache_lease('old', cache => cache);
    RETURN NEXT format('without grace: %s %s', l.state, coalesce(l.value, '-'));
END $$;
SELECT stale('tab');
SELECT stale('mem');

-- Any change of a key in a memory cache voids its lease at once; reads and changes of other keys do not.
CREATE FUNCTION voided_by(statement text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    lease bigint;
BEGIN
    PERFORM cache_clear('mem');
    lease := lease_of('k', 'mem');
    EXECUTE statement;
    RETURN NOT cache_set_leased('k', 'mine', lease, cache => 'mem');
END $$;
SELECT statement, voided_by(statement) FROM unnest(ARRAY[
    $$SELECT cache_set('k', 'x', cache => 'mem')$$,
    $$SELECT cache_add('k', 'x', cache => 'mem')$$,
    $$SELECT cache_incr('k', cache => 'mem')$$,
    $$SELECT cache_cas('k', NULL, 'x', cache => 'mem')$$,
    $$SELECT cache_set_many('{j,k}', '{x,x}', cache => 'mem')$$,
    $$SELECT cache_delete('k', 'mem')$$,
    $$SELECT cache_delete_many('{k}', 'mem')$$,
    $$SELECT cache_delete_prefix('', 'mem')$$,
    $$SELECT cache_clear('mem')$$,
    $$SELECT cache_set('j', 'x', cache => 'mem')$$,
    $$SELECT cache_delete('j', 'mem')$$,
    $$SELECT cache_get('k', 'mem')$$,
    $$SELECT cache_expire('mem')$$]) AS statement;

-- Invalid arguments.
SELECT * FROM cache_lease(NULL);
SELECT cache_release(NULL, 1);
SELECT * FROM error_of($$SELECT cache_lease('k', NULL)$$);
SELECT * FROM error_of($$SELECT cache_lease('k', '-1 s')$$);
SELECT * FROM error_of($$SELECT cache_lease('k', cache => 'pg_class')$$);
SELECT * FROM error_of($$SELECT cache_set_leased(NULL, 'v', 1)$$);
SELECT * FROM error_of($$SELECT cache_set_leased('k', 'v', 1, '0')$$);

-- A lease requires SELECT; storing under it requires the privileges of any write.
CREATE ROLE leaser;
SET ROLE leaser;
SELECT * FROM error_of($$SELECT cache_lease('k', cache => 'tab')$$);
SELECT * FROM error_of($$SELECT cache_release('k', 1, 'tab')$$);
RESET ROLE;
GRANT SELECT ON tab, mem TO leaser;
SET ROLE leaser;
SELECT state FROM cache_lease('priv', cache => 'tab') UNION ALL SELECT state FROM cache_lease('priv', cache => 'mem');
SELECT * FROM error_of($$SELECT cache_set_leased('k', 'v', 1, cache => 'tab')$$);
RESET ROLE;

-- With more keys than lease records, each caller without a record computes its value itself, and no call fails.
\set keys 100000
\getenv keys PGCACHE_LEASE_KEYS
SELECT state, count(*) = :keys AS all_of_them, count(lease) < :keys AS not_all FROM generate_series(1, :keys) AS i, cache_lease('full' || i, cache => 'mem') GROUP BY state;
SELECT cache_fetch('full', 'SELECT 1', cache => 'mem');
SELECT cache_get('full', 'mem');
SELECT cache_clear('mem');
SELECT lease_of('again', 'mem') > 0 AS won;

DROP OWNED BY leaser;
DROP ROLE leaser;
DROP TABLE tab;
DROP VIEW mem;
DROP FUNCTION lease_of, state_machine, stale, voided_by;
