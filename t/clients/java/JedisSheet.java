import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.util.JedisURIHelper;

/** Jedis, in both versions of the protocol. */
public class JedisSheet {
    static final URI URL = URI.create(System.getenv("REDIS_URL"));

    public static void main(String[] arguments) throws Exception {
        for (RedisProtocol protocol : new RedisProtocol[] {RedisProtocol.RESP2, RedisProtocol.RESP3}) {
            say("protocol", protocol);
            try (Jedis jedis = connect(protocol); Jedis other = connect(protocol)) {
                sheet(jedis, other);
            }
        }
    }

    static Jedis connect(RedisProtocol protocol) {
        var config = DefaultJedisClientConfig.builder().protocol(protocol).database(JedisURIHelper.getDBIndex(URL))
            .user(JedisURIHelper.getUser(URL)).password(JedisURIHelper.getPassword(URL)).build();
        return new Jedis(new HostAndPort(URL.getHost(), URL.getPort()), config);
    }

    static void say(String what, Object... values) {
        System.out.println(what + " " + Arrays.deepToString(values));
    }

    static void sheet(Jedis r, Jedis other) throws Exception {
        say("set", r.set("tea", "hot", SetParams.setParams().ex(60)), r.set("tea", "x", SetParams.setParams().nx()), r.setnx("tea", "x"));
        say("get", r.get("tea"), r.get("nothing"), r.getrange("tea", 0, 1));
        r.set("bytes".getBytes(), new byte[] {0, -1});
        say("bytes", Arrays.toString(r.get("bytes".getBytes())));
        long left = r.ttl("tea");
        say("ttl", 0 < left && left <= 60, r.ttl("nothing"), r.persist("tea"), r.ttl("tea"));
        say("incr", r.incr("n"), r.incrBy("n", 41), r.decr("n"), r.incrByFloat("f", 1.5));
        say("many", r.mset("a", "1", "b", "2"), r.mget("a", "b", "c"), r.exists("a", "c"), r.del("a", "c"));
        var keys = new TreeSet<String>();
        var cursor = ScanParams.SCAN_POINTER_START;
        do {
            var page = r.scan(cursor, new ScanParams().match("*").count(2));
            keys.addAll(page.getResult());
            cursor = page.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        say("scan", keys, r.dbSize());
        try (var pipe = r.pipelined()) {
            pipe.set("p", "1");
            pipe.get("p");
            pipe.incr("p");
            say("pipeline", pipe.syncAndReturnAll());
        }
        try (var tx = r.multi()) {
            tx.incr("n");
            tx.get("n");
            say("multi", tx.exec());
        }
        r.watch("n");
        other.incr("n");
        try (var tx = r.multi()) {
            tx.set("n", "0");
            say("watch", tx.exec());
        }
        try {
            r.incr("tea");
        } catch (JedisDataException error) {
            say("error", error.getMessage());
        }
        var heard = new CompletableFuture<String>();
        var ready = new CompletableFuture<Void>();
        var listener = new JedisPubSub() {
            @Override public void onSubscribe(String channel, int count) {
                ready.complete(null);
            }

            @Override public void onMessage(String channel, String message) {
                heard.complete(channel + " " + message);
                unsubscribe();
            }
        };
        var thread = new Thread(() -> other.subscribe(listener, "jedis"));
        thread.start();
        ready.get(10, TimeUnit.SECONDS);
        say("publish", r.publish("jedis", "hello"));
        say("pubsub", heard.get(10, TimeUnit.SECONDS));
        thread.join();
        say("clear", r.flushDB(), r.dbSize());
    }
}
