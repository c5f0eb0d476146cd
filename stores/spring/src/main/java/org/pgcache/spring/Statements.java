package org.pgcache.spring;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Types;
import java.time.Duration;
import java.util.concurrent.locks.LockSupport;
import javax.sql.DataSource;

/** The statements of a cache. A statement that may run twice runs again if its connection was lost. */
class Statements {
    private static final String TTL = "coalesce(make_interval(secs => ?), cache_forever())";

    /** How long a statement that may run twice is retried. The pool's other connections may be lost, too. */
    private static final Duration AGAIN = Duration.ofSeconds(2);

    private final DataSource dataSource;
    private final String cache;
    private final Values values;
    private Boolean ofText;

    /**
     * {@code stored}: a value, NullValue.INSTANCE, or null if there is no entry; {@code number}: the lease, or
     * null.
     */
    record Lease(Object stored, Long number) {}

    private interface Read<T> {
        T from(ResultSet row) throws SQLException;
    }

    Statements(DataSource dataSource, String cache, Values values) {
        this.dataSource = dataSource;
        this.cache = cache;
        this.values = values;
    }

    DataSource dataSource() {
        return dataSource;
    }

    Object lookup(String key) {
        return twice("SELECT found, value FROM cache_lookup_bytes(?, ?::regclass)", row -> row.getBoolean(1) ? values.loaded(row.getBytes(2)) : null, key, cache);
    }

    void set(String key, Object value, Duration ttl) {
        twice("SELECT cache_set_bytes(?, ?, " + TTL + ", ?::regclass)", row -> null, key, bytes(value), seconds(ttl), cache);
    }

    boolean add(String key, Object value, Duration ttl) {
        return once("SELECT cache_add_bytes(?, ?, " + TTL + ", ?::regclass)", row -> row.getBoolean(1), key, bytes(value), seconds(ttl), cache);
    }

    boolean delete(String key) {
        return twice("SELECT cache_delete(?, ?::regclass)", row -> row.getBoolean(1), key, cache);
    }

    long deletePrefix(String prefix) {
        return twice("SELECT cache_delete_prefix(?, ?::regclass)", row -> row.getLong(1), prefix, cache);
    }

    /**
     * Retries while another caller loads, instead of running one statement that waits: behind a pooler such a
     * statement would occupy a session, and the caller that loads needs one to store its result.
     */
    Lease lease(String key, Duration wait) {
        String sql = "SELECT state, value, lease FROM cache_lease_bytes(?, cache => ?::regclass)";
        long until = System.nanoTime() + wait.toNanos();
        for (long pause = 5; ; pause = Math.min(2 * pause, 100)) {
            boolean last = System.nanoTime() >= until;
            Lease lease = once(sql, row -> switch (row.getString(1)) {
                case "hit", "stale" -> new Lease(values.loaded(row.getBytes(2)), null);
                case "busy" -> last ? new Lease(null, null) : null;
                default -> new Lease(null, row.getObject(3, Long.class));
            }, key, cache);
            if (lease != null) {
                return lease;
            }
            LockSupport.parkNanos(pause * 1_000_000);
        }
    }

    boolean setLeased(String key, Object value, Lease lease, Duration ttl) {
        String sql = "SELECT cache_set_leased_bytes(?, ?, ?, " + TTL + ", ?::regclass)";
        return lease.number() != null && once(sql, row -> row.getBoolean(1), key, bytes(value), lease.number(), seconds(ttl), cache);
    }

    void release(String key, Lease lease) {
        if (lease.number() != null) {
            twice("SELECT cache_release(?, ?, ?::regclass)", row -> null, key, lease.number(), cache);
        }
    }

    private byte[] bytes(Object value) {
        return values.stored(value, this::isOfText);
    }

    /** Reads the type of the cache, once, for the first value that is not text. */
    private boolean isOfText() {
        if (ofText == null) {
            String type = twice("SELECT value_type FROM pgcache.cache_settings(?::regclass)", row -> row.getString(1), cache);
            if (!"bytea".equals(type) && !"text".equals(type)) {
                throw new IllegalStateException("pgcache: " + cache + " is a cache of " + type + ": these values need one of bytea or text");
            }
            ofText = "text".equals(type);
        }
        return ofText;
    }

    private static Double seconds(Duration duration) {
        return duration == null ? null : duration.toNanos() / 1e9;
    }

    /**
     * Each attempt removes a lost connection from the pool. If the pool has no connection to give, that is an
     * error at once, because the pool itself has waited.
     */
    private <T> T twice(String sql, Read<T> read, Object... values) {
        for (long until = 0; ; LockSupport.parkNanos(1_000_000)) {
            try (Connection connection = dataSource.getConnection()) {
                try {
                    return run(connection, sql, read, values);
                } catch (SQLException error) {
                    until = until == 0 ? System.nanoTime() + AGAIN.toNanos() : until;
                    if (!isLost(error) || System.nanoTime() > until) {
                        throw error;
                    }
                }
            } catch (SQLException error) {
                throw failed(error);
            }
        }
    }

    private <T> T once(String sql, Read<T> read, Object... values) {
        try (Connection connection = dataSource.getConnection()) {
            return run(connection, sql, read, values);
        } catch (SQLException error) {
            throw failed(error);
        }
    }

    private static <T> T run(Connection connection, String sql, Read<T> read, Object... values) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) {
                if (values[i] == null) {
                    statement.setNull(i + 1, Types.OTHER); // the server knows the type
                } else {
                    statement.setObject(i + 1, values[i]);
                }
            }
            try (ResultSet row = statement.executeQuery()) {
                row.next();
                return read.from(row);
            }
        }
    }

    private static boolean isLost(SQLException error) {
        return error.getSQLState() != null && error.getSQLState().matches("08...|57P0[123]");
    }

    private static RuntimeException failed(SQLException error) {
        return new IllegalStateException("pgcache: " + error.getMessage(), error);
    }
}
