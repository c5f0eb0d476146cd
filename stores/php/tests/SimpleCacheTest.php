<?php

declare(strict_types=1);

namespace Pgcache\Tests;

use Pgcache\Symfony\PgcacheAdapter;
use Psr\SimpleCache\CacheInterface;
use Symfony\Component\Cache\Psr16Cache;
use Symfony\Component\Cache\Tests\Psr16CacheTest;

/** Runs Symfony's own tests of its class for PSR-16. */
class SimpleCacheTest extends Psr16CacheTest
{
    public function createSimpleCache(int $defaultLifetime = 0): CacheInterface
    {
        return new Psr16Cache(new PgcacheAdapter(\cache(), '', $defaultLifetime));
    }
}
