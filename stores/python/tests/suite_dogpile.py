"""Runs dogpile.cache's own tests of backends, serializers and mutexes on the store."""

import pytest
from dogpile.testing import fixtures
from ways import TEXT, WAY, WAYS


CACHE, CONNINFO, THRESHOLD = WAYS[WAY]
ARGUMENTS = {"cache": CACHE, "conninfo": CONNINFO, "prepare_threshold": THRESHOLD}


class TestBackend(fixtures._GenericBackendTestSuite):
    backend = "pgcache"
    config_args = {"arguments": ARGUMENTS}


class TestMutex(fixtures._GenericMutexTestSuite):
    backend = "pgcache"
    config_args = {"arguments": ARGUMENTS}


class TestBackendWithoutLockTimeout(fixtures._GenericBackendTestSuite):
    """Runs further tests that dogpile has for locks without a timeout."""

    backend = "pgcache"
    config_args = {"arguments": ARGUMENTS | {"lock_timeout": None, "lock_prefix": "_kept"}}


@pytest.mark.skipif(WAY != "memory", reason="no other than in a way with locks")
class TestBackendOfOneProcess(fixtures._GenericBackendTestSuite):
    """Runs the tests with dogpile's own mutex."""

    backend = "pgcache"
    config_args = {"arguments": ARGUMENTS | {"distributed_lock": False}}


class TestSerializer(fixtures._GenericSerializerTestSuite, fixtures._GenericBackendTestSuite):
    """Runs the tests with JSON in a cache of text."""

    backend = "pgcache"
    config_args = {"arguments": ARGUMENTS | {"cache": TEXT}}


def test_only_its_owner_releases_a_lock():
    from pgcache.dogpile import Backend

    backend = Backend(ARGUMENTS | {"lock_timeout": 0.2})
    first, second = backend.get_mutex("owned"), backend.get_mutex("owned")
    assert first.acquire() and not second.acquire(wait=False)
    assert second.acquire()
    first.release()
    assert second.locked()
    second.release()
    assert not second.locked()


def test_the_cache_must_be_named():
    from pgcache.dogpile import Backend

    with pytest.raises(KeyError):
        Backend({})
