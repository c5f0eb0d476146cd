"""The cache backend. LOCATION is the cache's name in SQL; README.md lists the OPTIONS."""

import pickle

from asgiref.sync import sync_to_async
from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from pgcache import FOREVER, Cache, seconds
from psycopg import errors

from .sessions import sessions_of

INTEGERS = range(-(2**63), 2**63)


class Pickle:
    """Stores integers that cache_incr can count as integers, and pickles all other values."""

    def dumps(self, value):
        if type(value) is int and value in INTEGERS:
            return b"%d" % value
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def loads(self, value):
        return pickle.loads(value) if value.startswith(b"\x80") else int(value)


class PgCache(BaseCache):
    def __init__(self, location, params):
        super().__init__(params)
        if not location:
            raise ImproperlyConfigured("LOCATION names the cache in SQL; it must be one of bytea.")
        self._options = params.get("OPTIONS", {})
        self._caches = {}
        self._location = location
        serializer = self._options.get("serializer", Pickle)
        serializer = import_string(serializer) if isinstance(serializer, str) else serializer
        self._serializer = serializer() if callable(serializer) else serializer

    @property
    def _cache(self):
        """Returns the cache over the current sessions, because tests give an alias of DATABASES another database."""
        sessions = sessions_of(self._options)
        if sessions not in self._caches:
            self._caches = {sessions: Cache(self._location, sessions)}
        return self._caches[sessions]

    def get_backend_timeout(self, timeout=DEFAULT_TIMEOUT):
        """Returns a ttl, or None if the entry would expire at once."""
        timeout = self.default_timeout if timeout == DEFAULT_TIMEOUT else timeout
        if timeout is None:
            return FOREVER
        return seconds(timeout) if timeout > 0 else None

    def add(self, key, value, timeout=DEFAULT_TIMEOUT, version=None):
        key = self.make_and_validate_key(key, version=version)
        value, ttl = self._serializer.dumps(value), self.get_backend_timeout(timeout)
        return self._cache.add(key, value, ttl) if ttl else not self._cache.exists(key)

    def get(self, key, default=None, version=None):
        value = self._cache.get(self.make_and_validate_key(key, version=version))
        return default if value is None else self._serializer.loads(value)

    def set(self, key, value, timeout=DEFAULT_TIMEOUT, version=None):
        key = self.make_and_validate_key(key, version=version)
        value, ttl = self._serializer.dumps(value), self.get_backend_timeout(timeout)
        self._cache.set(key, value, ttl) if ttl else self._cache.delete(key)

    def touch(self, key, timeout=DEFAULT_TIMEOUT, version=None):
        key, ttl = self.make_and_validate_key(key, version=version), self.get_backend_timeout(timeout)
        return self._cache.touch(key, ttl) if ttl else self._cache.delete(key)

    def delete(self, key, version=None):
        return self._cache.delete(self.make_and_validate_key(key, version=version))

    def get_many(self, keys, version=None):
        names = {self.make_and_validate_key(key, version=version): key for key in keys}
        found = zip(names.values(), self._cache.get_many(names))
        return {key: self._serializer.loads(value) for key, value in found if value is not None}

    def set_many(self, data, timeout=DEFAULT_TIMEOUT, version=None):
        names = {self.make_and_validate_key(key, version=version): value for key, value in data.items()}
        values = {key: self._serializer.dumps(value) for key, value in names.items()}
        if ttl := self.get_backend_timeout(timeout):
            self._cache.set_many(values, ttl)
        else:
            self._cache.delete_many(values)
        return []

    def delete_many(self, keys, version=None):
        self._cache.delete_many([self.make_and_validate_key(key, version=version) for key in keys])

    def has_key(self, key, version=None):
        return self._cache.exists(self.make_and_validate_key(key, version=version))

    def incr(self, key, delta=1, version=None):
        try:
            value = self._cache.incr_existing(self.make_and_validate_key(key, version=version), delta)
        except (errors.InvalidTextRepresentation, errors.CharacterNotInRepertoire):
            raise TypeError("Value of key '%s' is not an integer" % key) from None
        if value is None:
            raise ValueError("Key '%s' not found" % key)
        return value

    def get_or_set(self, key, default, timeout=DEFAULT_TIMEOUT, version=None):
        """Calls `default` in one of all callers that miss the key, in any process; the others wait for its value."""
        name, ttl = self.make_and_validate_key(key, version=version), self.get_backend_timeout(timeout)
        if ttl is None:
            return super().get_or_set(key, default, timeout, version)

        def make():
            return self._serializer.dumps(default() if callable(default) else default)

        value = self._cache.fetch(name, make, ttl, self._options.get("wait", 10))
        return None if value is None else self._serializer.loads(value)

    def clear(self):
        """Clears the cache. In a transaction of the application it does not take the lock of TRUNCATE, for which all
        other sessions would have to wait until the transaction ends."""
        if self._options.get("transaction"):
            self._cache.delete_prefix("")
        else:
            self._cache.clear()


def _in_thread(name):
    async def method(self, *args, **kwargs):
        return await sync_to_async(getattr(self, name), thread_sensitive=True)(*args, **kwargs)

    return method


# Django's own versions of these make one call for each key, or several for one.
for _name in "get_many", "set_many", "delete_many", "has_key", "incr", "incr_version", "get_or_set":
    setattr(PgCache, "a" + _name, _in_thread(_name))
