-- From pgcache 0.2.0 to 0.3.0: expiry by a worker, one refresh at a time, dependencies, notifications.

\echo Use "ALTER EXTENSION pgcache UPDATE TO '0.3.0'" to load this file. \quit
