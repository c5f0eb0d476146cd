-- The settings: unit, context, range, default, and whether a session may change them.
SELECT name, unit, context, vartype, min_val, max_val, boot_val FROM pg_settings WHERE name LIKE 'pgcache.%' ORDER BY name COLLATE "C";
SELECT name, short_desc, extra_desc FROM pg_settings WHERE name LIKE 'pgcache.%' ORDER BY name COLLATE "C";

SET pgcache.hot_tier = off;
SHOW pgcache.hot_tier;
RESET pgcache.hot_tier;
SHOW pgcache.hot_tier;
\set VERBOSITY sqlstate
SET pgcache.hot_tier = 7;
SET pgcache.hot_size = '1GB';
SET pgcache.hot_entry_size = 100;
SET pgcache.hot_max_value = '1GB';
SET pgcache.no_such_setting = 1;
