-- Memory caches: every function on a cache whose entries exist only in shared memory.
\set VERBOSITY sqlstate
SELECT cache_create('mem', storage => 'memory'), cache_create('memj', storage => 'memory', value_type => 'jsonb'),
       cache_create('memb', storage => 'memory', value_type => 'bytea');
SELECT * FROM pgcache.caches WHERE storage = 'memory' ORDER BY cache::text;
SELECT a.attname, format_type(a.atttypid, a.atttypmod), co.collname
  FROM pg_attribute a LEFT JOIN pg_collation co ON co.oid = a.attcollation WHERE a.attrelid = 'mem'::regclass AND a.attnum > 0 ORDER BY a.attnum;

-- set, get, exists, lookup, ttl.
SELECT cache_get('a', 'mem'), cache_exists('a', 'mem'), cache_ttl('a', 'mem');
SELECT * FROM cache_lookup('a', 'mem');
SELECT cache_set('a', '1', cache => 'mem'), cache_set('b', '2', '1 hour', 'mem');
SELECT cache_get('a', 'mem'), cache_get('A', 'mem'), cache_exists('a', 'mem'), cache_ttl('a', 'mem'),
       cache_ttl('b', 'mem') BETWEEN '59 minutes' AND '1 hour' AS hour;
SELECT found, value, expires_at IS NOT NULL AS expires FROM cache_lookup('b', 'mem');
SELECT cache_set('b', 'two', cache => 'mem'), cache_get('b', 'mem'), cache_ttl('b', 'mem');
SELECT cache_set('empty', '', cache => 'mem'), cache_get('empty', 'mem') = '' AS empty;

-- add, replace, cas.
SELECT cache_add('a', 'x', cache => 'mem'), cache_add('c', '3', '1 hour', 'mem'), cache_get('a', 'mem'), cache_get('c', 'mem');
SELECT cache_replace('none', 'x', cache => 'mem'), cache_replace('c', 'three', cache => 'mem'), cache_get('c', 'mem'), cache_ttl('c', 'mem');
SELECT cache_cas('a', '2', 'x', cache => 'mem'), cache_cas('a', '1', 'one', '1 hour', 'mem'), cache_cas('none', 'x', 'y', cache => 'mem'),
       cache_cas('a', NULL, 'x', cache => 'mem'), cache_cas('d', NULL, '4', cache => 'mem'), cache_cas('d', NULL, '5', cache => 'mem');
SELECT cache_get('a', 'mem'), cache_get('d', 'mem'), cache_exists('none', 'mem');

-- touch, get_touch, persist.
SELECT cache_touch('none', '1 hour', 'mem'), cache_touch('d', '1 hour', 'mem'), cache_ttl('d', 'mem') > '59 minutes' AS hour;
SELECT cache_get_touch('none', '1 hour', 'mem'), cache_get_touch('d', '2 hours', 'mem'), cache_ttl('d', 'mem') > '119 minutes' AS two_hours;
SELECT cache_touch('d', cache => 'mem'), cache_get_touch('d', cache => 'mem'), cache_ttl('d', 'mem') > '119 minutes' AS unchanged;
SELECT cache_persist('none', 'mem'), cache_persist('d', 'mem'), cache_ttl('d', 'mem'), cache_get('d', 'mem');
SELECT cache_touch('d', cache_forever(), 'mem'), cache_ttl('d', 'mem');

-- incr from an absent entry and from a value; an existing deadline stays.
SELECT cache_incr('n', cache => 'mem'), cache_incr('n', 10, '1 hour', 'mem'), cache_ttl('n', 'mem'), cache_incr('n', -20, cache => 'mem');
SELECT cache_incr('m', 5, '1 hour', 'mem'), cache_incr('m', 5, '5 hours', 'mem'), cache_ttl('m', 'mem') BETWEEN '59 minutes' AND '1 hour' AS hour;
SELECT cache_incr('a', cache => 'mem');
SELECT cache_set('n', '9223372036854775807', cache => 'mem'), cache_incr('n', cache => 'mem');
SELECT cache_get('a', 'mem') AS unchanged, cache_get('n', 'mem') AS unchanged;
SELECT cache_incr('n', -1, cache => 'mem'), cache_incr('n', 0, cache => 'mem');

