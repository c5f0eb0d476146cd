"""Runs Flask-Caching's own tests of backends on the store."""

import time

import flask
import flask_caching
import pytest
from pgcache.flask import PgCache
from test_backend_cache import GenericCacheTests
from ways import WAY, WAYS


class TestStore(GenericCacheTests):
    _can_use_fast_sleep = False

    @pytest.fixture
    def sleep(self):
        return time.sleep

    @pytest.fixture
    def make_cache(self):
        name, conninfo, threshold = WAYS[WAY]
        config = {
            "CACHE_TYPE": "pgcache.flask.PgCache",
            "CACHE_PGCACHE_NAME": name,
            "CACHE_PGCACHE_CONNINFO": conninfo,
            "CACHE_KEY_PREFIX": "flask:",
            "CACHE_OPTIONS": {"prepare_threshold": threshold},
        }
        made = flask_caching.Cache(flask.Flask("tests"), config=config).cache
        assert type(made) is PgCache
        made.clear()
        yield lambda: made
        made.clear()


# The tests of other backends, which the import brings along, are left out.
del GenericCacheTests
