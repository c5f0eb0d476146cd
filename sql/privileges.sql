-- Who may call what: for each function exactly the privileges of the reference, and ownership.
SET pgcache.show_expired = on; -- for a look at what is stored
CREATE ROLE regress_pgcache_user;
CREATE ROLE regress_pgcache_owner;
SELECT cache_create('p'), cache_create('p_other');
SELECT cache_set_many('{k,t}', '{v,1}', cache => 'p');
INSERT INTO p VALUES ('dead', 'v', clock_timestamp() - interval '1 s');

CREATE TEMP TABLE call (n serial, needs text[], statement text);
INSERT INTO call (needs, statement) VALUES
    ('{SELECT}', $$SELECT cache_get('k', 'p')$$), ('{SELECT}', $$SELECT cache_get_json('none', 'p')$$), ('{SELECT}', $$SELECT cache_get_bytes('k', 'p')$$),
    ('{SELECT}', $$SELECT * FROM cache_lookup('k', 'p')$$), ('{SELECT}', $$SELECT cache_exists('k', 'p')$$), ('{SELECT}', $$SELECT cache_ttl('k', 'p')$$),
    ('{SELECT}', $$SELECT * FROM cache_scan(cache => 'p')$$), ('{SELECT}', $$SELECT * FROM cache_get_many('{k}', 'p')$$),
    ('{SELECT}', $$SELECT * FROM cache_get_many_bytes('{k}', 'p')$$), ('{SELECT}', $$SELECT cache_get(NULL, 'p')$$), ('{SELECT}', $$SELECT cache_exists(NULL, 'p')$$),
    ('{SELECT}', $$SELECT * FROM cache_get_many('{}', 'p')$$),
    ('{SELECT,INSERT,UPDATE}', $$SELECT cache_set('k', 'v', cache => 'p')$$), ('{SELECT,INSERT,UPDATE}', $$SELECT cache_set_json('j', '1', cache => 'p')$$),
    ('{SELECT,INSERT,UPDATE}', $$SELECT cache_set_bytes('b', '1', cache => 'p')$$), ('{SELECT,INSERT,UPDATE}', $$SELECT cache_set_many('{k}', '{v}', cache => 'p')$$),
    ('{SELECT,INSERT,UPDATE}', $$SELECT cache_set_many_bytes('{k}', '{v}', cache => 'p')$$), ('{SELECT,INSERT,UPDATE}', $$SELECT cache_set_many('{}', '{}', cache => 'p')$$),
    ('{SELECT,INSERT,UPDATE}', $$SELECT cache_touch('k', '1 hour', 'p')$$), ('{SELECT,INSERT,UPDATE}', $$SELECT cache_touch('k', NULL, 'p')$$),
    ('{SELECT,INSERT,UPDATE}', $$SELECT cache_get_touch('k', '1 hour', 'p')$$), ('{SELECT,INSERT,UPDATE}', $$SELECT cache_persist('k', 'p')$$),
    ('{SELECT,INSERT,UPDATE}', $$SELECT cache_incr('t', 1, cache => 'p')$$), ('{SELECT,INSERT,UPDATE}', $$SELECT cache_replace('k', 'v', cache => 'p')$$),
    ('{SELECT,INSERT,UPDATE}', $$SELECT cache_add('k', 'v', cache => 'p')$$), ('{SELECT,INSERT,UPDATE}', $$SELECT cache_cas('k', 'v', 'v', cache => 'p')$$),
    ('{SELECT,INSERT,UPDATE}', $$SELECT cache_cas('k', NULL, 'v', cache => 'p')$$),
    ('{DELETE}', $$SELECT cache_delete('k', 'p')$$), ('{DELETE}', $$SELECT cache_delete_many('{k,l}', 'p')$$), ('{DELETE}', $$SELECT cache_delete_prefix('k', 'p')$$),
    ('{DELETE}', $$SELECT cache_delete_prefix('', 'p')$$), ('{DELETE}', $$SELECT cache_expire('p')$$),
    ('{SELECT,DELETE}', $$SELECT cache_take('k', 'p')$$), ('{SELECT,DELETE}', $$SELECT cache_delete_if('k', 'v', 'p')$$), ('{SELECT,DELETE}', $$SELECT cache_delete_if('k', NULL, 'p')$$),
    ('{TRUNCATE}', $$SELECT cache_clear('p')$$);

