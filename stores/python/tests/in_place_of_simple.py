"""A pytest plugin that gives Flask-Caching's tests the store where they request SimpleCache. Each store must begin
empty and see no other entries, so it gets its own prefix. Tests that advance the clock are left out, because
deadlines follow the server's clock, and so are those of a Redis."""

import uuid

import flask_caching.backends
from pgcache.flask import PgCache
from ways import WAY, WAYS


class SimpleCache(PgCache):
    @classmethod
    def factory(cls, app, config, args, kwargs):
        name, conninfo, threshold = WAYS[WAY]
        kwargs.pop("threshold", None)
        return cls(name, conninfo, key_prefix=f"{uuid.uuid4()}:", prepare_threshold=threshold, **kwargs)


flask_caching.backends.SimpleCache = SimpleCache


def pytest_collection_modifyitems(config, items):
    left_out = [item for item in items if {"clock", "redis_server"} & set(item.fixturenames)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