-- delete, delete_if, take.
SELECT cache_delete('n', 'mem'), cache_delete('n', 'mem'), cache_delete('none', 'mem');
SELECT cache_delete_if('c', 'x', 'mem'), cache_delete_if('c', NULL, 'mem'), cache_delete_if('c', 'three', 'mem'), cache_exists('c', 'mem'), cache_delete_if('c', 'three', 'mem');
SELECT cache_take('d', 'mem'), cache_take('d', 'mem'), cache_exists('d', 'mem');

-- Negative entries.
SELECT cache_set('neg', NULL, cache => 'mem'), cache_get('neg', 'mem'), cache_exists('neg', 'mem'), cache_add('neg', 'x', cache => 'mem');
SELECT found, value FROM cache_lookup('neg', 'mem');
SELECT cache_cas('neg', '', 'x', cache => 'mem'), cache_cas('neg', NULL, 'was negative', cache => 'mem'), cache_get('neg', 'mem');
SELECT cache_replace('neg', NULL, cache => 'mem'), cache_exists('neg', 'mem'), cache_incr('neg', 7, cache => 'mem'), cache_replace('neg', NULL, cache => 'mem'),
       cache_delete_if('neg', '', 'mem'), cache_delete_if('neg', NULL, 'mem'), cache_exists('neg', 'mem'), cache_delete_if('neg', NULL, 'mem');
SELECT cache_set('neg', NULL, '1 hour', 'mem'), cache_get_touch('neg', '2 hours', 'mem'), cache_ttl('neg', 'mem') > '119 minutes' AS touched, cache_take('neg', 'mem'), cache_exists('neg', 'mem');

-- Batches: order, duplicate keys, misses, invalid arrays.
SELECT cache_set_many('{x,y,x}', '{1,2,3}', '1 hour', 'mem'), cache_get('x', 'mem'), cache_ttl('y', 'mem') > '59 minutes' AS hour;
SELECT * FROM cache_get_many('{y,none,x,y}', 'mem') WITH ORDINALITY;
SELECT * FROM cache_get_many_bytes('{x,none}', 'mem');
SELECT * FROM cache_get_many('{}', 'mem');
SELECT cache_delete_many('{x,none,x}', 'mem'), cache_set_many('{}', '{}', cache => 'mem'), cache_delete_many('{}', 'mem');
SELECT cache_set_many_bytes('{p,q}', ARRAY['\x31', '\x32']::bytea[], cache => 'mem'), cache_get('p', 'mem'), cache_delete_many('{p,q}', 'mem');
SELECT cache_set_many('{x,NULL}', '{1,2}', cache => 'mem');
SELECT cache_set_many('{x,z}', '{1,NULL}', cache => 'mem');
SELECT cache_set_many('{x,z}', '{1}', cache => 'mem');
SELECT cache_set_many('{{x,z}}', '{1,2}', cache => 'mem');
SELECT cache_set_many('{x,}', '{1,2}', cache => 'mem');
SELECT cache_set_many('{x,""}', '{1,2}', cache => 'mem');
SELECT cache_delete_many('{y,NULL}', 'mem');
SELECT cache_get_many('{y,NULL}', 'mem');
SELECT key, value FROM mem ORDER BY key;

-- scan and delete_prefix: in key order, page by page; a prefix is not a pattern.
SELECT cache_clear('mem');
SELECT count(*) FROM mem;
SELECT count(cache_set(k, 'v', cache => 'mem')) FROM unnest(ARRAY['user:1', 'user:2', 'user:22', 'user%', 'user', 'us_r', 'User:1', 'ž']) AS k;
SELECT key FROM cache_scan(cache => 'mem');
SELECT key FROM cache_scan('user:', cache => 'mem');
SELECT key FROM cache_scan('us', 'user%', 2, 'mem');
SELECT key FROM cache_scan(max_rows => 0, cache => 'mem');
SELECT key FROM cache_scan('user', 'zzz', cache => 'mem');
SELECT cache_scan(max_rows => -1, cache => 'mem');
SELECT cache_delete_prefix('user:2', 'mem'), cache_delete_prefix('us_', 'mem'), cache_delete_prefix('nobody', 'mem'), cache_delete_prefix('', 'mem'),
       (SELECT count(*) FROM mem);

