package org.pgcache.spring;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;
import static org.junit.Assume.assumeTrue;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.Statement;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.Before;
import org.junit.Test;
import org.springframework.cache.Cache;
import org.springframework.cache.annotation.CacheEvict;
import org.springframework.cache.annotation.Cacheable;
import org.springframework.cache.annotation.EnableCaching;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** Tests what Spring's own tests do not cover. */
public class OwnTests {
    private final Cache cache = Server.caches().getCache("own");

    @Before
    public void clear() {
        cache.clear();
    }

    @Test
    public void anyBytesComeBack() {
        byte[] bytes = new byte[256];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) i;
        }
        cache.put("bytes", bytes);
        assertArrayEquals(bytes, cache.get("bytes", byte[].class));
    }

    @Test
    public void whatLooksEncodedComesBack() {
        Cache texts = Server.caches().serializer(OwnTests::write, OwnTests::read).getCache("own");
        texts.put("marked", "base64:dGVh");
        assertEquals("base64:dGVh", texts.get("marked").get());
    }

    @Test
    public void whatIsTextIsStoredAsItIs() throws Exception {
        Server.caches().serializer(OwnTests::write, OwnTests::read).getCache("own").put("text", "t\u00e4a");
        try (Connection connection = Server.DATA_SOURCE.getConnection();
                PreparedStatement statement = connection.prepareStatement("SELECT cache_get(?, ?::regclass)")) {
            statement.setString(1, "own::text");
            statement.setString(2, System.getenv("STORE_CACHE"));
            ResultSet row = statement.executeQuery();
            assertTrue(row.next());
            assertEquals("t\u00e4a", row.getString(1));
        }
    }

    private static void write(Object value, OutputStream out) throws IOException {
        out.write(value.toString().getBytes(StandardCharsets.UTF_8));
    }

    private static Object read(InputStream in) throws IOException {
        return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    }

    @Test
    public void aCacheOfJsonIsRefusedInASentence() throws Exception {
        try (Connection connection = Server.DATA_SOURCE.getConnection(); Statement statement = connection.createStatement()) {
            statement.execute("SELECT cache_create('of_json', value_type => 'jsonb', if_not_exists => true)");
        }
        IllegalStateException error = assertThrows(IllegalStateException.class,
            () -> new PgcacheCacheManager(Server.DATA_SOURCE, "of_json").getCache("own").put("key", 1));
        assertEquals("pgcache: of_json is a cache of jsonb: these values need one of bytea or text", error.getMessage());
    }

    @Test
    public void cachesDoNotMeet() {
        Cache other = Server.caches().getCache("own2");
        other.put("key", 2);
        cache.put("key", 1);
        assertEquals(2, other.get("key").get());
        assertTrue(cache.invalidate());
        assertEquals(2, other.get("key").get());
        assertFalse(cache.evictIfPresent("key"));
        assertTrue(other.evictIfPresent("key"));
    }

    @Test
    public void aTtlOfItsOwn() throws Exception {
        Cache brief = Server.caches().ttl("brief", Duration.ofMillis(200)).getCache("brief");
        brief.put("key", 1);
        cache.put("key", 1);
        Thread.sleep(300);
        assertNull(brief.get("key"));
        assertEquals(1, cache.get("key").get());
    }

    @Test
    public void whatIsEvictedWhileItIsLoadedIsNotStored() {
        assertEquals("old", cache.get("key", () -> {
            cache.evict("key");
            return "old";
        }));
        assertNull(cache.get("key"));
    }

    @Test
    public void anErrorOfALoaderGivesTheLeaseBack() {
        long from = System.nanoTime();
        try {
            cache.get("fails", () -> {
                throw new IllegalStateException();
            });
        } catch (Cache.ValueRetrievalException expected) {
            assertEquals("value", cache.get("fails", () -> "value"));
        }
        assertTrue(System.nanoTime() - from < 3_000_000_000L);
    }

    @Test
    public void withoutLeases() {
        Cache plain = Server.caches().wait(Duration.ZERO).getCache("own");
        assertEquals("value", plain.get("plain", () -> "value"));
        assertEquals("value", plain.get("plain", () -> "other"));
        assertNull(plain.get("null", () -> null));
        assertNull(plain.get("null", () -> "other"));
    }

    @Configuration
    @EnableCaching
    public static class Application {
        @Bean
        PgcacheCacheManager cacheManager() {
            return Server.caches();
        }

        @Bean
        Reports reports() {
            return new Reports();
        }
    }

    public static class Reports {
        final AtomicInteger made = new AtomicInteger();

        @Cacheable(cacheNames = "reports", sync = true)
        public int report(String name) {
            return made.incrementAndGet();
        }

        @CacheEvict("reports")
        public void changed(String name) {}
    }

    @Test
    public void annotations() {
        try (AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext(Application.class)) {
            Reports reports = context.getBean(Reports.class);
            reports.changed("a");
            assertEquals(1, reports.report("a"));
            assertEquals(1, reports.report("a"));
            reports.changed("a");
            assertEquals(2, reports.report("a"));
        }
    }

    /** Runs separately. All idle connections of the pool are lost at once. */
    @Test
    public void aRestartOfTheServer() throws Exception {
        assumeTrue(System.getenv("STORE_RESTART") != null);
        fillThePool();
        assertEquals(0, new ProcessBuilder("bash", "-euc", "restart_server").inheritIO().start().waitFor());
        cache.put("key", 2);
        assertEquals(2, cache.get("key").get());
        fillThePool();
        try (Connection connection = Server.DATA_SOURCE.getConnection(); Statement statement = connection.createStatement()) {
            statement.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()");
            assertEquals(2, cache.get("key").get()); // within the block, so that the pool cannot lend the live connection
        }
    }

    private void fillThePool() throws Exception {
        Connection[] all = new Connection[Server.DATA_SOURCE.getMaximumPoolSize()];
        for (int i = 0; i < all.length; i++) {
            all[i] = Server.DATA_SOURCE.getConnection();
        }
        for (Connection connection : all) {
            connection.close();
        }
    }
}
