<?php

declare(strict_types=1);

namespace Pgcache\Laravel;

use Closure;
use Illuminate\Cache\Repository;

/**
 * Laravel's Repository whose remember() and rememberForever() compute a missing value once for all processes: the one
 * that gets the lease computes, the others wait for it.
 */
final class PgcacheRepository extends Repository
{
    /** @param float $wait seconds to wait for another process; then compute it, too. 0: no leases */
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

    /** Laravel's own remember looks once more, so a caller that waited finds the value computed meanwhile. */
    private function leased($key, Closure $remember): mixed
    {
        return $this->store->cache()->leased('lease:' . $this->store->getPrefix() . $this->itemKey($key), $this->wait, $remember);
    }
}
