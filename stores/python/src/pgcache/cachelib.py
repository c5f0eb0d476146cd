"""A backend for cachelib in Postgres, by pgcache. Flask-Caching's backend, `pgcache.flask`, is this one with Flask's
settings."""

from cachelib.base import BaseCache
from cachelib.serializers import RedisSerializer

from . import FOREVER, Cache, Sessions, seconds


class PgCache(BaseCache):
    """`cache` is the name of a bytea cache in SQL, and `conninfo` is libpq's. Behind a pooler that keeps no prepared
    statements, `prepare_threshold` must be None. A timeout of 0 means for ever."""

    # Integers stay integers, so that the server can count them; all other values are pickled.
    serializer = RedisSerializer()

    def __init__(
        self,
        cache,
        conninfo="",
        default_timeout=300,
        key_prefix="",
        ignore_delete_many_errors=True,
        prepare_threshold=5,
    ):
        super().__init__(default_timeout, ignore_delete_many_errors)
        self.key_prefix = key_prefix or ""
        self._cache = Cache(cache, Sessions.to(conninfo, prepare_threshold))

    def get(self, key):
        return self._loaded(self._cache.get(self._key(key)))

    def get_many(self, *keys):
        return [self._loaded(value) for value in self._cache.get_many(map(self._key, keys))]

    def set(self, key, value, timeout=None):
        self._cache.set(self._key(key), self.serializer.dumps(value), self._ttl(timeout))
        return True

    def set_many(self, mapping, timeout=None):
        values = {self._key(key): self.serializer.dumps(value) for key, value in mapping.items()}
        self._cache.set_many(values, self._ttl(timeout))
        return list(mapping)

    def add(self, key, value, timeout=None):
        return self._cache.add(self._key(key), self.serializer.dumps(value), self._ttl(timeout))

    def delete(self, key):
        return self._cache.delete(self._key(key))

    def delete_many(self, *keys):
        self._cache.delete_many(map(self._key, keys))
        return list(keys)

    def has(self, key):
        return self._cache.exists(self._key(key))

    def clear(self):
        """Removes the keys that begin with the prefix; without a prefix, all keys of the cache."""
        if self.key_prefix:
            self._cache.delete_prefix(self._key(""))
        else:
            self._cache.clear()
        return True

    def inc(self, key, delta=1):
        return self._cache.incr(self._key(key), delta, self._ttl(None))

    def dec(self, key, delta=1):
        return self.inc(key, -delta)

    def _key(self, key):
        prefix = self.key_prefix() if callable(self.key_prefix) else self.key_prefix
        return f"{prefix}{key}"

    def _ttl(self, timeout):
        return seconds(self._normalize_timeout(timeout)) if self._normalize_timeout(timeout) else FOREVER

    def _loaded(self, value):
        return None if value is None else self.serializer.loads(value)
