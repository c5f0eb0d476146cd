"""A client for a cache of pgcache: bytes under keys, with a ttl, in Postgres.

`Cache` has the calls and `Sessions` the connections. The stores for frameworks (`pgcache.dogpile`,
`pgcache.cachelib`, `pgcache.flask`) add what their framework requires, and no SQL.
"""

import atexit
import os
import select
import time
from collections import deque
from contextlib import suppress
from functools import cache

import psycopg
from psycopg import pq, sql

FOREVER = "1000000 years"
LEASE_SLICE = 0.2


def seconds(number):
    """Returns a ttl of this many seconds, as text: the days of a timedelta would become days of Postgres, which have
    23 or 25 hours when summer time begins or ends. More than some thousand years mean for ever, because the range
    of intervals is limited."""
    return f"{number:f} seconds" if number < 1e11 else FOREVER


class Sessions:
    """Postgres sessions in autocommit mode, each lent to one caller at a time, in any thread. `connect` opens a
    session. Up to `keep` idle sessions are kept, and the most recently used one is lent first."""

    def __init__(self, connect, keep=16):
        self._connect, self._keep = connect, keep
        self._idle, self._process = deque(), os.getpid()
        atexit.register(self.close)

    @staticmethod
    def to(conninfo="", prepare_threshold=5, keep=16):
        """Connects by a libpq conninfo; calls with equal arguments share the same sessions. Behind a pooler that
        keeps no prepared statements, `prepare_threshold` must be None."""
        return _sessions_to(conninfo, prepare_threshold, keep)

    def rows(self, query, values, again):
        """Returns the query's rows. A session that broke is replaced once. The query then runs again in the new
        session only if it may run twice (`again`), because the server may already have run it."""
        session = self._take()
        try:
            return session.execute(query, values, binary=True).fetchall()
        except psycopg.OperationalError:
            if not (again and session.closed):
                raise
            self.close()  # the server that restarted has also ended the other sessions
            session = self._connect()
            return session.execute(query, values, binary=True).fetchall()
        finally:
            # An interrupted caller leaves behind a session that still waits for a result.
            ready = session.pgconn.transaction_status == pq.TransactionStatus.IDLE
            self._idle.append(session) if ready and len(self._idle) < self._keep else session.close()

    def close(self):
        """Closes the idle sessions."""
        waiting = self._waiting()
        with suppress(IndexError):
            while True:
                waiting.pop().close()

    def _take(self):
        waiting = self._waiting()
        with suppress(IndexError):
            while True:
                session = waiting.pop()
                if not _has_spoken(session):
                    return session
                session.close()
        return self._connect()

    def _waiting(self):
        if self._process != os.getpid():  # a fork: these belong to the parent, which continues to use them
            self._idle, self._process = deque(), os.getpid()
        return self._idle


@cache
def _sessions_to(conninfo, prepare_threshold, keep):
    return Sessions(lambda: psycopg.connect(conninfo, autocommit=True, prepare_threshold=prepare_threshold), keep)


def _has_spoken(session):
    """Returns whether the server has ended a session. It sends an idle session nothing but that message, so any input
    shows it. If it is noticed before a query is sent, even a query that must not run twice can use another session."""
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(session.fileno(), select.POLLIN)
    return bool(poll.poll(0))


class Cache:
    """The calls on the cache of that name, which is written as in SQL; a cache of bytea accepts all bytes. A `ttl`
    is `seconds(...)`, `FOREVER`, or None for the cache's own. A miss returns None."""

    def __init__(self, name, sessions):
        self._name = sql.Literal(name).as_string(None).strip().replace("%", "%%")
        self._sessions = sessions
        self._has_leases = True

    def _rows(self, query, *values, again=True):
        return self._sessions.rows(query + self._name + ")", values, again)

    def _one(self, query, *values, again=True):
        return self._rows(query, *values, again=again)[0][0]

    def get(self, key):
        return self._one("SELECT cache_get_bytes(%s, ", key)

    def get_many(self, keys):
        keys = list(keys)
        rows = self._rows("SELECT value FROM cache_get_many_bytes(%s::text[], ", keys) if keys else []
        return [value for value, in rows]

    def set(self, key, value, ttl=None):
        self._one("SELECT cache_set_bytes(%s, %s, %s, ", key, value, ttl)

    def set_many(self, values, ttl=None):
        if values:
            query = "SELECT cache_set_many_bytes(%s::text[], %s::bytea[], %s, "
            self._one(query, list(values), list(values.values()), ttl)

    def add(self, key, value, ttl=None):
        return self._one("SELECT cache_add_bytes(%s, %s, %s, ", key, value, ttl, again=False)

    def touch(self, key, ttl=None):
        return self._one("SELECT cache_touch(%s, %s, ", key, ttl)

    def exists(self, key):
        return self._one("SELECT cache_exists(%s, ", key)

    def incr(self, key, delta=1, ttl=None):
        """Adds to a counter, and creates it with `ttl` if it does not exist."""
        return self._one("SELECT cache_incr(%s, %s, %s, ", key, delta, ttl, again=False)

    def incr_existing(self, key, delta=1):
        return self._one("SELECT cache_incr_existing(%s, %s, ", key, delta, again=False)

    def delete(self, key):
        return self._one("SELECT cache_delete(%s, ", key)

    def delete_if(self, key, expected):
        return self._one("SELECT cache_delete_if_bytes(%s, %s, ", key, expected, again=False)

    def delete_many(self, keys):
        keys = list(keys)
        return self._one("SELECT cache_delete_many(%s::text[], ", keys) if keys else 0

    def delete_prefix(self, prefix):
        return self._one("SELECT cache_delete_prefix(%s, ", prefix)

    def clear(self):
        self._one("SELECT cache_clear(")

    def fetch(self, key, make, ttl=None, wait=10):
        """Returns the value, or the result of `make`. Of all callers that miss the key, one runs `make`, under a
        lease. The others wait for its result, up to this many seconds, or take the stale value if the cache has a
        grace."""
        value, state, lease = self._lease(key, wait)
        if state in ("hit", "stale"):
            return value
        try:
            value = make()
        except BaseException:
            if lease is not None:
                with suppress(psycopg.Error):
                    self._one("SELECT cache_release(%s, %s, ", key, lease)
            raise
        if lease is not None:
            self._one("SELECT cache_set_leased_bytes(%s, %s, %s, %s, ", key, value, lease, ttl)
        elif not self._has_leases:
            self.add(key, value, ttl)
        return value

    def _lease(self, key, wait):
        """Waits in short slices, because a wait in the server occupies a session, and behind a pooler the holder of
        the lease needs one to store its result."""
        until = time.monotonic() + wait
        while self._has_leases:
            left = until - time.monotonic()
            part = seconds(max(0, min(left, LEASE_SLICE)))
            try:
                found = self._rows("SELECT value, state, lease FROM cache_lease_bytes(%s, %s, ", key, part)[0]
            except psycopg.errors.ObjectNotInPrerequisiteState:
                self._has_leases = False  # they need shared_preload_libraries
                break
            if found[1] != "busy" or left <= 0:
                return found
        value = self.get(key)
        return value, "win" if value is None else "hit", None
