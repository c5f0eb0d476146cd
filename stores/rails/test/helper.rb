# frozen_string_literal: true

# Loads the store and the tests of Rails; RAILS is the folder of activesupport in Rails' source. Tests run one at a
# time, because some clear the whole cache, which also voids leases.
ENV["PARALLEL_WORKERS"] = "1"
require "#{ENV.fetch("RAILS")}/test/abstract_unit"
require "active_support/cache"
require "#{ENV.fetch("RAILS")}/test/cache/behaviors"
require "active_support/cache/pgcache_store"

module PgcacheStoreTests
  class StoreTest < ActiveSupport::TestCase
    setup do
      @namespace = "test-#{SecureRandom.hex}"
      @cache = lookup_store(expires_in: 60)
      @peek = lookup_store(expires_in: 60)
    end

    teardown do
      @cache.clear
      @stores.each(&:close)
    end

    def lookup_store(options = {})
      (@stores ||= []) << ActiveSupport::Cache.lookup_store(:pgcache_store, { cache: ENV.fetch("STORE_CACHE"), url: ENV.fetch("STORE_URL"), namespace: @namespace }.merge(options))
      @stores.last
    end
  end
end
