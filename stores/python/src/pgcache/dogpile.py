"""A backend for dogpile.cache in Postgres, by pgcache; its name is `pgcache`."""

import time
import uuid

from dogpile.cache.api import NO_VALUE, BytesBackend, CacheMutex

from . import FOREVER, Cache, Sessions, seconds


class Backend(BytesBackend):
    """Arguments: `cache` (required: the name of a bytea cache in SQL), `conninfo` (of libpq), `ttl` in seconds
    (default: the cache's own; it must be longer than the region's expiration_time, or there is no stale value to
    serve), `distributed_lock` (True), `lock_timeout` in seconds (60; None: until it is released), `lock_sleep`,
    `lock_prefix`, `prepare_threshold` (5; None behind a pooler)."""

    def __init__(self, arguments):
        sessions = Sessions.to(arguments.get("conninfo", ""), arguments.get("prepare_threshold", 5))
        self.cache = Cache(arguments["cache"], sessions)
        ttl = arguments.get("ttl")
        self.ttl = None if ttl is None else seconds(ttl)
        self.distributed_lock = arguments.get("distributed_lock", True)
        self.lock_timeout = arguments.get("lock_timeout", 60)
        self.lock_sleep = arguments.get("lock_sleep", 0.1)
        self.lock_prefix = arguments.get("lock_prefix", "_lock")

    def has_lock_timeout(self):
        return self.distributed_lock and self.lock_timeout is not None

    def get_mutex(self, key):
        return Mutex(self, self.lock_prefix + key) if self.distributed_lock else None

    def get_serialized(self, key):
        return _found(self.cache.get(key))

    def get_serialized_multi(self, keys):
        return [_found(value) for value in self.cache.get_many(keys)]

    def set_serialized(self, key, value):
        self.cache.set(key, value, self.ttl)

    def set_serialized_multi(self, mapping):
        self.cache.set_many(mapping, self.ttl)

    def delete(self, key):
        self.cache.delete(key)

    def delete_multi(self, keys):
        self.cache.delete_many(keys)


class Mutex(CacheMutex):
    """A lock: an entry whose value only its owner knows. No other caller can release it, not even a former owner
    whose lock has timed out."""

    def __init__(self, backend, key):
        self._backend, self._key, self._owner = backend, key, None

    def acquire(self, wait=True):
        timeout = self._backend.lock_timeout
        ttl = FOREVER if timeout is None else seconds(timeout)
        # The value is also valid in a cache of text or JSON.
        owner = b'"%s"' % uuid.uuid4().hex.encode()
        while not self._backend.cache.add(self._key, owner, ttl):
            if not wait:
                return False
            time.sleep(self._backend.lock_sleep)
        self._owner = owner
        return True

    def release(self):
        owner, self._owner = self._owner, None
        if owner:
            self._backend.cache.delete_if(self._key, owner)

    def locked(self):
        return self._backend.cache.exists(self._key)


def _found(value):
    return NO_VALUE if value is None else value
