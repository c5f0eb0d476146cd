import com.sun.management.OperatingSystemMXBean;
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.pgcache.spring.PgcacheCacheManager;
import org.springframework.cache.Cache;
import org.springframework.cache.CacheManager;
import org.springframework.data.redis.cache.RedisCacheConfiguration;
import org.springframework.data.redis.cache.RedisCacheManager;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

/**
 * Bench STORE CALL REQUESTS: waits for a line on standard input, makes the requests, and prints requests a second
 * and the microseconds of processor time of each. stores/bench/run.py starts it.
 */
public class Bench {
    // The number of calls after which the compiler has compiled the measured code.
    private static final int WARM = 20_000;

    public static void main(String[] arguments) throws Exception {
        String over = arguments[0].split("/")[1];
        Cache cache = (over.equals("Redis") ? redis() : pgcache(over)).getCache("pages");
        Object value = Map.of("title", "tea", "body", "x".repeat(500), "tags", new ArrayList<>(List.of("hot", "green")));
        Runnable[] pages = new Runnable[500];
        for (int page = 0; page < pages.length; page++) {
            String key = "page" + page;
            pages[page] = arguments[1].equals("set") ? () -> cache.put(key, value) : () -> cache.get(key);
        }
        cache.put("page0", value);
        run(pages, WARM);
        System.out.println("ready");
        System.in.read();
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        int requests = Integer.parseInt(arguments[2]);
        long from = System.nanoTime();
        long spent = system.getProcessCpuTime();
        run(pages, requests);
        double seconds = (System.nanoTime() - from) / 1e9;
        System.out.println(requests / seconds + " " + (system.getProcessCpuTime() - spent) / 1e3 / requests);
        System.in.read(); // keeps the connection open until run.py has read the server's processor time
        System.exit(0);
    }

    private static void run(Runnable[] pages, int requests) {
        for (int request = 0; request < requests; request++) {
            pages[request % pages.length].run();
        }
    }

    private static CacheManager redis() {
        String[] door = System.getenv("STORE_DOOR").split(":");
        LettuceConnectionFactory connections = new LettuceConnectionFactory(door[0], Integer.parseInt(door[1]));
        connections.afterPropertiesSet();
        connections.start();
        return RedisCacheManager.builder(connections).cacheDefaults(RedisCacheConfiguration.defaultCacheConfig().entryTtl(Duration.ofMinutes(5))).build();
    }

    private static CacheManager pgcache(String cache) {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl("jdbc:postgresql://127.0.0.1:" + System.getenv("PGPORT") + "/postgres?user=" + System.getenv("PGUSER"));
        config.setMaximumPoolSize(2);
        return new PgcacheCacheManager(new HikariDataSource(config), cache).ttl(Duration.ofMinutes(5));
    }
}
