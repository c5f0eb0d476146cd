-- In a read-only transaction reads work and every write raises 25006.
SELECT cache_create('ro');
SELECT cache_set('k', 'v', cache => 'ro');
BEGIN READ ONLY;
SELECT cache_get('k', 'ro'), cache_exists('k', 'ro'), cache_ttl('k', 'ro'), cache_get_bytes('k', 'ro'), cache_get_json('none', 'ro');
SELECT found, value FROM cache_lookup('k', 'ro');
SELECT key FROM cache_scan(cache => 'ro');
SELECT * FROM cache_get_many('{k,none}', 'ro');
SELECT cache_count('ro'), cache_keys(cache => 'ro');
SELECT key, value FROM cache_scan_bytes(cache => 'ro');
SELECT found, value FROM cache_lookup_bytes('k', 'ro');
SELECT key, found, value FROM cache_lookup_many('{k,none}', 'ro');
SELECT key, found, value FROM cache_lookup_many_bytes('{k,none}', 'ro');
SELECT cache_fetch_bytes('k', 'SELECT 1', cache => 'ro'), cache_fetch_bytes('none', 'SELECT 2', cache => 'ro');
SELECT count(*) > 0 AS caches FROM pgcache.caches;
SELECT call, e.state FROM unnest(ARRAY[
    'cache_set(''k'', ''w'', cache => ''ro'')', 'cache_set_json(''k'', ''1'', cache => ''ro'')', 'cache_set_bytes(''k'', ''1'', cache => ''ro'')',
    'cache_add(''new'', ''w'', cache => ''ro'')', 'cache_add(''k'', ''w'', cache => ''ro'')', 'cache_replace(''k'', ''w'', cache => ''ro'')', 'cache_replace(''none'', ''w'', cache => ''ro'')',
    'cache_cas(''k'', ''v'', ''w'', cache => ''ro'')', 'cache_incr(''n'', cache => ''ro'')', 'cache_touch(''k'', ''1 hour'', ''ro'')', 'cache_touch(''k'', NULL, ''ro'')',
    'cache_get_touch(''k'', ''1 hour'', ''ro'')', 'cache_persist(''k'', ''ro'')', 'cache_delete(''k'', ''ro'')', 'cache_delete(''none'', ''ro'')', 'cache_delete_if(''k'', ''v'', ''ro'')',
    'cache_take(''k'', ''ro'')', 'cache_delete_prefix(''k'', ''ro'')', 'cache_delete_many(''{k}'', ''ro'')', 'cache_set_many(''{k}'', ''{w}'', cache => ''ro'')', 'cache_set_many(''{}'', ''{}'', cache => ''ro'')',
    'cache_set_many_bytes(''{k}'', ''{w}'', cache => ''ro'')', 'cache_clear(''ro'')', 'cache_drop(''ro'')', 'cache_alter(''ro'', ttl => ''1 hour'')', 'cache_create(''ro2'')',
    'cache_create(''ro'', if_not_exists => true)', 'cache_expire(''ro'')', 'cache_expire()', 'cache_schedule_expiry()',
    'cache_add_bytes(''new'', ''w'', cache => ''ro'')', 'cache_replace_bytes(''none'', ''w'', cache => ''ro'')', 'cache_cas_bytes(''k'', ''v'', ''w'', cache => ''ro'')', 'cache_incr_existing(''none'', 1, ''ro'')',
    'cache_get_touch_bytes(''k'', ''1 hour'', ''ro'')', 'cache_delete_if_bytes(''none'', ''v'', ''ro'')', 'cache_take_bytes(''none'', ''ro'')']) WITH ORDINALITY AS c (call, n),
    error_of('SELECT ' || call) AS e ORDER BY n;
COMMIT;
SELECT * FROM ro;
SELECT message FROM error_of($$SELECT set_config('transaction_read_only', 'on', true), cache_set('k', 'w', cache => 'ro')$$);
BEGIN;
SET TRANSACTION READ ONLY;
SELECT message FROM error_of($$SELECT cache_delete('k', 'ro')$$);
COMMIT;
DROP TABLE ro;
