<?php

declare(strict_types=1);

namespace Pgcache\Tests;

use Pgcache\Symfony\PgcacheAdapter;
use Psr\Cache\CacheItemPoolInterface;
use Symfony\Component\Cache\Tests\Adapter\AdapterTestCase;

/** Runs Symfony's own tests of an adapter, which include those of PSR-6. */
class AdapterTest extends AdapterTestCase
{
    public function createCachePool(int $defaultLifetime = 0, ?string $testMethod = null): CacheItemPoolInterface
    {
        return new PgcacheAdapter(\cache(), '', $defaultLifetime);
    }
}