-- Expired entries are absent for every function, swept or not, and do not shorten a page.
SELECT count(cache_set('old' || i, '5', '20 ms', 'mem')) FROM generate_series(1, 14) AS i;
SELECT cache_set('young', '1', cache => 'mem');
SELECT pg_sleep(0.05);
SELECT key FROM mem;
SELECT key FROM cache_scan(max_rows => 1, cache => 'mem');
SELECT cache_get('old1', 'mem'), cache_exists('old1', 'mem'), cache_ttl('old1', 'mem'), cache_take('old1', 'mem');
SELECT found FROM cache_lookup('old2', 'mem');
SELECT * FROM cache_get_many('{old2,young}', 'mem');
SELECT cache_touch('old2', '1 hour', 'mem'), cache_persist('old2', 'mem'), cache_get_touch('old2', '1 hour', 'mem'), cache_replace('old2', 'x', cache => 'mem'),
       cache_cas('old2', '5', 'x', cache => 'mem'), cache_delete_if('old2', '5', 'mem'), cache_delete('old2', 'mem'), cache_delete_many('{old3}', 'mem'),
       cache_delete_prefix('old14', 'mem');
SELECT cache_add('old4', 'new', cache => 'mem'), cache_cas('old5', NULL, 'new', cache => 'mem'), cache_incr('old6', cache => 'mem'), cache_ttl('old6', 'mem');
SELECT cache_expire('mem', 3), cache_expire('mem'), cache_expire('mem');
SELECT key, value FROM mem ORDER BY key;
SELECT cache_expire('mem', -1);

-- ttl: the cache's default, an explicit one, less than a millisecond, unlimited, and not positive.
SELECT cache_alter('mem', ttl => '1 hour', max_entries => 100, grace => '1 minute');
SELECT * FROM pgcache.caches WHERE cache = 'mem'::regclass;
SELECT cache_get('young', 'mem') AS entries_stay;
SELECT cache_set('d', 'v', cache => 'mem'), cache_ttl('d', 'mem') BETWEEN '59 minutes' AND '1 hour' AS hour;
SELECT cache_set('d', 'v', '1 day', 'mem'), cache_ttl('d', 'mem') > '23 hours' AS day, cache_touch('d', cache => 'mem'), cache_ttl('d', 'mem') <= '1 hour' AS hour;
SELECT cache_set('d', 'v', cache_forever(), 'mem'), cache_ttl('d', 'mem'), cache_set('d', 'v', '300000 years', 'mem'), cache_ttl('d', 'mem');
SELECT cache_set('e', 'v', '1 microsecond', 'mem') FROM pg_sleep(0);
SELECT pg_sleep(0.005);
SELECT cache_exists('e', 'mem');
SELECT cache_set('d', 'x', '0', 'mem');
SELECT cache_add('new', 'x', '-1 second', 'mem');
SELECT cache_incr('new', 1, '0', 'mem');
SELECT cache_touch('d', '0', 'mem');
SELECT cache_set_many('{d,new}', '{x,x}', '0', 'mem');
SELECT cache_get('d', 'mem') AS unchanged, cache_exists('new', 'mem');
SELECT cache_alter('mem', ttl => '-1 hour');
SELECT cache_alter('mem', ttl => cache_forever(), max_entries => 0, grace => '0');
SELECT ttl, max_entries, grace FROM pgcache.caches WHERE cache = 'mem'::regclass;

