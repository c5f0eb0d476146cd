<?php

declare(strict_types=1);

namespace Pgcache\Symfony;

use Pgcache\Cache;
use Symfony\Component\Cache\Adapter\AbstractAdapter;
use Symfony\Component\Cache\CacheItem;
use Symfony\Component\Cache\Marshaller\DefaultMarshaller;
use Symfony\Component\Cache\Marshaller\MarshallerInterface;

/**
 * PSR-6 and Symfony's cache contracts over a pgcache cache of bytea or text. For PSR-16 use it with Symfony's
 * Psr16Cache.
 *
 * The server removes expired entries, so nothing has to be pruned. `get()` computes a missing value once for all
 * processes: the one that gets the lease computes it, and the others wait.
 */
class PgcacheAdapter extends AbstractAdapter
{
    private MarshallerInterface $marshaller;

    /**
     * Takes the arguments in the order in which Symfony passes a pool's settings to its adapter.
     *
     * @param float $wait seconds to wait for another process that computes the same item; then compute it, too. 0 turns
     *                    leases off, as on a server that does not preload pgcache
     */
    public function __construct(
        private Cache $cache,
        private string $prefix = '',
        int $defaultLifetime = 0,
        ?MarshallerInterface $marshaller = null,
        private float $wait = 5.0,
    ) {
        $this->marshaller = $marshaller ?? new DefaultMarshaller();
        // Keys of pgcache have at most 2,048 bytes, and a byte of an id needs at most three (key()). The property
        // is not declared, because its type differs between versions of Symfony.
        $this->maxIdLength = 682;
        parent::__construct($prefix, $defaultLifetime);
        $this->setCallbackWrapper($wait > 0 ? $this->compute(...) : null);
    }

    protected function doFetch(array $ids): iterable
    {
        $ids = array_combine(array_map(self::key(...), $ids), $ids);
        foreach ($this->cache->many(array_keys($ids)) as $key => $value) {
            yield $ids[$key] => $this->marshaller->unmarshall($value);
        }
    }

    protected function doHave(string $id): bool
    {
        return $this->cache->has(self::key($id));
    }

    protected function doClear(string $namespace): bool
    {
        // An id with a byte that is not valid text is escaped as a whole, together with its namespace.
        foreach (array_unique([self::key($namespace), self::escaped($namespace)]) as $prefix) {
            $this->cache->clear($prefix);
        }

        return true;
    }

    protected function doDelete(array $ids): bool
    {
        $this->cache->deleteMany(array_map(self::key(...), $ids));

        return true;
    }

    protected function doSave(array $values, int $lifetime): array|bool
    {
        if (!$values = $this->marshaller->marshall($values, $failed)) {
            return $failed;
        }
        $this->cache->set(array_map(self::key(...), array_keys($values)), $values, $lifetime ?: null);

        return $failed;
    }

    /**
     * Called by get() for an item that is missing, or whose early refresh is due. The lease is on a separate key,
     * because during an early refresh the item's own key has a value.
     */
    private function compute(callable $callback, CacheItem $item, bool &$save, $pool, \Closure $setMetadata): mixed
    {
        $key = self::key("lease:$this->prefix:" . substr(hash('sha256', $item->getKey()), 0, 32));

        return $this->cache->leased($key, $this->wait, static function () use ($callback, $item, &$save, $pool, $setMetadata) {
            // The previous holder of the lease may have stored the item since our lookup.
            if (!$item->isHit() && ($stored = $pool->getItem($item->getKey()))->isHit()) {
                $save = false;

                return $stored->get();
            }
            $value = $callback($item, $save);
            if ($save) {
                $setMetadata($item);
                $pool->save($item->set($value));
                $save = false;
            }

            return $value;
        });
    }

    /**
     * An id may be any bytes, but a key is text: bytes that are not valid text are written as in a URL. The
     * namespace stays in front.
     */
    private static function key(string $id): string
    {
        return str_contains($id, "\0") || str_contains($id, '%') || !preg_match('//u', $id)
            ? self::escaped($id)
            : $id;
    }

    private static function escaped(string $id): string
    {
        return preg_replace_callback('/[\x00%\x80-\xff]/', static fn ($byte) => rawurlencode($byte[0]), $id);
    }
}
