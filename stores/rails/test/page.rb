# frozen_string_literal: true

# page.rb MIGRATION CONFIG: runs the code of README.md in ActiveRecord's database.

require "active_record"
require "ostruct"

def same(expected, found)
  expected == found or raise "#{found.inspect} in place of #{expected.inspect}"
end

ActiveRecord::Base.establish_connection(adapter: "postgresql", host: ENV.fetch("PGHOST_TCP"), port: ENV.fetch("PGPORT"), database: ENV.delete("PGDATABASE"), username: ENV.fetch("PGUSER"))
%w[PGHOST PGPORT].each { |name| ENV.delete(name) } # so that only the configuration names the server
ActiveRecord::Migration.verbose = false
load ARGV[0]
CreateAppCache.migrate(:up)
config = OpenStruct.new
eval(File.read(ARGV[1]), binding, ARGV[1])
cache = ActiveSupport::Cache.lookup_store(*config.cache_store)
same "made", cache.fetch("key") { "made" }
same "made", cache.fetch("key") { "again" }
same true, ActiveRecord::Base.connection.select_value("SELECT cache_ttl('key', 'app_cache') BETWEEN '59 minutes' AND '1 hour'")
CreateAppCache.migrate(:down)
