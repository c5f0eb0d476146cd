# Tests the gem redis: single commands, a pipeline, a transaction, a channel.
require "redis"
require "timeout"

redis = Redis.new(url: ENV.fetch("REDIS_URL"))
def say(what, *values) = puts("#{what} #{values.inspect}")

say "set", redis.set("tea", "\x00\xff hot".b, ex: 60), redis.set("tea", "x", nx: true), redis.setnx("tea", "x")
say "get", redis.get("tea"), redis.get("nothing"), redis.getrange("tea", 0, 1)
say "ttl", redis.ttl("tea").between?(1, 60), redis.ttl("nothing"), redis.persist("tea"), redis.ttl("tea")
say "incr", redis.incr("n"), redis.incrby("n", 41), redis.decr("n"), redis.incrbyfloat("f", 1.5)
say "many", redis.mset("a", 1, "b", 2), redis.mget("a", "b", "c"), redis.exists("a", "c"), redis.del("a", "c")
say "scan", redis.scan_each(match: "*", count: 2).to_a.uniq.sort, redis.dbsize
say "pipeline", redis.pipelined { |pipe| pipe.set("p", 1); pipe.get("p"); pipe.incr("p") }
say "multi", redis.multi { |tx| tx.incr("n"); tx.get("n") }
watched = redis.watch("n") do
  redis.incr("n")
  redis.multi { |tx| tx.set("n", 0) }
end
say "watch", watched
begin
  redis.incr("tea")
rescue Redis::CommandError => error
  say "error", error.message
end

heard = Queue.new
listener = Thread.new do
  Redis.new(url: ENV.fetch("REDIS_URL")).subscribe("redis_rb") do |on|
    on.subscribe { heard << :listening }
    on.message { |*message| heard << message; Thread.exit }
  end
end
Timeout.timeout(10) { heard.pop }
say "publish", redis.publish("redis_rb", "hello")
say "pubsub", Timeout.timeout(10) { heard.pop }
listener.join
say "clear", redis.flushdb, redis.dbsize
redis.quit
