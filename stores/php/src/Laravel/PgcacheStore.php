<?php

declare(strict_types=1);

namespace Pgcache\Laravel;

use Illuminate\Cache\TaggableStore;
use Illuminate\Contracts\Cache\LockProvider;
use Pgcache\Cache;

/**
 * A store for Laravel over a pgcache cache of bytea or text. Integers are stored as digits, so that the server can
 * count; all other values are stored in the form of serialize().
 */
class PgcacheStore extends TaggableStore implements LockProvider
{
    public function __construct(private Cache $cache, private string $prefix = '')
    {
    }

    public function get($key)
    {
        return self::unserialize($this->cache->get($this->prefix . $key));
    }

    public function many(array $keys)
    {
        $found = $this->cache->many($this->prefixed($keys));

        return array_combine($keys, array_map(fn ($key) => self::unserialize($found[$this->prefix . $key] ?? null), $keys));
    }

    public function put($key, $value, $seconds)
    {
        return $this->putMany([$key => $value], $seconds);
    }

    public function putMany(array $values, $seconds)
    {
        $this->cache->set($this->prefixed(array_keys($values)), array_map(self::serialize(...), array_values($values)), self::ttl($seconds));

        return true;
    }

    /** Stores the value if no entry exists. Laravel's Repository calls this method by its name. */
    public function add($key, $value, $seconds)
    {
        return $this->cache->add($this->prefix . $key, self::serialize($value), self::ttl($seconds));
    }

    public function increment($key, $value = 1)
    {
        try {
            return $this->cache->increment($this->prefix . $key, $value);
        } catch (\PDOException $error) {
            // The stored value is not an integer (22P02), or the sum exceeds 64 bits (22003).
            return in_array($error->getCode(), ['22P02', '22003'], true) ? false : throw $error;
        }
    }

    public function decrement($key, $value = 1)
    {
        return $this->increment($key, -$value);
    }

    public function forever($key, $value)
    {
        return $this->put($key, $value, null);
    }

    /** Called by Laravel 13. */
    public function touch($key, $seconds)
    {
        return $this->cache->touch($this->prefix . $key, self::ttl($seconds));
    }

    public function forget($key)
    {
        return $this->cache->delete($this->prefix . $key);
    }

    /** Removes all entries with this prefix; without a prefix, those of the whole cache. */
    public function flush()
    {
        $this->cache->clear($this->prefix);

        return true;
    }

    public function getPrefix()
    {
        return $this->prefix;
    }

    public function lock($name, $seconds = 0, $owner = null)
    {
        return new PgcacheLock($this->cache, $this->prefix . $name, $seconds, $owner);
    }

    public function restoreLock($name, $owner)
    {
        return $this->lock($name, 0, $owner);
    }

    /** @internal for leases, which are not entries */
    public function cache(): Cache
    {
        return $this->cache;
    }

    private function prefixed(array $keys): array
    {
        return array_map(fn ($key) => $this->prefix . $key, $keys);
    }

    private static function ttl(mixed $seconds): ?int
    {
        return $seconds === null ? null : max(1, (int) $seconds);
    }

    private static function serialize(mixed $value): string
    {
        return is_int($value) ? (string) $value : serialize($value);
    }

    /** No serialized value begins with a digit or a minus sign. */
    private static function unserialize(?string $stored): mixed
    {
        return match (true) {
            $stored === null => null,
            preg_match('/^-?\d/', $stored) === 1 => (int) $stored,
            default => unserialize($stored),
        };
    }
}
