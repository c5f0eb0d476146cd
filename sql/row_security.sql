-- Row-level security on a cache: every function sees and changes only rows that the caller's policies allow.
SET pgcache.show_expired = on; -- lets plain SQL see the stored rows
CREATE ROLE regress_pgcache_tenant;
SELECT cache_create('rls');
SELECT cache_set_many('{a:1,a:2,b:1}', '{1,2,3}', cache => 'rls');
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON rls TO regress_pgcache_tenant;
ALTER TABLE rls ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON rls TO regress_pgcache_tenant USING (key LIKE 'a:%');

-- The owner, to whom the policies do not apply, first caches the plans of this session.
SELECT cache_get('b:1', 'rls'), cache_exists('b:1', 'rls'), cache_count('rls'), cache_incr_existing('b:1', 0, 'rls');
SELECT cache_keys(cache => 'rls');
SET ROLE regress_pgcache_tenant;
SELECT cache_get('a:1', 'rls'), cache_get('b:1', 'rls'), cache_exists('b:1', 'rls');
SELECT key FROM cache_scan(cache => 'rls');
SELECT * FROM cache_get_many('{a:1,b:1}', 'rls');
SELECT found, value FROM cache_lookup('b:1', 'rls');
SELECT found, value FROM cache_lookup_bytes('b:1', 'rls');
SELECT key, found, value FROM cache_lookup_many('{a:1,b:1}', 'rls');
SELECT cache_keys(cache => 'rls'), cache_count('rls');
SELECT key FROM cache_scan_bytes('b', cache => 'rls');
SELECT cache_incr_existing('b:1', 1, 'rls'), cache_take_bytes('b:1', 'rls'), cache_delete_if_bytes('b:1', '3', 'rls'), cache_get_touch_bytes('b:1', '1 hour', 'rls'),
       cache_replace_bytes('b:1', 'x', cache => 'rls'), cache_cas_bytes('b:1', '3', 'x', cache => 'rls');
SELECT cache_delete('b:1', 'rls'), cache_take('b:1', 'rls'), cache_delete_if('b:1', '3', 'rls'), cache_delete_many('{b:1}', 'rls'), cache_delete_prefix('b', 'rls'),
       cache_touch('b:1', '1 hour', 'rls'), cache_replace('b:1', 'x', cache => 'rls'), cache_cas('b:1', '3', 'x', cache => 'rls');
SELECT state FROM error_of($$SELECT cache_set('b:1', 'x', cache => 'rls')$$);
SELECT state FROM error_of($$SELECT cache_set('b:2', 'x', cache => 'rls')$$);
SELECT state FROM error_of($$SELECT cache_incr('b:1', cache => 'rls')$$);
SELECT cache_set('a:3', 'x', cache => 'rls'), cache_incr('a:1', cache => 'rls'), cache_delete('a:2', 'rls');
RESET ROLE;
SELECT key, value FROM rls ORDER BY key;

-- Sweeps obey the policies. Without SELECT even a delete fails, because policies apply to the caller, not to the owner.
UPDATE rls SET expires_at = clock_timestamp() - interval '1 s' WHERE key IN ('a:3', 'b:1');
SET ROLE regress_pgcache_tenant;
SELECT cache_expire('rls'), cache_expire();
RESET ROLE;
SELECT key FROM rls ORDER BY key;
REVOKE SELECT ON rls FROM regress_pgcache_tenant;
SET ROLE regress_pgcache_tenant;
SELECT state FROM error_of($$SELECT cache_delete('a:1', 'rls')$$);
SELECT state FROM error_of($$SELECT cache_get('a:1', 'rls')$$);
RESET ROLE;
GRANT SELECT ON rls TO regress_pgcache_tenant;

-- Policies that depend on a session's settings apply at each call.
CREATE POLICY session ON rls TO regress_pgcache_tenant USING (key = current_setting('regress.key', true));
SET ROLE regress_pgcache_tenant;
SELECT cache_exists('b:1', 'rls');
SET regress.key = 'b:1';
RESET ROLE;
SELECT cache_persist('b:1', 'rls'), cache_set('b:1', 'back', cache => 'rls');
SET ROLE regress_pgcache_tenant;
SELECT cache_get('b:1', 'rls'), set_config('regress.key', 'none', false), cache_get('b:1', 'rls');
-- With row_security = off an error is raised instead of hiding rows.
SET row_security = off;
SELECT state FROM error_of($$SELECT cache_get('a:1', 'rls')$$);
RESET row_security;
RESET ROLE;

-- The owner is subject to the policies if they are forced.
ALTER TABLE rls OWNER TO regress_pgcache_tenant;
SET ROLE regress_pgcache_tenant;
SELECT cache_get('b:1', 'rls');
ALTER TABLE rls FORCE ROW LEVEL SECURITY;
SELECT cache_get('b:1', 'rls'), cache_get('a:1', 'rls');
ALTER TABLE rls DISABLE ROW LEVEL SECURITY;
SELECT cache_get('b:1', 'rls');
RESET ROLE;

DROP TABLE rls;
DROP ROLE regress_pgcache_tenant;