-- Keys: NULL, empty, too long, and of maximal length. Values: of maximal length, and one byte longer.
SELECT cache_get(NULL, 'mem'), cache_exists(NULL, 'mem'), cache_ttl(NULL, 'mem'), cache_get_touch(NULL, cache => 'mem');
SELECT cache_set(NULL, 'v', cache => 'mem');
SELECT cache_incr(NULL, cache => 'mem');
SELECT cache_delete(NULL, 'mem');
SELECT cache_take(NULL, 'mem');
SELECT cache_set('', 'v', cache => 'mem');
SELECT cache_get('', 'mem');
SELECT cache_set(repeat('k', 2049), 'v', cache => 'mem');
SELECT cache_set(repeat('k', 2048), 'long', cache => 'mem'), cache_get(repeat('k', 2048), 'mem'), cache_get(repeat('k', 2047), 'mem'), cache_delete(repeat('k', 2048), 'mem');
SELECT cache_set('big', repeat('x', 1024 * 1024), cache => 'mem'), length(cache_get('big', 'mem')), cache_set('big', 'small', cache => 'mem');
SELECT cache_set('big', repeat('x', 1024 * 1024 + 1), cache => 'mem');
SELECT cache_add('other', repeat('x', 1024 * 1024 + 1), cache => 'mem');
SELECT cache_set_many('{a1,a2,a3}', ARRAY['v', repeat('x', 1024 * 1024 + 1), 'v'], cache => 'mem');
SELECT cache_get('big', 'mem') AS unchanged, cache_exists('a1', 'mem') AS half_written, cache_exists('a3', 'mem') AS half_written;
SELECT cache_create('mem', storage => 'memory');
SELECT cache_create('mem2', storage => 'Memory');
SELECT cache_create('mem2', storage => NULL);
\set VERBOSITY default
SELECT cache_set('big', repeat('x', 2000000), cache => 'mem');
SELECT cache_create('MEM', storage => 'memory', if_not_exists => true);
\set VERBOSITY sqlstate

-- incr counts a negative entry as 0.
SELECT cache_set_json('none', NULL, cache => 'memj'), cache_incr_existing('none', 2, cache => 'memj'), cache_incr('none', 3, cache => 'memj'),
       cache_get_json('none', 'memj'), cache_set_json('none', NULL, cache => 'memj'), cache_cas('none', NULL, '1', cache => 'memj'),
       cache_set_json('none', NULL, cache => 'memj'), cache_delete_if('none', NULL, 'memj'), cache_take('none', 'memj');
-- jsonb: values are parsed, printed and compared as jsonb.
SELECT cache_set_json('k', '{"b": [1, 2], "a": {"n": null}}', cache => 'memj'), cache_get_json('k', 'memj'), cache_get_json('k', 'memj') -> 'b' -> 1 AS two, cache_get('k', 'memj');
SELECT cache_cas('k', '{"a":{"n":null},"b":[1.0,2]}', '[1]', cache => 'memj'), cache_get('k', 'memj'), cache_delete_if('k', ' [ 1 ] ', 'memj');
SELECT cache_set('k', 'no json', cache => 'memj');
SELECT cache_set_many('{j1,j2}', '{1,no}', cache => 'memj');
SELECT cache_exists('j1', 'memj') AS half_written;
SELECT cache_incr('n', 3, cache => 'memj'), cache_get_json('n', 'memj'), cache_set('s', '"3"', cache => 'memj');
SELECT cache_incr('s', cache => 'memj');
SELECT key, value, pg_typeof(value) FROM memj ORDER BY key;
SELECT value FROM cache_get_many('{n,none}', 'memj');

-- bytea: any bytes are accepted; text functions read them only if they are valid text.
SELECT cache_set_bytes('k', '\x00ff', cache => 'memb'), cache_get_bytes('k', 'memb'), cache_set('t', 'héllo', cache => 'memb'), cache_get('t', 'memb');
SELECT cache_get('k', 'memb');
SELECT * FROM cache_scan(cache => 'memb');
SELECT cache_take('k', 'memb');
SELECT cache_get_json('k', 'memb');
SELECT cache_get_touch('k', '1 hour', 'memb');
SELECT cache_exists('k', 'memb') AS still_there, cache_ttl('k', 'memb') AS unchanged;
SELECT * FROM cache_get_many_bytes('{k,none}', 'memb');
SELECT key, value FROM memb ORDER BY key;
SELECT cache_set_bytes('k', '\xff', cache => 'mem');
SELECT cache_exists('k', 'mem');

