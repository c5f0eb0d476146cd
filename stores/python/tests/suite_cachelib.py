"""Runs cachelib's own tests of caches on the store."""

import clear
import common
import delete_many_with_prefix
import has
import pytest
import serializer
from cachelib.serializers import JSONSerializer
from pgcache.cachelib import PgCache
from ways import TEXT, WAY, WAYS


class JsonCache(PgCache):
    serializer = JSONSerializer()


@pytest.fixture(params=[None, "test-prefix:"], ids=["no_prefix", "prefix"])
def prefix(request):
    return request.param


@pytest.fixture(autouse=True)
def cache_factory(request, prefix):
    cache, conninfo, threshold = WAYS[WAY]

    def factory(self, **options):
        options = {"key_prefix": prefix, "prepare_threshold": threshold} | options
        made = PgCache(cache, conninfo, **options)
        made.clear()
        return made

    request.cls.cache_factory = factory


class TestCache(
    common.CommonTests,
    clear.ClearTests,
    has.HasTests,
    delete_many_with_prefix.DeleteManyWithPrefixTests,
    serializer.SerializerTests,
):
    def test_a_prefix_may_be_called(self):
        cache = self.cache_factory(key_prefix=lambda: "called:")
        assert cache.set("a", 1) and cache.get("a") == 1

    def test_clear_keeps_what_has_another_prefix(self):
        one, other = self.cache_factory(key_prefix="one:"), self.cache_factory(key_prefix="other:")
        one.set("a", 1)
        other.clear()
        assert one.get("a") == 1

    def test_json_in_a_cache_of_text(self):
        _, conninfo, threshold = WAYS[WAY]
        cache = JsonCache(TEXT, conninfo, prepare_threshold=threshold)
        cache.clear()
        assert cache.set("a", {"b": [1, None]}) and cache.get("a") == {"b": [1, None]}
        assert cache.inc("n", 2) == 2 and cache.get("n") == 2

    def test_a_counter_has_the_default_timeout(self):
        import time

        cache = self.cache_factory(default_timeout=1)
        assert cache.inc("n") == 1
        time.sleep(1.2)
        assert cache.get("n") is None
