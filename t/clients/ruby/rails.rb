# Tests Rails' RedisCacheStore, created by the line that docs/redis-clients.md shows for
# config/environments/production.rb.
require "active_support"
require "active_support/cache"
require "active_support/core_ext/numeric/time"
require "active_support/notifications"

config = Struct.new(:cache_store).new
eval(File.read("production.rb"), binding) # the page's block
# A store hides errors unless an error handler is set.
options = config.cache_store.last.merge(error_handler: ->(method:, returning:, exception:) { abort "#{method}: #{exception}" })
cache = ActiveSupport::Cache.lookup_store(config.cache_store.first, options)
def say(what, *values) = puts("#{what} #{values.inspect}")

say "write", cache.write("object", { cups: [1, 2] }), cache.read("object"), cache.read("nothing")
say "fetch", cache.fetch("made", expires_in: 1.minute) { "once" }, cache.fetch("made") { "twice" }
say "unless_exist", cache.write("made", "x", unless_exist: true), cache.exist?("made")
say "increment", cache.increment("n", 41, expires_in: 1.minute), cache.decrement("n"), cache.read("n", raw: true)
cache.write_multi({ "a" => 1, "b" => 2 }, expires_in: 1.minute)
say "multi", cache.read_multi("a", "b", "c")
say "fetch_multi", cache.fetch_multi("a", "d") { |key| key * 2 }
say "large", cache.write("large", "x" * 100_000), cache.read("large").size
cache.write("brief", 1, expires_in: 0.02)
sleep 0.05
say "expired", cache.read("brief")
say "race", cache.fetch("race", expires_in: 5, race_condition_ttl: 10) { 1 }
say "delete", cache.delete("a"), cache.delete("a")
cache.delete_matched("m*")
say "delete_matched", cache.read("made")
say "delete_multi", cache.respond_to?(:delete_multi) && cache.delete_multi(%w[b d])
cache.clear
say "clear", cache.read("object"), cache.redis.keys("*")
