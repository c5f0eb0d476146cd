# frozen_string_literal: true

# Runs Rails' own tests of cache store behaviour.

require_relative "helper"

module PgcacheStoreTests
  class BehaviorTest < StoreTest
    include CacheStoreBehavior
    include CacheStoreVersionBehavior
    include CacheStoreCoderBehavior
    include LocalCacheBehavior
    include CacheIncrementDecrementBehavior
    include CacheInstrumentationBehavior
    include EncodedKeyCacheBehavior
    include CacheDeleteMatchedBehavior
    # Not every version of Rails has these.
    %i[AutoloadingCacheBehavior CacheStoreCompressionBehavior CacheStoreFormatVersionBehavior CacheStoreSerializerBehavior CacheLoggingBehavior].each do |name|
      include Object.const_get(name) if Object.const_defined?(name)
    end
    # This test needs a newer msgpack than the distribution may have.
    undef_method "test_serializer_can_be_:message_pack" if method_defined?("test_serializer_can_be_:message_pack") && Gem::Dependency.new("msgpack", ">= 1.7").matching_specs.empty?
  end

  class FailureSafetyTest < StoreTest
    include FailureSafetyBehavior

    private
      def emulating_unavailability
        yield lookup_store(url: "host=127.0.0.1 port=1 connect_timeout=1")
      end
  end

  class ConnectionPoolTest < StoreTest
    include ConnectionPoolBehavior

    # The store always has a pool.
    undef_method :test_no_connection_pool

    private
      def store
        [:pgcache_store]
      end

      def store_options
        { cache: ENV.fetch("STORE_CACHE"), url: ENV.fetch("STORE_URL"), pool: { size: 2, timeout: 1 } }
      end

      def emulating_latency
        slow = Module.new do
          def run(sql, params, **options)
            sleep 1.5 if params.any?(/latency/)
            super
          end
        end
        ActiveSupport::Cache::PgcacheStore::Client.prepend(slow)
        yield
      end
  end
end
