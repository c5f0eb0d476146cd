-- A stored NULL is a negative entry: exists, add and replace find it, and get returns NULL.
SELECT cache_create('n'), cache_create('nj', value_type => 'jsonb'), cache_create('nb', value_type => 'bytea');
SELECT cache_set('k', NULL, '1 hour', 'n'), cache_set_json('k', NULL, cache => 'nj'), cache_set_bytes('k', NULL, cache => 'nb');

SELECT cache_get('k', 'n'), cache_get_json('k', 'nj'), cache_get_bytes('k', 'nb'), cache_get('k', 'nj'), cache_get('k', 'nb');
SELECT cache_exists('k', 'n'), cache_exists('k', 'nj'), cache_exists('k', 'nb'), cache_ttl('k', 'n') > '59 min' AS hour;
SELECT found, value, expires_at IS NOT NULL AS expires FROM cache_lookup('k', 'n');
SELECT found, value, expires_at FROM cache_lookup('missing', 'n');
SELECT * FROM cache_get_many('{k,missing}', 'n');
SELECT key, value, expires_at IS NOT NULL AS expires FROM cache_scan(cache => 'n');

SELECT cache_add('k', 'v', cache => 'n'), cache_get('k', 'n');
SELECT cache_touch('k', '2 hours', 'n'), cache_get_touch('k', '2 hours', 'n'), cache_ttl('k', 'n') > '119 min' AS two_hours, cache_persist('k', 'n');
SELECT cache_replace('k', 'v', cache => 'n'), cache_get('k', 'n'), cache_replace('k', NULL, cache => 'n'), cache_exists('k', 'n');

-- cas: NULL matches only an absent or a negative entry.
SELECT cache_cas('k', 'v', 'w', cache => 'n'), cache_cas('k', '', 'w', cache => 'n'), cache_cas('k', NULL, 'w', cache => 'n'), cache_get('k', 'n');
SELECT cache_cas('new', NULL, NULL, cache => 'n'), cache_exists('new', 'n'), cache_cas('new', NULL, 'v', cache => 'n'), cache_get('new', 'n');
SELECT cache_cas('new', 'v', NULL, '1 hour', 'n'), cache_get('new', 'n'), cache_ttl('new', 'n') > '59 min' AS hour;

-- incr starts from 0 and keeps the deadline of the entry.
SELECT cache_incr('new', 7, '3 hours', 'n'), cache_ttl('new', 'n') BETWEEN '59 min' AND '1 hour' AS hour;
SELECT cache_incr('k', cache => 'nj'), cache_get_json('k', 'nj'), cache_incr('k', -2, cache => 'nb'), cache_get('k', 'nb');

-- delete, delete_if, take, delete_many, delete_prefix.
SELECT cache_set('k', NULL, cache => 'n'), cache_delete_if('k', 'v', 'n'), cache_delete_if('k', NULL, 'n'), cache_exists('k', 'n'), cache_delete_if('k', NULL, 'n');
SELECT cache_set('k', NULL, cache => 'n'), cache_take('k', 'n'), cache_exists('k', 'n');
SELECT cache_set('k', NULL, cache => 'n'), cache_delete('k', 'n'), cache_exists('k', 'n');
SELECT cache_set('k', NULL, cache => 'n'), cache_delete_many('{k,k,l}', 'n'), cache_set('k', NULL, cache => 'n'), cache_delete_prefix('k', 'n');

DROP TABLE n, nj, nb;
