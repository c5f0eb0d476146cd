# frozen_string_literal: true

module ActiveSupport
  module Cache
    class PgcacheStore < Store
      # The calls on one cache: bytes under keys, for a number of seconds, or for ever with nil. In a cache of
      # text, a value that is not text is stored in base64 after the prefix "base64:".
      class Entries # :nodoc:
        TTL = "coalesce(make_interval(secs => $%d), cache_forever())"
        BASE64 = "base64:".b.freeze

        # cache:: its name, as in SQL; clients:: a pool of Client
        def initialize(cache, clients)
          @cache, @clients = cache, clients
        end

        def get(key)
          decode(value("SELECT cache_get_bytes($1, $2::regclass)", key, result_format: 1))
        end

        # Returns keys and values of the entries that exist.
        def get_many(keys)
          sql = "SELECT key, value FROM cache_get_many_bytes($1::text[], $2::regclass) WHERE value IS NOT NULL"
          run(sql, [list(keys)], result_format: 1).values.to_h { |key, stored| [key.force_encoding(Encoding::UTF_8), decode(stored)] }
        end

        def set(key, bytes, seconds)
          value("SELECT cache_set_bytes($1, $2, #{TTL % 3}, $4::regclass)", key, parameter(bytes), seconds)
          true
        end

        # Returns whether no entry existed.
        def add(key, bytes, seconds)
          value("SELECT cache_add_bytes($1, $2, #{TTL % 3}, $4::regclass)", key, parameter(bytes), seconds, twice: false) == "t"
        end

        def set_many(keys, values, seconds)
          values = list(values.map { |bytes| encode(bytes) }, PG::TextEncoder::Bytea)
          value("SELECT cache_set_many_bytes($1::text[], $2::bytea[], #{TTL % 3}, $4::regclass)", list(keys), values, seconds)
        end

        # Returns the sum. The seconds apply only to a new counter.
        def increment(key, amount, seconds)
          value("SELECT cache_incr($1, $2, #{TTL % 3}, $4::regclass)", key, amount, seconds, twice: false).to_i
        end

        # Returns whether an entry existed; delete_many and delete_if return how many.
        def delete(key)
          value("SELECT cache_delete($1, $2::regclass)", key) == "t"
        end

        def delete_many(keys)
          value("SELECT cache_delete_many($1::text[], $2::regclass)", list(keys)).to_i
        end

        def delete_prefix(prefix)
          value("SELECT cache_delete_prefix($1, $2::regclass)", prefix).to_i
        end

        # Works in pages, because there may be many entries.
        def delete_if(prefix, last = nil, deleted = 0, &block)
          loop do
            keys = run("SELECT key FROM cache_keys($1, $2, 1000, $3::regclass)", [prefix, last]).column_values(0)
            return deleted if keys.empty?
            last = keys.last
            matching = keys.select(&block)
            deleted += delete_many(matching) unless matching.empty?
          end
        end

        def clear
          value("SELECT cache_clear($1::regclass)")
        end

        def expire
          value("SELECT cache_expire($1::regclass)")
        end

        # Returns a lease, or none after this many seconds or without preload; and whether another caller had it.
        # Retries, instead of running one statement that waits: such a statement would occupy a connection, here
        # and behind a pooler, and the caller that computes needs one to store its result.
        def lease(key, wait, pause = 0.005)
          deadline = now + wait
          busy = false
          loop do
            state, lease = run("SELECT state, lease FROM cache_lease($1, cache => $2::regclass)", [key], twice: false).values.first
            return lease, busy if state != "busy" || now >= deadline
            busy = true
            sleep pause
            pause = [2 * pause, 0.1].min
          end
        end

        def release(key, lease)
          value("SELECT cache_release($1, $2, $3::regclass)", key, lease)
        end

        private
          # Reads the cache's type from the server only when it matters.
          def encode(bytes)
            bytes = bytes.b
            marked = bytes.start_with?(BASE64)
            text = !marked && !bytes.include?("\0") && bytes.dup.force_encoding(Encoding::UTF_8).valid_encoding?
            text || !(marked || text?) ? bytes : BASE64 + [bytes].pack("m0")
          end

          def decode(stored)
            stored&.start_with?(BASE64) ? stored.byteslice(BASE64.bytesize..).unpack1("m") : stored
          end

          def text?
            @type ||= value("SELECT value_type FROM pgcache.cache_settings($1::regclass)")
            raise ArgumentError, "PgcacheStore: #{@cache} is a cache of #{@type}: Rails needs one of bytea or text." unless %w[bytea text].include?(@type)
            @type == "text"
          end

          def parameter(bytes)
            { value: encode(bytes), format: 1 }
          end

          def value(sql, *params, **options)
            result = run(sql, params, **options)
            result.getvalue(0, 0) unless result.ntuples.zero?
          end

          # The last parameter of each statement is the cache.
          def run(sql, params, twice: true, **options)
            @clients.with { |client| client.run(sql, [*params, @cache], twice: twice, **options) }
          end

          def list(elements, type = PG::TextEncoder::String)
            PG::TextEncoder::Array.new(elements_type: type.new).encode(elements)
          end

          def now
            Process.clock_gettime(Process::CLOCK_MONOTONIC)
          end
      end
    end
  end
end
