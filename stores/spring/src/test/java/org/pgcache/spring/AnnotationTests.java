package org.pgcache.spring;

import org.springframework.cache.annotation.EnableCaching;
import org.springframework.cache.config.AbstractCacheAnnotationTests;
import org.springframework.cache.config.AnnotatedClassCacheableService;
import org.springframework.cache.config.CacheableService;
import org.springframework.cache.config.DefaultCacheableService;
import org.springframework.cache.config.SomeCustomKeyGenerator;
import org.springframework.cache.interceptor.KeyGenerator;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Primary;

/** Runs Spring's own tests of its annotations. */
public class AnnotationTests extends AbstractCacheAnnotationTests {
    @Override
    protected ConfigurableApplicationContext getApplicationContext() {
        return new AnnotationConfigApplicationContext(Application.class);
    }

    @Configuration
    @EnableCaching
    public static class Application {
        @Bean
        @Primary
        PgcacheCacheManager cacheManager() {
            PgcacheCacheManager caches = Server.caches();
            for (String name : new String[] {"testCache", "primary", "secondary"}) {
                caches.getCache(name).clear();
            }
            return caches;
        }

        @Bean
        PgcacheCacheManager customCacheManager() {
            return Server.caches();
        }

        @Bean
        CacheableService<?> service() {
            return new DefaultCacheableService();
        }

        @Bean
        CacheableService<?> classService() {
            return new AnnotatedClassCacheableService();
        }

        @Bean
        KeyGenerator customKeyGenerator() {
            return new SomeCustomKeyGenerator();
        }
    }
}