-- What a role may do that has these privileges and no others; all is rolled back by an error at the end.
CREATE FUNCTION may(privileges text[], statement text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(privileges) > 0 THEN
        EXECUTE format('GRANT %s ON p TO regress_pgcache_user', array_to_string(privileges, ','));
    END IF;
    SET LOCAL ROLE regress_pgcache_user;
    EXECUTE statement;
    RAISE EXCEPTION SQLSTATE 'OK000';
EXCEPTION
    WHEN SQLSTATE 'OK000' THEN RETURN true;
    WHEN insufficient_privilege THEN RETURN false;
END $$;
CREATE TEMP TABLE every_privilege AS SELECT ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER'] AS list;

-- With what it needs each works, with nothing none does, and with all but one of what it needs none does.
SELECT statement, needs, may(needs, statement) AS with_these, may('{}', statement) AS with_none,
       (SELECT bool_or(may(array_remove(list, one), statement)) FROM every_privilege, unnest(needs) AS one) AS with_all_but_one
  FROM call ORDER BY n;

-- Ownership: not by any privilege, but by membership.
SELECT s, (SELECT may(list, s) FROM every_privilege) AS with_all
  FROM unnest(ARRAY[$$SELECT cache_alter('p', ttl => '1 hour')$$, $$SELECT cache_drop('p')$$]) AS s;
GRANT regress_pgcache_owner TO regress_pgcache_user;
BEGIN;
ALTER TABLE p OWNER TO regress_pgcache_owner;
GRANT CREATE ON SCHEMA public TO regress_pgcache_owner;
SET LOCAL ROLE regress_pgcache_user;
SELECT cache_alter('p', ttl => '1 hour'), cache_drop('p');
ROLLBACK;
REVOKE regress_pgcache_owner FROM regress_pgcache_user;

-- Nothing on pgcache.main, unless granted; making caches needs CREATE on the schema.
SET ROLE regress_pgcache_user;
SELECT s, e.state FROM unnest(ARRAY['cache_get(''k'')', 'cache_set(''k'', ''v'')', 'cache_delete(''k'')', 'cache_clear(''pgcache.main'')', 'cache_incr(''k'')',
       'cache_create(''public.mine'')', 'cache_create(''pgcache.mine'')', 'cache_expire(''pgcache.main'')']) AS s, error_of('SELECT ' || s) AS e;
-- Without a cache, expire takes those that the caller may delete from: none.
SELECT cache_expire();
RESET ROLE;
GRANT DELETE ON p TO regress_pgcache_user;
INSERT INTO p_other VALUES ('dead', 'v', clock_timestamp() - interval '1 s');
SET ROLE regress_pgcache_user;
SELECT cache_expire();
RESET ROLE;
SELECT count(*) FILTER (WHERE expires_at < now()) FROM p;
SELECT count(*) FROM p_other;
REVOKE DELETE ON p FROM regress_pgcache_user;

-- Privileges on columns are not privileges on the cache.
GRANT SELECT (key, value, expires_at), INSERT (key, value, expires_at), UPDATE (key, value, expires_at) ON p TO regress_pgcache_user;
SET ROLE regress_pgcache_user;
SELECT s, e.state FROM unnest(ARRAY['cache_get(''k'', ''p'')', 'cache_set(''k'', ''v'', cache => ''p'')']) AS s, error_of('SELECT ' || s) AS e;
RESET ROLE;
REVOKE ALL (key, value, expires_at) ON p FROM regress_pgcache_user;

-- A view runs functions as its reader, a SECURITY DEFINER function as its owner. A privilege taken away counts at once.
CREATE VIEW p_view AS SELECT cache_get('k', 'p');
CREATE FUNCTION p_definer() RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = public AS $$SELECT cache_get('k', 'p')$$;
GRANT SELECT ON p_view TO regress_pgcache_user;
SET ROLE regress_pgcache_user;
SELECT state FROM error_of('SELECT * FROM p_view');
SELECT p_definer();
RESET ROLE;
GRANT SELECT ON p TO regress_pgcache_user;
SET ROLE regress_pgcache_user;
SELECT * FROM p_view;
RESET ROLE;
REVOKE SELECT ON p FROM regress_pgcache_user;
SET ROLE regress_pgcache_user;
SELECT state FROM error_of('SELECT * FROM p_view');
RESET ROLE;

-- Triggers on a cache are code of its owner: who sweeps all caches does not lend him his rights, now or at commit.
CREATE FUNCTION p_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE '% runs as %', TG_NAME, current_user;
    RETURN OLD;
END $$;
ALTER TABLE p OWNER TO regress_pgcache_owner;
CREATE TRIGGER before_delete BEFORE DELETE ON p FOR EACH ROW EXECUTE FUNCTION p_note();
CREATE TRIGGER after_delete AFTER DELETE ON p FOR EACH ROW EXECUTE FUNCTION p_note();
INSERT INTO p VALUES ('dead', 'v', clock_timestamp() - interval '1 s');
SELECT cache_expire();
DROP TRIGGER after_delete ON p;
CREATE CONSTRAINT TRIGGER at_commit AFTER DELETE ON p DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION p_note();
INSERT INTO p VALUES ('dead', 'v', clock_timestamp() - interval '1 s');
SELECT state FROM error_of('SELECT cache_expire()');
-- A sweep of this one cache, like any DELETE from it, is the caller's own choice.
SET ROLE regress_pgcache_owner;
SELECT cache_expire('p');
RESET ROLE;

DROP VIEW p_view;
DROP FUNCTION p_definer, may;
DROP TABLE p, p_other;
DROP FUNCTION p_note;
DROP ROLE regress_pgcache_user, regress_pgcache_owner;
