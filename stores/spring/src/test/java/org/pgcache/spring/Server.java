package org.pgcache.spring;

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;

/** The server for the tests, from STORE_URL and STORE_CACHE. */
final class Server {
    static final HikariDataSource DATA_SOURCE = dataSource();

    private static HikariDataSource dataSource() {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(System.getenv("STORE_URL"));
        config.setMaximumPoolSize(12);
        return new HikariDataSource(config);
    }

    static PgcacheCacheManager caches() {
        return new PgcacheCacheManager(DATA_SOURCE, System.getenv("STORE_CACHE"));
    }
}
