"""A plugin of pytest: where Flask-Caching's tests ask for SimpleCache they get the store. Each of those is empty at first and
has its entries for itself, hence the prefix. Left out are tests with a clock that they advance, since deadlines go by the
server's, and those of a Redis."""

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
