"""A backend for Flask-Caching in Postgres, by pgcache: `CACHE_TYPE = "pgcache.flask.PgCache"`."""

from flask_caching.backends.base import BaseCache

from .cachelib import PgCache as CachelibPgCache


class PgCache(CachelibPgCache, BaseCache):
    """Settings: CACHE_PGCACHE_NAME (the cache's name in SQL), CACHE_PGCACHE_CONNINFO (of libpq), CACHE_KEY_PREFIX.
    CACHE_OPTIONS also accepts the arguments of the class, such as `prepare_threshold`."""

    @classmethod
    def factory(cls, app, config, args, kwargs):
        settings = {
            "cache": config.get("CACHE_PGCACHE_NAME"),
            "conninfo": config.get("CACHE_PGCACHE_CONNINFO"),
            "key_prefix": config.get("CACHE_KEY_PREFIX"),
        }
        return cls(*args, **{name: value for name, value in settings.items() if value} | kwargs)
