# frozen_string_literal: true

require "active_support"
require "active_support/fork_tracker"
require "pg"
require "weakref"

module ActiveSupport
  module Cache
    class PgcacheStore < Store
      # A connection. It is tested before a statement that must not run twice, and replaced once if it is lost.
      # Then the statement runs again only if it may run twice.
      class Client # :nodoc:
        RESTED = 1.0 # seconds

        # The parameters that ActiveRecord's Postgres adapter passes to libpq, if the application uses that
        # adapter.
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

        # Not in initialize, because a block keeps the variables around it alive, so no client would ever be
        # collected.
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

        # A forked process inherits the parent's socket. It must not end the session on it when the object is
        # collected.
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
