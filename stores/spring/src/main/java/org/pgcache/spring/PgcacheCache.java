package org.pgcache.spring;

import java.time.Duration;
import java.util.concurrent.Callable;
import org.pgcache.spring.Statements.Lease;
import org.springframework.cache.support.AbstractValueAdaptingCache;
import org.springframework.cache.support.SimpleValueWrapper;

/**
 * One of Spring's caches. Null is stored as an entry without a value (a negative entry). Keys are distinguished by
 * toString().
 */
class PgcacheCache extends AbstractValueAdaptingCache {
    private final String name;
    private final Statements statements;
    private final Duration ttl;
    private final Duration wait;

    PgcacheCache(String name, Statements statements, Duration ttl, Duration wait) {
        super(true);
        this.name = name;
        this.statements = statements;
        this.ttl = ttl;
        this.wait = wait;
    }

    @Override
    public String getName() {
        return name;
    }

    @Override
    public Object getNativeCache() {
        return statements.dataSource();
    }

    @Override
    protected Object lookup(Object key) {
        return statements.lookup(named(key));
    }

    /**
     * Of all processes that miss, one loads the value; the others wait and get the value that it has stored. A
     * value that is evicted while it is being loaded is returned and not stored.
     */
    @Override
    @SuppressWarnings("unchecked")
    public <T> T get(Object key, Callable<T> loader) {
        if (wait.isZero()) {
            ValueWrapper found = get(key);
            if (found != null) {
                return (T) found.get();
            }
            T value = load(key, loader);
            put(key, value);
            return value;
        }
        Lease lease = statements.lease(named(key), wait);
        if (lease.stored() != null) {
            return (T) fromStoreValue(lease.stored());
        }
        boolean stored = false;
        try {
            T value = load(key, loader);
            stored = statements.setLeased(named(key), toStoreValue(value), lease, ttl);
            return value;
        } finally {
            if (!stored) {
                statements.release(named(key), lease);
            }
        }
    }

    @Override
    public void put(Object key, Object value) {
        statements.set(named(key), toStoreValue(value), ttl);
    }

    @Override
    public ValueWrapper putIfAbsent(Object key, Object value) {
        // The entry that prevents us from adding may no longer exist when we read it.
        while (!statements.add(named(key), toStoreValue(value), ttl)) {
            Object found = lookup(key);
            if (found != null) {
                return new SimpleValueWrapper(fromStoreValue(found));
            }
        }
        return null;
    }

    @Override
    public void evict(Object key) {
        evictIfPresent(key);
    }

    @Override
    public boolean evictIfPresent(Object key) {
        return statements.delete(named(key));
    }

    @Override
    public void clear() {
        invalidate();
    }

    @Override
    public boolean invalidate() {
        return statements.deletePrefix(named("")) > 0;
    }

    private String named(Object key) {
        return name + "::" + key;
    }

    private static <T> T load(Object key, Callable<T> loader) {
        try {
            return loader.call();
        } catch (Exception error) {
            throw new ValueRetrievalException(key, loader, error);
        }
    }
}
