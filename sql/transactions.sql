-- A rollback of the transaction or savepoint undoes any function's write, and an error leaves nothing half-written.
SELECT cache_create('tx');
SELECT cache_set_many('{k,n,old}', '{v,1,x}', cache => 'tx');
CREATE VIEW tx_now AS SELECT string_agg(key || '=' || coalesce(value, '-'), ' ' ORDER BY key) AS entries FROM cache_scan(cache => 'tx');

BEGIN;
SELECT cache_set('k', 'w', cache => 'tx'), cache_add('a', '1', cache => 'tx'), cache_incr('n', cache => 'tx'), cache_delete('old', 'tx'),
       cache_set_many('{m1,m2}', '{1,2}', cache => 'tx'), cache_touch('k', '1 hour', 'tx'), cache_cas('k', 'w', 'x', cache => 'tx'), cache_replace('k', 'y', cache => 'tx');
TABLE tx_now;
ROLLBACK;
TABLE tx_now;
BEGIN;
SELECT cache_take('k', 'tx'), cache_delete_prefix('', 'tx');
TABLE tx_now;
ROLLBACK;
BEGIN;
SELECT cache_clear('tx'), cache_set('after', 'clear', cache => 'tx');
TABLE tx_now;
ROLLBACK;
TABLE tx_now;

-- Savepoints.
BEGIN;
SELECT cache_set('k', 'one', cache => 'tx');
SAVEPOINT a;
SELECT cache_set('k', 'two', cache => 'tx'), cache_set('b', 'two', cache => 'tx'), cache_get('k', 'tx');
SAVEPOINT b;
SELECT cache_clear('tx'), cache_get('k', 'tx');
ROLLBACK TO b;
SELECT cache_get('k', 'tx'), cache_get('b', 'tx');
ROLLBACK TO a;
SELECT cache_get('k', 'tx'), cache_get('b', 'tx'), cache_add('b', 'three', cache => 'tx');
SAVEPOINT c;
SELECT cache_incr('n', cache => 'tx');
RELEASE c;
COMMIT;
TABLE tx_now;

-- A cache that is created, used, altered and dropped within one transaction and its savepoints.
BEGIN;
SELECT cache_create('inner_cache', ttl => '1 hour');
SAVEPOINT a;
SELECT cache_alter('inner_cache', ttl => '2 hours');
SELECT cache_set('k', 'v', cache => 'inner_cache'), cache_ttl('k', 'inner_cache') > '119 min' AS two_hours;
ROLLBACK TO a;
SELECT cache_set('k', 'v', cache => 'inner_cache'), cache_ttl('k', 'inner_cache') < '61 min' AS one_hour;
SAVEPOINT b;
SELECT cache_drop('inner_cache');
SELECT state FROM error_of($$SELECT cache_get('k', 'inner_cache')$$);
ROLLBACK TO b;
SELECT cache_get('k', 'inner_cache');
ROLLBACK;
SELECT to_regclass('inner_cache');

-- An error undoes the earlier writes of its statement, and the session continues.
SELECT state FROM error_of($$SELECT cache_set('half', 'v', cache => 'tx'), cache_set(NULL, 'v', cache => 'tx')$$);
SELECT state FROM error_of($$SELECT cache_set(k, 'v', cache => 'tx') FROM unnest(ARRAY['h1', 'h2', '', 'h3']) AS k$$);
SELECT state FROM error_of($$SELECT cache_delete('k', 'tx'), cache_incr('k', cache => 'tx'), 1 / 0$$);
TABLE tx_now;
BEGIN;
SELECT cache_set('k', 'lost', cache => 'tx');
SELECT 1 / 0;
SELECT cache_get('k', 'tx');
ROLLBACK;
SELECT cache_get('k', 'tx');
DO $$
BEGIN
    FOR i IN 1 .. 200 LOOP
        BEGIN
            PERFORM cache_set('loop', i::text, cache => 'tx');
            PERFORM cache_get_json('k', 'tx');
        EXCEPTION WHEN invalid_text_representation THEN
            ASSERT cache_get('loop', 'tx') IS NULL;
        END;
    END LOOP;
END $$;
SELECT cache_exists('loop', 'tx');

-- Under REPEATABLE READ and SERIALIZABLE the functions see what SELECT sees, the session's own writes included.
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT cache_get('k', 'tx') = (SELECT value FROM tx WHERE key = 'k') AS same, cache_set('k', 'mine', cache => 'tx'), cache_get('k', 'tx');
SELECT value FROM tx WHERE key = 'k';
COMMIT;

-- A read keeps no lock under READ COMMITTED, and its lock under REPEATABLE READ; a write keeps its lock.
CREATE VIEW tx_locks AS SELECT mode FROM pg_locks WHERE relation = 'tx'::regclass AND pid = pg_backend_pid();
BEGIN;
SELECT cache_get('k', 'tx'), cache_exists('k', 'tx'), (SELECT count(*) FROM cache_get_many('{k,n}', 'tx')), (SELECT found FROM cache_lookup('k', 'tx'));
SELECT count(*) FROM cache_scan(cache => 'tx');
TABLE tx_locks;
SELECT cache_set('k', 'v', cache => 'tx');
TABLE tx_locks;
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT cache_get('k', 'tx');
TABLE tx_locks;
COMMIT;

DROP VIEW tx_now, tx_locks;
DROP TABLE tx;
