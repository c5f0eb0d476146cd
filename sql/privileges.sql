-- Each function requires exactly the privileges that the reference names, or ownership.
SET pgcache.show_expired = on; -- lets plain SQL see the stored rows
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

-- Returns whether a role with only these privileges may run the statement. An error at the end rolls everything back.
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

-- Each call succeeds with its privileges, and fails with none, or with all privileges but one of those that it needs.
SELECT statement, needs, may(needs, statement) AS with_these, may('{}', statement) AS with_none,
       (SELECT bool_or(may(array_remove(list, one), statement)) FROM every_privilege, unnest(needs) AS one) AS with_all_but_one
  FROM call ORDER BY n;

-- cache_alter and cache_drop require ownership, directly or by membership; no privilege suffices.
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

-- pgcache.main requires a grant; creating a cache requires CREATE on the schema.
SET ROLE regress_pgcache_user;
SELECT s, e.state FROM unnest(ARRAY['cache_get(''k'')', 'cache_set(''k'', ''v'')', 'cache_delete(''k'')', 'cache_clear(''pgcache.main'')', 'cache_incr(''k'')',
       'cache_create(''public.mine'')', 'cache_create(''pgcache.mine'')', 'cache_expire(''pgcache.main'')']) AS s, error_of('SELECT ' || s) AS e;
-- Without a cache, cache_expire sweeps the caches on which the caller has DELETE: here none.
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

-- Privileges on columns do not suffice.
GRANT SELECT (key, value, expires_at), INSERT (key, value, expires_at), UPDATE (key, value, expires_at) ON p TO regress_pgcache_user;
SET ROLE regress_pgcache_user;
SELECT s, e.state FROM unnest(ARRAY['cache_get(''k'', ''p'')', 'cache_set(''k'', ''v'', cache => ''p'')']) AS s, error_of('SELECT ' || s) AS e;
RESET ROLE;
REVOKE ALL (key, value, expires_at) ON p FROM regress_pgcache_user;

-- A view calls functions as its reader, a SECURITY DEFINER function as its owner. A REVOKE takes effect at once.
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

-- The triggers on a cache are its owner's code: a role that sweeps all caches does not run them with its own rights,
-- neither at once nor at the commit.
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
-- A caller who names the cache accepts its triggers, as with any DELETE.
SET ROLE regress_pgcache_owner;
SELECT cache_expire('p');
RESET ROLE;

DROP VIEW p_view;
DROP FUNCTION p_definer, may;
DROP TABLE p, p_other;
DROP FUNCTION p_note;
DROP ROLE regress_pgcache_user, regress_pgcache_owner;
