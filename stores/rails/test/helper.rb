# frozen_string_literal: true

# RAILS is the folder of activesupport in Rails' source. One test at a time: some clear the whole cache, which voids leases, too.
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
