# frozen_string_literal: true

# bench.rb STORE CALL REQUESTS: waits for a line on standard input, makes the requests, and prints requests a
# second and the microseconds of processor time of each. stores/bench/run.py starts it.

$LOAD_PATH.unshift(File.join(__dir__, "lib"))
require "activesupport-pgcache"
require "active_support/cache/redis_cache_store"

store, call, requests = ARGV
over = store.split("/").last
value = { title: "tea", body: "x" * 500, tags: %w[hot green] }
cache =
  if over == "Redis"
    ActiveSupport::Cache::RedisCacheStore.new(url: "redis://#{ENV.fetch("STORE_DOOR")}/0", expires_in: 300)
  else
    ActiveSupport::Cache::PgcacheStore.new(cache: over, url: ENV.fetch("STORE_CONNINFO"), expires_in: 300)
  end
calls = { "set" => ->(key) { cache.write(key, value) }, "get" => ->(key) { cache.read(key) } }
calls["set"].call("page0")
puts "ready"
$stdout.flush
$stdin.gets
clock = ->(id) { Process.clock_gettime(id) }
from, cpu = clock.call(Process::CLOCK_MONOTONIC), clock.call(Process::CLOCK_PROCESS_CPUTIME_ID)
requests.to_i.times { |number| calls[call].call("page#{number % 500}") }
puts [requests.to_i / (clock.call(Process::CLOCK_MONOTONIC) - from), (clock.call(Process::CLOCK_PROCESS_CPUTIME_ID) - cpu) / requests.to_i * 1e6].join(" ")
$stdout.flush
$stdin.gets # keeps the connection open until run.py has read the server's processor time
