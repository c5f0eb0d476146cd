package org.pgcache.spring;

import org.junit.Before;
import org.springframework.cache.AbstractCacheTests;
import org.springframework.cache.Cache;

/** Runs Spring's own tests of a cache. */
public class SpringTests extends AbstractCacheTests<Cache> {
    private final Cache cache = Server.caches().getCache(CACHE_NAME);

    @Before
    public void clear() {
        cache.clear();
    }

    @Override
    protected Cache getCache() {
        return cache;
    }

    @Override
    protected Object getNativeCache() {
        return Server.DATA_SOURCE;
    }
}
