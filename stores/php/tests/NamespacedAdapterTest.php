<?php

declare(strict_types=1);

namespace Pgcache\Tests;

use Pgcache\Symfony\PgcacheAdapter;
use Psr\Cache\CacheItemPoolInterface;

/** Runs the same tests next to entries of another namespace. */
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

    public function testClearFindsEveryKeyOfANamespace(): void
    {
        foreach (['app%1', "app\u{e9}", 'app.3'] as $namespace) {
            $pool = new PgcacheAdapter(\cache(), $namespace);
            $keys = ['key', '50%', "caf\u{e9}", "caf\u{e9}%", '%25'];
            foreach ($keys as $key) {
                $pool->save($pool->getItem($key)->set($key));
            }
            foreach ($pool->getItems($keys) as $key => $item) {
                $this->assertSame($key, $item->get(), $namespace);
            }
            $this->assertTrue($pool->clear());
            foreach ($pool->getItems($keys) as $key => $item) {
                $this->assertFalse($item->isHit(), "$namespace $key");
            }
        }
    }
}
