"""Runs Django's own tests of caches and sessions on the store. `cull` and `zero_cull` require that a cache counts its
entries at each set and keeps an exact number; in pgcache the sweep enforces max_entries. These tests skip what is not
configured."""

import unittest

from cache import tests as caches
from django.conf import settings
from django.test import TestCase, override_settings
from sessions_tests import tests as sessions

STORE = settings.CACHES["default"]
IN_TRANSACTION = "transaction" in STORE["OPTIONS"]
OTHER = {"default": STORE, "other": STORE | {"KEY_PREFIX": "other", "TIMEOUT": "1"}}


@override_settings(CACHES=caches.caches_setting_for_tests(base=STORE, exclude={"cull", "zero_cull"}))
class StoreTests(caches.BaseCacheTests, TestCase):
    pass


# These tests may not query the test database.
@unittest.skipIf(IN_TRANSACTION, "the cache is in the database")
@override_settings(CACHES=OTHER)
class MiddlewareTests(caches.CacheMiddlewareTest):
    @caches.retry(retries=5, delay=0)
    def test_view_decorator(self):
        """The test must finish within a second, which a busy machine may not manage at the first attempt."""
        self.default_cache.clear()
        super().test_view_decorator()


@unittest.skipIf(IN_TRANSACTION, "the cache is in the database")
@override_settings(CACHES=OTHER)
class HeadTests(caches.CacheHEADTest):
    pass


@unittest.skipIf(IN_TRANSACTION, "the cache is in the database")
class SessionTests(sessions.CacheSessionTests):
    pass


class DatabaseSessionTests(sessions.CacheDBSessionTests):
    pass


# Classes that are imported only as base classes are not tests of this module.
def load_tests(loader, tests, pattern):
    classes = StoreTests, MiddlewareTests, HeadTests, SessionTests, DatabaseSessionTests
    return unittest.TestSuite(
        each(name) for each in classes for name in loader.getTestCaseNames(each) if not left_out(each, name)
    )


def left_out(tests, name):
    """Returns the tests that do not apply in a transaction. There each call is a query, and one test counts queries.
    Django's session store calls the cache from async code, where the connection is refused. Django's own
    DatabaseCache behaves in the same way."""
    is_other = "async" in name or "_asave_" in name or name == "test_exists_searches_cache_first"
    return tests is DatabaseSessionTests and IN_TRANSACTION and is_other
