import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;

import org.springframework.cache.annotation.CacheEvict;
import org.springframework.cache.annotation.Cacheable;
import org.springframework.cache.annotation.EnableCaching;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.io.FileSystemResource;
import org.springframework.core.io.support.PropertiesLoaderUtils;
import org.springframework.data.redis.cache.BatchStrategies;
import org.springframework.data.redis.cache.RedisCacheConfiguration;
import org.springframework.data.redis.cache.RedisCacheManager;
import org.springframework.data.redis.cache.RedisCacheWriter;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.ScanOptions;
import org.springframework.data.redis.core.StringRedisTemplate;

/** Spring's cache manager over Lettuce, with the properties that the page has; Spring Boot makes the same beans of them. */
@Configuration
@EnableCaching
public class SpringCache {
    public static void main(String[] arguments) {
        try (var context = new AnnotationConfigApplicationContext(SpringCache.class)) {
            var shop = context.getBean(Shop.class);
            say("cacheable", shop.price("tea"), shop.price("tea"), shop.calls());
            shop.changed("tea");
            say("evicted", shop.price("tea"), shop.calls());

            var cache = context.getBean(RedisCacheManager.class).getCache("other");
            cache.put("object", List.of(1, 2));
            say("get", cache.get("object").get(), cache.get("nothing"));
            say("putIfAbsent", cache.putIfAbsent("object", 1).get(), cache.putIfAbsent("new", 1), cache.get("made", () -> "once"));
            say("evict", cache.evictIfPresent("new"), cache.evictIfPresent("new"));
            cache.put("null", null);
            say("null", cache.get("null").get());

            var redis = context.getBean(StringRedisTemplate.class);
            say("ttl", redis.getExpire("other::object") > 0, redis.hasKey("other::object"));
            var names = redis.scan(ScanOptions.scanOptions().match("other::*").count(2).build()).stream().sorted().toList();
            say("scan", names);
            cache.clear();
            say("clear", cache.get("object"), redis.keys("other::*"));
            var values = redis.opsForValue();
            say("values", values.setIfAbsent("k", "v", Duration.ofSeconds(60)), values.setIfAbsent("k", "w"), values.increment("n", 42), values.multiGet(List.of("k", "x")));
            say("pipeline", redis.executePipelined((org.springframework.data.redis.connection.RedisConnection c) -> {
                c.stringCommands().set("p".getBytes(), "1".getBytes());
                c.stringCommands().incr("p".getBytes());
                return null;
            }));
            redis.delete(redis.keys("*"));
            say("left", redis.keys("*"));
        }
    }

    static void say(String what, Object... values) {
        System.out.println(what + " " + java.util.Arrays.deepToString(values));
    }

    @Bean RedisConnectionFactory connections() throws java.io.IOException {
        Properties shown = PropertiesLoaderUtils.loadProperties(new FileSystemResource("application.properties"));
        return new LettuceConnectionFactory(LettuceConnectionFactory.createRedisConfiguration(shown.getProperty("spring.data.redis.url")));
    }

    @Bean RedisCacheManager caches(RedisConnectionFactory connections) {
        // Large caches are cleared by SCAN, not by KEYS.
        var writer = RedisCacheWriter.nonLockingRedisCacheWriter(connections, BatchStrategies.scan(2));
        return RedisCacheManager.builder(writer).cacheDefaults(RedisCacheConfiguration.defaultCacheConfig().entryTtl(Duration.ofMinutes(1))).build();
    }

    @Bean StringRedisTemplate template(RedisConnectionFactory connections) {
        return new StringRedisTemplate(connections);
    }

    @Bean Shop shop() {
        return new Shop();
    }

    public static class Shop {
        private final AtomicInteger calls = new AtomicInteger();

        @Cacheable("prices") public String price(String product) {
            return product + " costs " + calls.incrementAndGet();
        }

        @CacheEvict("prices") public void changed(String product) {
        }

        public int calls() {
            return calls.get();
        }
    }
}
