-- How the functions compute a deadline from a ttl.
SET pgcache.show_expired = on; -- lets plain SQL see the stored rows
\set VERBOSITY sqlstate
SELECT cache_create('no_default'), cache_create('hour', ttl => '1 hour');

-- Returns whether the deadline of entry 'k' matches a ttl to within a minute.
CREATE FUNCTION has_ttl(cache regclass, ttl interval) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE deadline timestamptz;
BEGIN
    SELECT expires_at INTO deadline FROM cache_lookup('k', cache);
    RETURN abs(extract(epoch FROM deadline - (clock_timestamp() + ttl))) < 60;
END $$;
CREATE FUNCTION ttl_of(ttl interval) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM cache_set('k', 'v', ttl, 'no_default');
    RETURN CASE WHEN cache_ttl('k', 'no_default') IS NULL THEN 'no expiry' ELSE has_ttl('no_default', ttl)::text END;
END $$;

-- A NULL ttl means the cache's default, or no expiry if it has none; an explicit ttl overrides it.
SELECT cache_set('k', 'v', cache => 'no_default'), cache_ttl('k', 'no_default');
SELECT cache_set('k', 'v', NULL, 'hour'), has_ttl('hour', '1 hour');
SELECT cache_set('k', 'v', '5 minutes', 'hour'), has_ttl('hour', '5 minutes');
SELECT cache_set('k', 'v', cache_forever(), 'hour'), cache_ttl('k', 'hour');
SELECT expires_at FROM hour;

-- Every function that sets a deadline treats the ttl in this way.
SELECT cache_delete('k', 'hour'), cache_add('k', 'v', cache => 'hour'), has_ttl('hour', '1 hour');
SELECT cache_replace('k', 'v', '2 hours', 'hour'), has_ttl('hour', '2 hours'), cache_replace('k', 'v', cache => 'hour'), has_ttl('hour', '1 hour');
SELECT cache_cas('k', 'v', 'w', '2 hours', 'hour'), has_ttl('hour', '2 hours'), cache_cas('k', 'w', 'v', cache => 'hour'), has_ttl('hour', '1 hour');
SELECT cache_set_many('{k,l}', '{v,v}', '2 hours', 'hour'), has_ttl('hour', '2 hours'), cache_set_many('{k}', '{v}', cache => 'hour'), has_ttl('hour', '1 hour');
SELECT cache_set_many_bytes('{k}', '{v}', '2 hours', 'hour'), has_ttl('hour', '2 hours');
SELECT cache_set_json('k', '1', '3 hours', 'hour'), has_ttl('hour', '3 hours'), cache_set_bytes('k', '1', '4 hours', 'hour'), has_ttl('hour', '4 hours');
-- touch: NULL means the default, too; without a default the deadline stays.
SELECT cache_touch('k', cache => 'hour'), has_ttl('hour', '1 hour'), cache_touch('k', '2 hours', 'hour'), has_ttl('hour', '2 hours');
SELECT cache_get_touch('k', cache => 'hour'), has_ttl('hour', '1 hour'), cache_get_touch('k', '2 hours', 'hour'), has_ttl('hour', '2 hours');
SELECT cache_touch('k', cache_forever(), 'hour'), cache_ttl('k', 'hour');
SELECT cache_set('k', 'v', '3 hours', 'no_default'), cache_touch('k', cache => 'no_default'), has_ttl('no_default', '3 hours'),
       cache_get_touch('k', NULL, 'no_default'), has_ttl('no_default', '3 hours'), cache_touch('none', NULL, 'no_default');
SELECT cache_persist('k', 'no_default'), cache_touch('k', NULL, 'no_default'), cache_ttl('k', 'no_default');
-- A changed default applies only to entries that are written after the change.
SELECT cache_set('k', 'v', cache => 'hour'), cache_alter('hour', ttl => '1 day'), has_ttl('hour', '1 hour');
SELECT cache_set('k', 'v', cache => 'hour'), has_ttl('hour', '1 day');
SELECT cache_alter('hour', ttl => cache_forever()), cache_set('k', 'v', cache => 'hour'), cache_ttl('k', 'hour');

