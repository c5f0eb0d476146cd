-- From pgcache 0.4.0 to 0.5.0.

\echo Use "ALTER EXTENSION pgcache UPDATE TO '0.5.0'" to load this file. \quit
