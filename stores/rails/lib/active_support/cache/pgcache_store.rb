# frozen_string_literal: true

require "active_support"
require "active_support/cache"
require "active_support/version"
require "active_support/core_ext/marshal" if ActiveSupport::VERSION::MAJOR < 7 # loads classes that an entry names
require "connection_pool"
require "digest/sha2"
require "pg"

module ActiveSupport
  module Cache
    # A cache store for Rails in a pgcache cache of bytea or text. It has its own connection pool instead of
    # ActiveRecord's: an error there would abort the application's transaction, and no other session would see an
    # entry before that transaction commits.
    class PgcacheStore < Store
      # pgcache's own limit, in bytes.
      MAX_KEY_BYTES = 2048

      # Newer versions of Rails distinguish a failed write (nil) from one that unless_exist prevented, and treat an
      # empty pool as a failure.
      FAILED_WRITE = ActiveSupport.gem_version >= Gem::Version.new("7.1") ? nil : false
      FAILURES = [PG::Error, *(ConnectionPool::TimeoutError if ActiveSupport.gem_version >= Gem::Version.new("7.2.3"))].freeze

      prepend Strategy::LocalCache

      def self.supports_cache_versioning?
        true
      end

      # cache::         the cache's name, as in SQL
      # url::           as PG.connect takes it, a string or a hash; nil for ActiveRecord's server, or PGHOST and so on without
      # pool::          { size:, timeout: }, connections of a process and seconds to wait for one
      # wait::          seconds that fetch waits for another process that computes the same entry; 0: it does not wait
      # error_handler:: called with method:, returning:, exception:; by default it logs
      def initialize(cache: "pgcache.main", url: nil, pool: {}, wait: 5, error_handler: nil, **options)
        super(options)
        @cache, @wait, @error_handler = cache, wait, error_handler || method(:log_error)
        @clients = ConnectionPool.new(size: 5, timeout: 5, **pool) { Client.new(url || Client.active_record || {}) }
        @entries = Entries.new(cache, @clients)
      end

      # Closes the connections, for good.
      def close
        @clients.shutdown(&:close)
      end

      def inspect
        "#<#{self.class} cache=#{@cache} options=#{options.inspect}>"
      end

      # Adds to an integer that was written with raw: true, or to a new entry. expires_in applies only to a new
      # entry.
      def increment(name, amount = 1, options = nil)
        count(:increment, name, amount, amount, options)
      end

      def decrement(name, amount = 1, options = nil)
        count(:decrement, name, amount, -amount, options)
      end

      # Accepts a Regexp, or a String with *, ? and [] as in a shell. Reads the keys that can match in pages.
      def delete_matched(matcher, options = nil)
        options = merged_options(options)
        instrument(:delete_matched, matcher) do
          failsafe(:delete_matched, returning: 0) { matcher.is_a?(Regexp) ? delete_regexp(matcher, options) : delete_glob(matcher, options) }
        end
      end

      # Removes all entries of the namespace; without one, those of the whole cache.
      def clear(options = nil)
        failsafe(:clear) do
          namespace = namespace_key("", merged_options(options))
          namespace.empty? ? @entries.clear : spellings(namespace).each { |prefix| @entries.delete_prefix(prefix) }
        end
      end

      # Removes expired entries now; pgcache also removes them by itself.
      def cleanup(_options = nil)
        failsafe(:cleanup) { @entries.expire }
      end

      private
        def read_entry(key, **options)
          deserialize_entry(read_serialized_entry(key, **options), **options)
        end

        # Rails' local cache is in front of this method since 7.0, and of read_entry before that.
        def read_serialized_entry(key, **)
          failsafe(:read_entry) { @entries.get(key) }
        end

        def write_entry(key, entry, **options)
          write_serialized_entry(key, serialize_entry(entry, **options), **options)
        end

        # A batch receives the payload and is written at the end, so that Rails' local cache receives each entry.
        def write_serialized_entry(key, payload, unless_exist: false, batch: nil, **options)
          return batch[key] = payload if batch
          failsafe(:write_entry, returning: FAILED_WRITE) do
            unless_exist ? @entries.add(key, payload, seconds(options)) : @entries.set(key, payload, seconds(options))
          end
        end

        def delete_entry(key, **)
          failsafe(:delete_entry, returning: false) { @entries.delete(key) }
        end

        def read_multi_entries(names, **options)
          return {} if names.empty?
          keys = names.to_h { |name| [normalize_key(name, options), name] }
          found = failsafe(:read_multi_entries, returning: {}) { @entries.get_many(keys.keys) }
          found.each_with_object({}) do |(key, payload), results|
            name = keys.fetch(key)
            entry = deserialize_entry(payload, **options)
            results[name] = entry.value unless entry.nil? || entry.expired? || entry.mismatched?(normalize_version(name, options))
          end
        end

        def write_multi_entries(entries, **options)
          return if entries.empty?
          batch = {}
          super(entries, batch: batch, **options)
          failsafe(:write_multi_entries) { @entries.set_many(batch.keys, batch.values, seconds(options)) || true }
        end

        def delete_multi_entries(keys, **)
          failsafe(:delete_multi_entries, returning: 0) { @entries.delete_many(keys) }
        end

        # Called after fetch has missed. Of all processes that missed, the one with the lease computes the value,
        # and the others read the value that it stores. The lease is on a separate key, which never has a value.
        # Without a lease (no preload, an error, or the wait is over) each process computes the value itself.
        def save_block_result_to_cache(name, *rest)
          options = rest.last
          return super if @wait.zero? || options[:force]
          key = normalize_key("lease:#{normalize_key(name, options)}", namespace: nil)
          lease, waited = failsafe(:lease) { @entries.lease(key, @wait) }
          if waited
            entry = read_entry(normalize_key(name, options), **options)
            return entry.value if entry && !entry.expired? && !entry.mismatched?(normalize_version(name, options))
          end
          super
        ensure
          failsafe(:release) { @entries.release(key, lease) } if lease
        end

        def count(method, name, amount, by, options)
          options = merged_options(options)
          key = normalize_key(name, options)
          instrument(method, key, amount: amount) { failsafe(method) { @entries.increment(key, by, options[:expires_in]&.to_f) } }
        end

        def delete_glob(glob, options)
          glob = namespace_key(glob, options)
          prefix = glob[/\A[^*?\[\\]*/]
          return spellings(prefix).sum { |spelling| @entries.delete_prefix(spelling).to_i } if glob == "#{prefix}*"
          delete_if(prefix) { |key| File.fnmatch?(glob, key, File::FNM_DOTMATCH) }
        end

        def delete_regexp(regexp, options)
          regexp = key_matcher(regexp, options)
          delete_if(namespace_key("", options)) { |key| regexp.match?(key) }
        end

        # The block receives keys as the application spells them.
        def delete_if(prefix)
          spellings(prefix).sum { |spelling| @entries.delete_if(spelling) { |key| yield unescaped(key) }.to_i }
        end

        # An entry that has been expired for at most race_condition_ttl is served while a caller computes a new
        # one, so it is stored for that much longer.
        def seconds(options)
          expires_in = options[:expires_in] or return
          [expires_in.to_f + options[:race_condition_ttl].to_f, 0.001].max
        end

        # Keys are text of limited length: other bytes are written as in a URL, and the end of a long key is
        # replaced by a digest.
        def normalize_key(key, options = nil)
          key = super or return
          key = spelled(key)
          return key if key.bytesize <= MAX_KEY_BYTES
          suffix = ":sha2:#{::Digest::SHA256.hexdigest(key)}"
          key.byteslice(0, MAX_KEY_BYTES - suffix.bytesize).scrub("") + suffix
        end

        # "%" itself is escaped as well, so that no two keys have the same spelling.
        def spelled(key)
          !key.valid_encoding? || key.match?(/[\0%]/) ? escaped(key) : key
        end

        # A key is either escaped as a whole or not at all, and so is a prefix of it.
        def spellings(prefix)
          [spelled(prefix), escaped(prefix)].uniq
        end

        def escaped(key)
          key.b.gsub(/[\x00%\x80-\xff]/n) { |byte| format("%%%02X", byte.ord) }.force_encoding(Encoding::UTF_8)
        end

        def unescaped(key)
          return key unless key.include?("%")
          key.b.gsub(/%(\h\h)/n) { [$1].pack("H2") }.force_encoding(Encoding::UTF_8)
        end

        def serialize_entry(entry, raw: false, **options)
          return entry.value.to_s if raw
          Store.instance_method(:serialize_entry).arity == 1 ? super(entry) : super(entry, **options)
        end

        def deserialize_entry(payload, raw: false, **)
          payload && raw ? Entry.new(payload) : super(payload)
        end

        def failsafe(method, returning: nil)
          yield
        rescue *FAILURES => error
          @error_handler.call(method: method, exception: error, returning: returning)
          returning
        end

        def log_error(method:, exception:, returning:)
          # Rails gives its stores no logger.
          (logger || (::Rails.logger if defined?(::Rails.logger)))&.error { "PgcacheStore: #{method} failed, returned #{returning.inspect}: #{exception.class}: #{exception.message}" }
        end
    end
  end
end

require "active_support/cache/pgcache_store/client"
require "active_support/cache/pgcache_store/entries"
