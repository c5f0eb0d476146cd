<?php

declare(strict_types=1);

namespace Pgcache;

/**
 * The calls of the frameworks' stores on one cache: bytes under keys. Seconds are a ttl, and null means for ever.
 *
 * In a cache of text, a value that is not text is stored in base64 after the prefix `base64:`.
 */
final class Cache
{
    private const TTL = 'coalesce(make_interval(secs => ?), cache_forever())';
    private const BASE64 = 'base64:';

    private ?bool $ofText = null;

    /** @param string $name as in SQL */
    public function __construct(private Connection $connection, private string $name)
    {
    }

    public function get(string $key): ?string
    {
        return self::decoded($this->connection->value('SELECT cache_get_bytes(?, ?::regclass)', $key, $this->name));
    }

    /** @return array<string, string> the values that exist */
    public function many(array $keys): array
    {
        $sql = 'SELECT key, value FROM cache_get_many_bytes(?::text[], ?::regclass) WHERE value IS NOT NULL';
        $rows = $this->connection->rows($sql, [Connection::texts($keys), $this->name]);

        return array_combine(array_column($rows, 0), array_map(static fn ($row) => self::decoded(Connection::plain($row[1])), $rows));
    }

    public function has(string $key): bool
    {
        return $this->connection->value('SELECT cache_exists(?, ?::regclass)', $key, $this->name);
    }

    public function set(array $keys, array $values, ?int $seconds): void
    {
        $sql = 'SELECT cache_set_many_bytes(?::text[], ?::bytea[], ' . self::TTL . ', ?::regclass)';
        $values = array_map(fn ($value) => Connection::bytes($this->encoded($value)), $values);
        $this->connection->value($sql, Connection::texts($keys), Connection::texts($values), $seconds, $this->name);
    }

    public function add(string $key, string $value, ?int $seconds): bool
    {
        $sql = 'SELECT cache_add_bytes(?, ?, ' . self::TTL . ', ?::regclass)';

        return $this->connection->valueOnce($sql, $key, Connection::bytes($this->encoded($value)), $seconds, $this->name);
    }

    public function touch(string $key, ?int $seconds): bool
    {
        return $this->connection->value('SELECT cache_touch(?, ' . self::TTL . ', ?::regclass)', $key, $seconds, $this->name);
    }

    public function increment(string $key, int|float|string $by): int
    {
        return $this->connection->valueOnce('SELECT cache_incr(?, ?, cache_forever(), ?::regclass)', $key, $by, $this->name);
    }

    public function delete(string $key): bool
    {
        return $this->connection->value('SELECT cache_delete(?, ?::regclass)', $key, $this->name);
    }

    public function deleteIf(string $key, string $value): bool
    {
        $sql = 'SELECT cache_delete_if_bytes(?, ?, ?::regclass)';

        return $this->connection->valueOnce($sql, $key, Connection::bytes($this->encoded($value)), $this->name);
    }

    /** Sets another ttl if the entry has this value. */
    public function touchIf(string $key, string $value, ?int $seconds): bool
    {
        $sql = 'SELECT cache_cas_bytes(?, ?, ?, ' . self::TTL . ', ?::regclass)';
        $bytes = Connection::bytes($this->encoded($value));

        return $this->connection->value($sql, $key, $bytes, $bytes, $seconds, $this->name);
    }

    public function deleteMany(array $keys): void
    {
        $this->connection->value('SELECT cache_delete_many(?::text[], ?::regclass)', Connection::texts($keys), $this->name);
    }

    /** Removes the entries whose keys begin with the prefix; without a prefix, all entries. */
    public function clear(string $prefix): void
    {
        $prefix === ''
            ? $this->connection->value('SELECT cache_clear(?::regclass)', $this->name)
            : $this->connection->value('SELECT cache_delete_prefix(?, ?::regclass)', $prefix, $this->name);
    }

    /**
     * Runs $compute, which itself stores its result, under a lease on this key, which never has a value. Of all
     * processes, one gets the lease. The others wait for this many seconds, and then run their own $compute, which
     * finds the value that the process with the lease has stored. With 0 seconds, as for a server that does not
     * preload pgcache, no lease is taken.
     */
    public function leased(string $key, float $wait, callable $compute): mixed
    {
        if ($wait <= 0) {
            return $compute();
        }
        $lease = $this->lease($key, $wait);
        try {
            return $compute();
        } finally {
            $this->connection->value('SELECT cache_release(?, ?, ?::regclass)', $key, $lease, $this->name);
        }
    }

    /**
     * Retries, instead of running one statement that waits: behind a pooler such a statement would occupy a
     * session, and the holder of the lease needs one to store its result.
     */
    private function lease(string $key, float $wait): ?int
    {
        $until = microtime(true) + $wait;
        for ($pause = 5000; ; $pause = min(2 * $pause, 100000)) {
            $late = microtime(true) >= $until;
            [$state, $lease] = $this->connection->rows('SELECT state, lease FROM cache_lease(?, cache => ?::regclass)', [$key, $this->name])[0];
            if ($state !== 'busy' || $late) {
                return $lease;
            }
            usleep($pause);
        }
    }

    /** Reads the cache's type from the server only when it matters. */
    private function encoded(string $value): string
    {
        $marked = str_starts_with($value, self::BASE64);
        $text = !$marked && !str_contains($value, "\0") && preg_match('//u', $value) === 1;

        return $text || (!$marked && !$this->isOfText()) ? $value : self::BASE64 . base64_encode($value);
    }

    private static function decoded(?string $stored): ?string
    {
        return $stored !== null && str_starts_with($stored, self::BASE64) ? base64_decode(substr($stored, strlen(self::BASE64))) : $stored;
    }

    private function isOfText(): bool
    {
        return $this->ofText ??= match ($type = $this->connection->value('SELECT value_type FROM pgcache.cache_settings(?::regclass)', $this->name)) {
            'bytea' => false,
            'text' => true,
            default => throw new \LogicException("pgcache: $this->name is a cache of $type: this store needs one of bytea or text."),
        };
    }
}
