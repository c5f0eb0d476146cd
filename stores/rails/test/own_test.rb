# frozen_string_literal: true

# Tests what Rails' own tests do not cover.

require_relative "helper"

module PgcacheStoreTests
  class OwnTest < StoreTest
    test "any bytes come back" do
      bytes = (0..255).to_a.pack("C*")
      @cache.write("bytes", bytes)
      assert_equal bytes, @cache.read("bytes")
      @cache.write("raw", bytes, raw: true)
      assert_equal bytes, @cache.read("raw", raw: true)
    end

    test "no two keys are one entry" do
      pieces = ["q", "/", "%", "%00", "%25", "\0", "\u00e9", "\xE9".b, "%E9", "25"]
      keys = pieces.product(pieces, pieces).map { |three| three.map(&:b).join.force_encoding(Encoding::UTF_8) }.uniq(&:b)
      keys.each { |key| @cache.write(key, key.b) }
      keys.each { |key| assert_equal key.b, @cache.read(key) }
    end

    test "globs and clear see keys as they are written" do
      @cache.write_multi({ "50%off" => 1, "50%\0" => 2, "50 off" => 3, "\u00e9%" => 4, "\u00e9" => 5 })
      @cache.delete_matched("50%*")
      assert_equal({ "50 off" => 3, "\u00e9%" => 4, "\u00e9" => 5 }, @cache.read_multi("50%off", "50%\0", "50 off", "\u00e9%", "\u00e9"))
      @cache.delete_matched("\u00e9*")
      assert_equal({ "50 off" => 3 }, @cache.read_multi("50 off", "\u00e9%", "\u00e9"))
    end

    test "what is text is stored as it is" do
      @cache.write("text", "t\u00e4a", raw: true)
      assert_equal "t\u00e4a", sql("SELECT cache_get($1, $2::regclass)", "#{@namespace}:text", ENV.fetch("STORE_CACHE"))
    end

    test "what looks encoded comes back" do
      @cache.write("marked", "base64:dGVh", raw: true)
      assert_equal "base64:dGVh", @cache.read("marked", raw: true)
      assert_equal({ "marked" => "base64:dGVh" }, @cache.read_multi("marked", raw: true))
    end

    test "a cache of JSON is refused in a sentence" do
      sql("SELECT cache_create('of_json', value_type => 'jsonb', if_not_exists => true)")
      error = assert_raises(ArgumentError) { lookup_store(cache: "of_json").write("key", "\xff") }
      assert_equal "PgcacheStore: of_json is a cache of jsonb: Rails needs one of bytea or text.", error.message
      sql("SELECT cache_drop('of_json')")
    end

    def sql(statement, *values)
      connection = PG.connect(ENV.fetch("STORE_URL"))
      connection.exec_params(statement, values).getvalue(0, 0).force_encoding(Encoding::UTF_8)
    ensure
      connection&.close
    end

    test "an error is logged where Rails logs" do
      log = StringIO.new
      Object.const_set(:Rails, Module.new { define_singleton_method(:logger) { @logger ||= Logger.new(log) } })
      assert_nil lookup_store(cache: "absent").read("key")
      assert_match(/PgcacheStore: read_entry failed, returned nil: PG::UndefinedTable/, log.string)
    ensure
      Object.send(:remove_const, :Rails)
    end

    test "any key" do
      ["nul\0", "\xff\xfe", "%", "a" * 3000, "a" * 2999 + "b", "\u00e4" * 1500].each_with_index { |key, value| @cache.write(key, value) }
      assert_equal [0, 1, 2, 3, 4, 5], ["nul\0", "\xff\xfe", "%", "a" * 3000, "a" * 2999 + "b", "\u00e4" * 1500].map { |key| @cache.read(key) }
    end

    test "what is no integer is not counted" do
      @cache.write("word", "five", raw: true)
      assert_nil @cache.increment("word")
      assert_equal "five", @cache.read("word", raw: true)
    end

    test "globs" do
      %w[a/1 a/.2 ab b[x]].each { |key| @cache.write(key, key) }
      @cache.delete_matched("a/*")
      assert_equal %w[ab b[x]], @cache.read_multi("a/1", "a/.2", "ab", "b[x]").keys
      @cache.delete_matched("?\\[x]")
      @cache.delete_matched("[a-b]b")
      assert_empty @cache.read_multi("ab", "b[x]")
    end

    test "clear removes its namespace only" do
      other = lookup_store(namespace: "#{@namespace}-other")
      other.write("key", 1)
      @cache.clear
      assert_equal 1, other.read("key")
      other.clear
    end

    test "one process computes while others wait" do
      from = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      out, others = IO.pipe
      pids = 4.times.map do
        fork do
          out.close
          value = @cache.fetch("slow") { others.write("x") && sleep(0.5) && "computed" }
          exit!(value == "computed" ? 0 : 1)
        end
      end
      others.close
      assert_equal [0] * 4, pids.map { |pid| Process.wait2(pid)[1].exitstatus }
      assert_equal "x", out.read
      assert_equal "computed", @cache.read("slow")
      assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - from, :<, 5
    end

    test "a fork leaves its parent's connection alone" do
      @cache.write("key", 1)
      Process.wait(fork { exit(@cache.read("key") == 1 ? 0 : 1) })
      assert_equal 0, $?.exitstatus
      assert_equal 1, @cache.read("key")
      assert_equal 1, @cache.increment("count")
    end

    test "an error of the block gives the lease back" do
      assert_raises(ArgumentError) { @cache.fetch("fails") { raise ArgumentError } }
      assert_equal "value", @cache.fetch("fails") { "value" }
    end

    # The server restarts while the connection is idle, and while it is in use.
    test "a restart of the server" do
      skip "It is run by itself." unless ENV["STORE_RESTART"]
      errors = []
      store = lookup_store(error_handler: ->(exception:, **) { errors << exception })
      store.write("key", 1)
      assert system("bash", "-euc", "restart_server")
      assert store.write("key", 2)
      assert_equal 2, store.read("key")
      assert system("bash", "-euc", "restart_server")
      sleep 1
      assert_equal 1, store.increment("count")
      assert store.write("added", 1, unless_exist: true)
      assert_empty errors
    end
  end
end
