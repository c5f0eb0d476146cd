# frozen_string_literal: true

require "active_support"
require "active_support/fork_tracker"
require "pg"
require "weakref"

module ActiveSupport
  module Cache
    class PgcacheStore < Store
      # A connection that is tested before a statement that must not run twice, and that is replaced once when it is lost.
      # Then only a statement that may run twice runs again.
      class Client # :nodoc:
        RESTED = 1.0 # seconds

        # The parameters that ActiveRecord's adapter for Postgres passes to libpq, if there is such an adapter.
        def self.active_record
          config = ActiveRecord::Base.connection_db_config.configuration_hash if defined?(ActiveRecord::Base)
          return unless config && config[:adapter].to_s.start_with?("postg")
          { dbname: config[:database], user: config[:username], **config }.slice(*PG::Connection.conndefaults_hash.keys).compact
        rescue ActiveRecord::ConnectionNotEstablished
          nil
        end

        def initialize(settings)
          @settings = settings
          self.class.discard_in_forks(WeakRef.new(self))
        end

        # Here, not in initialize: a block keeps its surroundings alive, and no client would ever be collected.
        def self.discard_in_forks(client)
          ForkTracker.after_fork { client.discard if client.weakref_alive? }
        end

        def run(sql, params, twice:, result_format: 0)
          connect
          run("SELECT", [], twice: true) if !twice && now - @used > RESTED
          @connection.exec_params(sql, params, result_format).tap { @used = now }
        rescue PG::Error
          raise if @connection.nil? || @connection.status == PG::CONNECTION_OK
          @connection.close unless @connection.finished?
          @connection = nil
          raise unless twice
          twice = false # the second time is the last
          connect
          retry
        end

        def close
          @connection&.close
          @connection = nil
        end

        # A forked process has the parent's socket: it must not end the session there when the object goes.
        def discard
          @connection&.socket_io&.reopen(IO::NULL)
          @connection = nil
        end

        private
          def connect
            return if @connection
            @connection = PG.connect(@settings)
            @used = now
          end

          def now
            Process.clock_gettime(Process::CLOCK_MONOTONIC)
          end
      end
    end
  end
end
