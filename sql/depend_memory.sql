-- A session that changed a source row no longer finds the entries that depend on it, in a memory cache either. Other
-- sessions find them until the commit; a rollback here shows that they were still stored.
\set VERBOSITY terse
CREATE TABLE src (id text PRIMARY KEY, v text);
INSERT INTO src VALUES ('a', 'old'), ('b', 'old');
SELECT cache_create('m', storage => 'memory');
SELECT cache_depend('src', 'id', 'm');
SELECT cache_set_many('{a,b}', '{old,old}', cache => 'm');

-- Every kind of read.
BEGIN; UPDATE src SET v = 'new' WHERE id = 'a';
SELECT cache_get('a', 'm'), cache_get('b', 'm'), cache_exists('a', 'm'), cache_ttl('a', 'm');
SELECT found FROM cache_lookup('a', 'm');
SELECT * FROM cache_get_many('{a,b}', 'm');
SELECT key FROM cache_scan(cache => 'm'); SELECT key FROM m ORDER BY 1;
SELECT cache_get_touch('a', '1 h', 'm'), cache_touch('a', '1 h', 'm'), cache_persist('a', 'm'), cache_replace('a', 'x', cache => 'm');
SELECT cache_cas('a', 'old', 'x', cache => 'm'), cache_delete_if('a', 'old', 'm'), cache_take('a', 'm');
SELECT state FROM cache_lease('b', cache => 'm');
ROLLBACK;
SELECT cache_get('a', 'm'), cache_get('b', 'm');

-- Before the commit, a loaded value is returned to its caller only and not stored.
BEGIN; UPDATE src SET v = 'new' WHERE id = 'a';
SELECT cache_fetch('a', 'SELECT v FROM src WHERE id = $1', cache => 'm');
SELECT cache_get('a', 'm');
ROLLBACK;
SELECT cache_get('a', 'm');
BEGIN; UPDATE src SET v = 'new' WHERE id = 'a';
SELECT cache_fetch('a', 'SELECT v FROM src WHERE id = $1', cache => 'm');
COMMIT;
SELECT cache_get('a', 'm');
SELECT cache_fetch('a', 'SELECT v FROM src WHERE id = $1', cache => 'm');
-- The loader itself changes the source.
SELECT cache_fetch('c', $$INSERT INTO src VALUES ($1, 'made') RETURNING v$$, cache => 'm');
SELECT cache_get('c', 'm');

-- The session finds an entry that it has stored itself, until it changes the row again.
BEGIN; UPDATE src SET v = 'newer' WHERE id = 'a';
SELECT cache_set('a', 'mine', cache => 'm'); SELECT cache_get('a', 'm');
UPDATE src SET v = 'newest' WHERE id = 'a';
SELECT cache_get('a', 'm');
SELECT cache_add('a', 'added', cache => 'm'), cache_get('a', 'm');
ROLLBACK;
SELECT cache_get('a', 'm');
BEGIN; UPDATE src SET v = 'newer' WHERE id = 'a'; SELECT cache_incr('a', 3, cache => 'm'); SELECT cache_incr('a', 3, cache => 'm'); COMMIT;
SELECT cache_get('a', 'm');

-- Savepoints, and changes of all rows at once.
SELECT cache_set_many('{a,b}', '{old,old}', cache => 'm');
BEGIN; SAVEPOINT s; UPDATE src SET v = 'x' WHERE id = 'a'; SELECT cache_get('a', 'm'); ROLLBACK TO s; SELECT cache_get('a', 'm'); COMMIT;
BEGIN; SAVEPOINT s; UPDATE src SET v = 'x' WHERE id = 'a'; RELEASE s; SELECT cache_get('a', 'm'); ROLLBACK;
BEGIN; TRUNCATE src; SELECT cache_get('a', 'm'), cache_get('b', 'm'); SELECT count(*) FROM m; ROLLBACK;
SELECT cache_get('a', 'm'), cache_get('b', 'm');
BEGIN; ALTER TABLE src ALTER v TYPE text USING upper(v); SELECT cache_get('a', 'm'); ROLLBACK;
SELECT cache_get('a', 'm');
ALTER TABLE src ALTER v TYPE text USING upper(v);
SELECT cache_get('a', 'm');
SELECT cache_set('a', 'old', cache => 'm');
BEGIN; DROP TABLE src; SELECT cache_get('a', 'm'); ROLLBACK;
SELECT cache_get('a', 'm');

-- A cache that depends on another cache: a change of a source row removes an entry of each.
SELECT cache_create('c'); SELECT cache_depend('src', 'id', 'c'); SELECT cache_undepend('src', 'm');
SELECT cache_create('far', storage => 'memory'); SELECT cache_depend('c', 'key', 'far');
SELECT cache_set('a', 'old', cache => 'c'); SELECT cache_set('a', 'old', cache => 'far');
BEGIN; UPDATE src SET v = 'y' WHERE id = 'a'; SELECT cache_get('a', 'far'); ROLLBACK;
SELECT cache_get('a', 'far');

-- Dropping the source removes the entries of a memory cache.
SELECT cache_depend('src', 'id', 'm'); SELECT cache_set('a', 'old', cache => 'm');
DROP TABLE src;
SELECT cache_get('a', 'm');
SELECT cache_drop('m'); SELECT cache_drop('far'); SELECT cache_drop('c');