-- Writes, cache_clear included, take effect at once, are not rolled back, and work in read-only transactions.
BEGIN;
SELECT cache_set('tx', '1', cache => 'mem'), cache_incr('tx', cache => 'mem');
SAVEPOINT s;
SELECT cache_incr('tx', cache => 'mem');
ROLLBACK TO s;
SELECT cache_get('tx', 'mem');
ROLLBACK;
SELECT cache_get('tx', 'mem');
BEGIN READ ONLY;
SELECT cache_set('ro', '1', cache => 'mem'), cache_incr('ro', cache => 'mem'), cache_take('ro', 'mem'), cache_set_many('{ro}', '{1}', cache => 'mem'),
       cache_delete_prefix('ro', 'mem'), cache_expire('mem'), cache_add('ro', 'read only', cache => 'mem');
SELECT value FROM mem WHERE key = 'ro';
SELECT cache_set('k', 'v');
ROLLBACK;
BEGIN READ ONLY;
SELECT cache_clear('mem');
SELECT count(*) FROM mem;
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT cache_set('rr', '1', cache => 'mem'), cache_get('rr', 'mem'), (SELECT value FROM mem WHERE key = 'rr');
COMMIT;
-- A memory cache writes to no table, so PREPARE TRANSACTION is allowed.
BEGIN;
SELECT cache_set('prepared', '1', cache => 'mem');
PREPARE TRANSACTION 'regress_mem';
COMMIT PREPARED 'regress_mem';
SELECT cache_get('prepared', 'mem');

-- The view supports joins, WHERE and ORDER BY, but neither writes nor COPY TO.
SELECT cache_set_many('{1,2,3}', '{one,two,three}', cache => 'mem');
SELECT g, m.value FROM generate_series(2, 4) AS g LEFT JOIN mem AS m ON m.key = g::text ORDER BY g;
SELECT m.key, cache_get(m.key, 'mem') FROM mem AS m JOIN mem AS n USING (key) WHERE m.value LIKE 't%' ORDER BY m.key;
INSERT INTO mem VALUES ('x', 'y', NULL);
UPDATE mem SET value = 'x';
DELETE FROM mem;
TRUNCATE mem;
COPY mem TO STDOUT;
COPY (SELECT key, value FROM mem ORDER BY key) TO STDOUT;
SELECT * FROM pgcache.verify('mem');

-- The cache survives a user-defined rule, a rename, and a move to another schema.
CREATE RULE "A" AS ON INSERT TO mem DO INSTEAD NOTHING;
SELECT cache_get('1', 'mem');
DROP RULE "A" ON mem;
CREATE SCHEMA regress_mem;
ALTER VIEW mem RENAME TO "Weird ""name""";
ALTER VIEW "Weird ""name""" SET SCHEMA regress_mem;
SELECT cache_get('1', 'regress_mem."Weird ""name"""'), (SELECT value FROM regress_mem."Weird ""name""" WHERE key = '1');
SELECT cache_alter('regress_mem."Weird ""name"""', ttl => '1 hour'), cache_get('1', 'regress_mem."Weird ""name"""');
ALTER VIEW regress_mem."Weird ""name""" SET SCHEMA public;
ALTER VIEW "Weird ""name""" RENAME TO mem;

