package org.pgcache.spring;

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import javax.sql.DataSource;
import org.springframework.cache.Cache;
import org.springframework.cache.CacheManager;
import org.springframework.core.serializer.Deserializer;
import org.springframework.core.serializer.Serializer;
import org.springframework.core.serializer.support.DeserializingConverter;
import org.springframework.core.serializer.support.SerializingConverter;

/**
 * Manages Spring's caches in one pgcache cache of bytea or text; the key of an entry is {@code name::key}.
 *
 * <p>Give it its own DataSource. In the application's, an error would abort the application's transaction,
 * and no other session would see an entry before that transaction commits.
 */
public class PgcacheCacheManager implements CacheManager {
    private final Map<String, Cache> caches = new ConcurrentHashMap<>();
    private final Map<String, Duration> ttls = new ConcurrentHashMap<>();
    private final DataSource dataSource;
    private final String cache;
    private Values values = new Values(new SerializingConverter(), new DeserializingConverter());
    private Duration ttl;
    private Duration wait = Duration.ofSeconds(5);

    /** @param cache the cache's name, as in SQL */
    public PgcacheCacheManager(DataSource dataSource, String cache) {
        this.dataSource = dataSource;
        this.cache = cache;
    }

    /**
     * Replaces Java's own serialization. With a serializer that produces text, the cache may be of text or JSON,
     * which SQL can read.
     */
    public PgcacheCacheManager serializer(Serializer<Object> serializer, Deserializer<Object> deserializer) {
        values = new Values(new SerializingConverter(serializer), new DeserializingConverter(deserializer));
        return this;
    }

    /** Sets how long entries live; null, the default, means for ever. */
    public PgcacheCacheManager ttl(Duration ttl) {
        this.ttl = ttl;
        return this;
    }

    /** Sets how long entries of one of Spring's caches live. */
    public PgcacheCacheManager ttl(String name, Duration ttl) {
        ttls.put(name, ttl);
        return this;
    }

    /**
     * Sets how long {@code @Cacheable(sync = true)} waits for another process that loads the same entry, before
     * this one loads it, too. With zero, for servers that do not preload pgcache, it does not wait.
     */
    public PgcacheCacheManager wait(Duration wait) {
        this.wait = wait;
        return this;
    }

    @Override
    public Cache getCache(String name) {
        return caches.computeIfAbsent(name, made ->
            new PgcacheCache(made, new Statements(dataSource, cache, values), ttls.getOrDefault(made, ttl), wait));
    }

    @Override
    public Collection<String> getCacheNames() {
        return List.copyOf(caches.keySet());
    }
}
