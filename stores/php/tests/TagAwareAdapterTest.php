<?php

declare(strict_types=1);

namespace Pgcache\Tests;

use Pgcache\Symfony\PgcacheAdapter;
use Psr\Cache\CacheItemPoolInterface;
use Symfony\Component\Cache\Adapter\TagAwareAdapter;
use Symfony\Component\Cache\Tests\Adapter\AdapterTestCase;
use Symfony\Component\Cache\Tests\Adapter\TagAwareTestTrait;

/** Symfony's tags over the adapter. */
class TagAwareAdapterTest extends AdapterTestCase
{
    use TagAwareTestTrait;

    // TagAwareAdapter says that it prunes, whatever it stands on.
    protected $skippedTests = ['testPrune' => 'The server removes what has expired.'];

    public function createCachePool(int $defaultLifetime = 0, ?string $testMethod = null): CacheItemPoolInterface
    {
        return new TagAwareAdapter(new PgcacheAdapter(\cache(), '', $defaultLifetime));
    }
}