-- The privileges on the view also apply to the function behind it and to copies of the view.
CREATE ROLE regress_mem_reader;
SELECT pg_get_viewdef('mem'::regclass) AS definition \gset
GRANT CREATE ON SCHEMA regress_mem TO regress_mem_reader;
GRANT USAGE ON SCHEMA regress_mem TO regress_mem_reader;
SET ROLE regress_mem_reader;
SELECT cache_get('1', 'mem');
SELECT * FROM mem;
CREATE VIEW regress_mem.copy AS :definition
SELECT * FROM regress_mem.copy;
SELECT cache_get('1', 'regress_mem.copy');
RESET ROLE;
GRANT SELECT ON mem TO regress_mem_reader;
SET ROLE regress_mem_reader;
SELECT cache_get('1', 'mem'), (SELECT count(*) FROM mem), (SELECT count(*) FROM regress_mem.copy);
SELECT cache_set('1', 'x', cache => 'mem');
SELECT cache_delete('1', 'mem');
SELECT cache_clear('mem');
SELECT cache_drop('mem');
RESET ROLE;
GRANT INSERT, UPDATE, DELETE ON mem TO regress_mem_reader;
SET ROLE regress_mem_reader;
SELECT cache_set('1', 'x', cache => 'mem'), cache_delete('1', 'mem');
SELECT cache_alter('mem', ttl => '1 day');
RESET ROLE;
-- Another role's older cache cannot impersonate a younger cache by copying its definition.
SET ROLE regress_mem_reader;
SELECT cache_create('regress_mem.older', storage => 'memory');
SELECT cache_set('1', 'forged', cache => 'regress_mem.older');
RESET ROLE;
SELECT cache_create('younger', storage => 'memory');
SELECT cache_set('1', 'genuine', cache => 'younger');
SELECT pg_get_viewdef('younger'::regclass) AS younger \gset
SET ROLE regress_mem_reader;
CREATE OR REPLACE VIEW regress_mem.older AS :younger
GRANT SELECT ON regress_mem.older TO PUBLIC;
SELECT * FROM regress_mem.older;
RESET ROLE;
TABLE younger;
TABLE regress_mem.older;
-- After a restore the definition may contain the oid of another relation: the view then raises an error.
SELECT regexp_replace(:'younger', 'oid=\d+', 'oid=1') AS restored \gset
CREATE OR REPLACE VIEW younger AS :restored
TABLE younger;
SELECT cache_get('1', 'younger');
DROP VIEW regress_mem.older;
TABLE younger;
SELECT cache_drop('younger');

-- The function behind the view, with invalid settings, other columns, other types, and no columns.
SELECT (regexp_match(:'definition', 'memory_entries\(''([^'']*)'))[1] AS settings \gset
SELECT count(*) > 0 FROM pgcache.memory_entries(:'settings') AS e (key text, value text, expires_at timestamptz);
SELECT * FROM pgcache.memory_entries(:'settings') AS e (key text, value bigint, expires_at timestamptz);
SELECT * FROM pgcache.memory_entries(:'settings') AS e (key text, value bytea, expires_at timestamptz);
SELECT * FROM pgcache.memory_entries(:'settings') AS e (key text, value text);
SELECT * FROM pgcache.memory_entries(:'settings') AS e (key text, value text, expires_at timestamptz, more int);
SELECT pgcache.memory_entries(:'settings');
SELECT * FROM pgcache.memory_entries('id=1') AS e (key text, value text, expires_at timestamptz);
SELECT * FROM pgcache.memory_entries('') AS e (key text, value text, expires_at timestamptz);
SELECT * FROM pgcache.memory_entries('id=-1 id=x ttl=P') AS e (key text, value text, expires_at timestamptz);
SELECT * FROM pgcache.memory_entries(NULL) AS e (key text, value text, expires_at timestamptz);

-- cache_drop, DROP VIEW, and the rollback of a creation remove the entries.
DROP VIEW regress_mem.copy;
SELECT cache_drop('memb');
SELECT cache_get('k', 'memb');
SELECT hot_entries > 0 AS entries FROM pgcache.stats WHERE cache = 'memj'::regclass;
BEGIN;
DROP VIEW memj;
ROLLBACK;
SELECT cache_get('n', 'memj') AS still_there;
SELECT 'memj'::regclass::oid AS oid \gset
DROP VIEW memj;
SELECT count(*) FROM pgcache.figures() WHERE cache = :oid;
BEGIN;
SELECT cache_create('memr', storage => 'memory');
SELECT cache_set('k', 'v', cache => 'memr'), cache_get('k', 'memr');
SELECT 'memr'::regclass::oid AS oid \gset
ROLLBACK;
SELECT count(*) FROM pgcache.figures() WHERE cache = :oid;
SELECT cache_drop('mem');
DROP SCHEMA regress_mem;
DROP ROLE regress_mem_reader;
-- A hand-made view may have a negative grace: it is not a cache, and a sweep of all caches still succeeds.
CREATE VIEW backwards AS SELECT e.key, e.value, e.expires_at FROM pgcache.memory_entries('id=7 grace=P-2147483648M') AS e (key text COLLATE "C", value text, expires_at timestamptz);
\set VERBOSITY terse
SELECT cache_set('k', 'v', ttl => '1 hour', cache => 'backwards');
SELECT cache_expire() >= 0;
\set VERBOSITY default
DROP VIEW backwards;
