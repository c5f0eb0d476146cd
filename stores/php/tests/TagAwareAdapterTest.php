<?php

declare(strict_types=1);

namespace Pgcache\Tests;

use Pgcache\Symfony\PgcacheAdapter;
use Psr\Cache\CacheItemPoolInterface;
use Symfony\Component\Cache\Adapter\TagAwareAdapter;
use Symfony\Component\Cache\Tests\Adapter\AdapterTestCase;
use Symfony\Component\Cache\Tests\Adapter\TagAwareTestTrait;

/** Runs Symfony's tests of tags on the adapter. */
class TagAwareAdapterTest extends AdapterTestCase
{
    use TagAwareTestTrait;

    // TagAwareAdapter claims that it prunes, whatever adapter it uses.
    protected $skippedTests = ['testPrune' => 'The server removes what has expired.'];

    public function createCachePool(int $defaultLifetime = 0, ?string $testMethod = null): CacheItemPoolInterface
    {
        return new TagAwareAdapter(new PgcacheAdapter(\cache(), '', $defaultLifetime));
    }
}
