<?php

declare(strict_types=1);

namespace Pgcache\Tests;

use Pgcache\Symfony\PgcacheAdapter;
use Psr\Cache\CacheItemPoolInterface;

/** The same beside entries of others. */
class NamespacedAdapterTest extends AdapterTest
{
    public function createCachePool(int $defaultLifetime = 0, ?string $testMethod = null): CacheItemPoolInterface
    {
        return new PgcacheAdapter(\cache(), 'app.1', $defaultLifetime);
    }

    public function testOthersEntriesStay(): void
    {
        $other = new PgcacheAdapter(\cache(), 'app.2');
        $other->save($other->getItem('key')->set('value'));
        $this->createCachePool()->clear();
        $this->assertSame('value', $other->getItem('key')->get());
    }
}
