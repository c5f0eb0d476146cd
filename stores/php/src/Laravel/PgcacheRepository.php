<?php

declare(strict_types=1);

namespace Pgcache\Laravel;

use Closure;
use Illuminate\Cache\Repository;

/**
 * Laravel's Repository, with a remember() and rememberForever() that compute a missing value once for all
 * processes: the one that gets the lease computes it, and the others wait.
 */
final class PgcacheRepository extends Repository
{
    /**
     * @param float $wait seconds to wait for another process, before this one computes the value, too. 0: no
     * leases
     */
    public function __construct(PgcacheStore $store, private float $wait = 5.0)
    {
        parent::__construct($store);
    }

    public function remember($key, $ttl, Closure $callback)
    {
        return $this->get($key) ?? $this->leased($key, fn () => parent::remember($key, $ttl, $callback));
    }

    public function rememberForever($key, Closure $callback)
    {
        return $this->get($key) ?? $this->leased($key, fn () => parent::rememberForever($key, $callback));
    }

    /**
     * Laravel's own remember checks again, so a caller that has waited finds the value that another process
     * has computed.
     */
    private function leased($key, Closure $remember): mixed
    {
        return $this->store->cache()->leased('lease:' . $this->store->getPrefix() . $this->itemKey($key), $this->wait, $remember);
    }
}