-- A ttl that is not positive raises an error, and nothing is written.
SELECT cache_set('new', 'v', '0', 'no_default');
SELECT cache_set('new', 'v', '-1 second', 'no_default');
SELECT cache_set('new', 'v', '-1 microsecond', 'no_default');
SELECT cache_set('new', 'v', '-100000000 years', 'no_default');
SELECT cache_set('new', 'v', '1 hour -120 minutes', 'no_default');
SELECT cache_set('new', 'v', '-1 day 23 hours', 'no_default');
SELECT cache_set_json('new', '1', '0', 'no_default');
SELECT cache_set_bytes('new', '1', '0', 'no_default');
SELECT cache_add('new', 'v', '0', 'no_default');
SELECT cache_replace('k', 'v', '0', 'no_default');
SELECT cache_cas('new', NULL, 'v', '0', 'no_default');
SELECT cache_incr('new', 1, '0', 'no_default');
SELECT cache_touch('k', '0', 'no_default');
SELECT cache_get_touch('k', '0', 'no_default');
SELECT cache_set_many('{new}', '{v}', '0', 'no_default');
SELECT cache_set_many_bytes('{new}', '{v}', '0', 'no_default');
SELECT cache_exists('new', 'no_default');
SELECT * FROM error_of($$SELECT cache_set('new', 'v', '0')$$);

-- A ttl below a millisecond counts as one. The lower bound proves it: a microsecond would already be over.
SELECT cache_set('k', 'v', '1 microsecond', 'no_default'), cache_set('l', 'v', '1 millisecond', 'no_default');
SELECT k.expires_at BETWEEN l.expires_at - '1 minute'::interval AND l.expires_at + '1 ms'::interval AS alike
  FROM no_default k, no_default l WHERE k.key = 'k' AND l.key = 'l';
BEGIN;
SELECT cache_set('k', 'v', '1 microsecond', 'no_default');
SELECT expires_at - now() >= '1 ms' AS a_millisecond FROM no_default WHERE key = 'k';
COMMIT;

-- Months and days follow the calendar and the time zone.
SET timezone = 'Europe/Berlin';
SELECT ttl_of('1 month'), ttl_of('6 months'), ttl_of('100 days'), ttl_of('1 year 2 months 3 days 4 hours'), ttl_of('1 month -1 day');
SET timezone = 'America/Los_Angeles';
SELECT ttl_of('1 month'), ttl_of('6 months'), ttl_of('100 days'), ttl_of('365 days'), ttl_of('8760 hours');
SET timezone = 'Australia/Lord_Howe';
SELECT ttl_of('1 month'), ttl_of('6 months'), ttl_of('100 days'), ttl_of('10 years');
RESET timezone;
-- A deadline does not depend on the reader's time zone.
SELECT cache_set('k', 'v', '1 hour', 'no_default');
SET timezone = 'Asia/Tokyo';
SELECT has_ttl('no_default', '1 hour'), cache_ttl('k', 'no_default') BETWEEN '59 min' AND '1 hour' AS hour;
RESET timezone;

-- A deadline beyond the range of timestamptz means no expiry; a distant one within the range stays a deadline.
SELECT ttl_of(cache_forever()), ttl_of('292000 years'), ttl_of('292300 years'), ttl_of('178000000 years');
SELECT ttl_of('2147483647 days'), ttl_of('2562047788 hours'), ttl_of('290000 years'), ttl_of('100000000 days');
SELECT ttl_of('178956970 years 7 months 2147483647 days 2562047788 hours');

-- Postgres 17 and later have an interval `infinity`.
SELECT current_setting('server_version_num')::int >= 170000 AS has_infinity \gset
\if :has_infinity
SELECT ttl_of('infinity') AS infinity, (SELECT state FROM error_of($$SELECT cache_set('k', 'v', '-infinity')$$)) AS minus_infinity \gset
\else
SELECT 'no expiry' AS infinity, '22023' AS minus_infinity \gset
\endif
\echo :infinity :minus_infinity

-- Plain SQL may write any deadline: infinity means no expiry, -infinity long expired.
UPDATE no_default SET expires_at = 'infinity' WHERE key = 'k';
SELECT cache_get('k', 'no_default'), cache_ttl('k', 'no_default'), cache_exists('k', 'no_default');
SELECT found, value, expires_at FROM cache_lookup('k', 'no_default');
UPDATE no_default SET expires_at = '-infinity' WHERE key = 'k';
SELECT cache_get('k', 'no_default'), cache_ttl('k', 'no_default'), cache_exists('k', 'no_default'), cache_expire('no_default') > 0 AS swept;

DROP FUNCTION ttl_of, has_ttl;
DROP TABLE no_default, hour;
