<?php

declare(strict_types=1);

namespace Pgcache\Tests;

use Pgcache\Laravel\PgcacheRepository;
use Pgcache\Laravel\PgcacheStore;
use Pgcache\Symfony\PgcacheAdapter;
use PHPUnit\Framework\TestCase;

/** Tests behaviour that no test suite of the frameworks covers. */
class StoreTest extends TestCase
{
    private function store(string $prefix = ''): PgcacheStore
    {
        return new PgcacheStore(\cache(), $prefix);
    }

    protected function setUp(): void
    {
        $this->store()->flush();
    }

    public function testAnyBytesComeBack(): void
    {
        $bytes = implode('', array_map('chr', range(0, 255)));
        $this->store()->put('bytes', $bytes, 60);
        $this->assertSame($bytes, $this->store()->get('bytes'));
        $adapter = new PgcacheAdapter(\cache());
        $adapter->save($adapter->getItem('bytes')->set($bytes));
        $this->assertSame($bytes, $adapter->getItem('bytes')->get());
    }

    public function testWhatIsTextIsStoredAsItIs(): void
    {
        $this->store()->put('text', ['täa' => 1], 60);
        $this->assertSame('a:1:{s:4:"täa";i:1;}', \connection()->value('SELECT cache_get(?, ?::regclass)', 'text', getenv('STORE_CACHE')));
    }

    public function testWhatLooksEncodedComesBack(): void
    {
        $cache = \cache();
        $cache->set(['marked'], ['base64:dGVh'], 60);
        $this->assertSame('base64:dGVh', $cache->get('marked'));
        $this->assertSame(['marked' => 'base64:dGVh'], $cache->many(['marked', 'absent']));
    }

    public function testACacheOfJsonIsRefusedInASentence(): void
    {
        \connection()->value("SELECT cache_create('of_json', value_type => 'jsonb', if_not_exists => true)");
        $this->expectExceptionMessage('pgcache: of_json is a cache of jsonb: this store needs one of bytea or text.');
        (new PgcacheStore(\cache('of_json')))->put('bytes', "\xff", 60);
    }

    public function testManyKeepsTheOrderAndTheTypesOfKeys(): void
    {
        $this->store()->putMany(['b' => 1, 'a"\\' => 2.5, '7' => null], 60);
        $this->assertSame(['7' => null, 'absent' => null, 'a"\\' => 2.5, 'b' => 1], $this->store()->many(['7', 'absent', 'a"\\', 'b']));
    }

    public function testWhatIsNoIntegerIsNotCounted(): void
    {
        $this->store()->put('text', 'five', 60);
        $this->assertFalse($this->store()->increment('text'));
        $this->assertSame('five', $this->store()->get('text'));
        $this->store()->put('most', PHP_INT_MAX, 60);
        $this->assertFalse($this->store()->increment('most'));
    }

    public function testACounterKeepsItsDeadline(): void
    {
        $this->store()->put('hits', 1, 60);
        $this->store()->increment('hits', 2);
        $this->assertSame(3, $this->store()->get('hits'));
        $seconds = \connection()->value("SELECT extract(epoch FROM cache_ttl('hits', ?::regclass))", getenv('STORE_CACHE'));
        $this->assertEqualsWithDelta(60, (float) $seconds, 5);
    }

    public function testATouchedEntryHasAnotherDeadline(): void
    {
        $this->store()->put('key', 'x', 60);
        $this->assertTrue($this->store()->touch('key', 600));
        $this->assertFalse($this->store()->touch('absent', 600));
        $seconds = \connection()->value("SELECT extract(epoch FROM cache_ttl('key', ?::regclass))", getenv('STORE_CACHE'));
        $this->assertEqualsWithDelta(600, (float) $seconds, 5);
    }

    public function testALockIsRefreshedByItsOwnerOnly(): void
    {
        $lock = $this->store()->lock('job', 60);
        $this->assertFalse($lock->refresh());
        $this->assertTrue($lock->get());
        $this->assertFalse($this->store()->lock('job', 600)->refresh());
        $this->assertTrue($lock->refresh(600));
        $seconds = \connection()->value("SELECT extract(epoch FROM cache_ttl('job', ?::regclass))", getenv('STORE_CACHE'));
        $this->assertEqualsWithDelta(600, (float) $seconds, 5);
        $this->assertTrue($lock->release());
    }

    public function testForeverIsForever(): void
    {
        $this->store()->forever('stays', 'x');
        $this->assertNull(\connection()->value("SELECT cache_ttl('stays', ?::regclass)", getenv('STORE_CACHE')));
    }

    public function testFlushRemovesItsPrefixOnly(): void
    {
        $this->store('a:')->put('key', 1, 60);
        $this->store('b:')->put('key', 2, 60);
        $this->store('a:')->flush();
        $this->assertNull($this->store('a:')->get('key'));
        $this->assertSame(2, $this->store('b:')->get('key'));
    }

    /** @dataProvider frameworks */
    public function testOneProcessComputesWhileOthersWait(string $framework): void
    {
        $file = tempnam(sys_get_temp_dir(), 'pgcache-store');
        $processes = [];
        for ($i = 0; $i < 4; ++$i) {
            $processes[] = proc_open([PHP_BINARY, __DIR__ . '/compute.php', $framework, $file], [1 => ['pipe', 'w']], $pipes[$i]);
        }
        foreach ($processes as $i => $process) {
            $this->assertSame('computed', stream_get_contents($pipes[$i][1]));
            proc_close($process);
        }
        $this->assertSame("once\n", file_get_contents($file));
        unlink($file);
    }

    public static function frameworks(): array
    {
        return [['laravel'], ['symfony']];
    }

    public function testAnErrorOfTheCallbackGivesTheLeaseBack(): void
    {
        $repository = new PgcacheRepository($this->store());
        try {
            $repository->remember('fails', 60, static fn () => throw new \DomainException());
        } catch (\DomainException) {
        }
        $from = microtime(true);
        $this->assertSame('value', $repository->remember('fails', 60, static fn () => 'value'));
        $this->assertLessThan(2, microtime(true) - $from);
    }

    /** The server restarts while the connection is idle, and while it is in use. */
    public function testAConnectionThatBrokeIsReplaced(): void
    {
        if (!getenv('STORE_RESTART')) {
            $this->markTestSkipped('It is run by itself.');
        }
        $store = $this->store();
        $store->put('before', 1, 60);
        $restart = static function (): void {
            // Started without a shell in between, which would lose the functions that bash exports.
            self::assertSame(0, proc_close(proc_open(['bash', '-euc', 'restart_server'], [], $pipes)));
        };
        $restart();
        $store->put('after', 2, 60);
        $this->assertSame(2, $store->get('after'));
        $restart();
        sleep(1);
        $this->assertSame(1, $store->increment('once more'));
        $this->assertTrue($store->add('added', 'x', 60));
    }
}
