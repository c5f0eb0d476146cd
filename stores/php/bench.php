<?php

declare(strict_types=1);

// bench.php STORE CALL REQUESTS: waits for a line on standard input, makes the requests, and prints requests a
// second and the microseconds of processor time of each. stores/bench/run.py starts it.

error_reporting(E_ALL & ~E_DEPRECATED);
require __DIR__ . '/autoload.php';
require 'Symfony/Component/Cache/autoload.php';
require 'Illuminate/Cache/autoload.php';
require_once 'Illuminate/Redis/autoload.php';

[, $store, $call, $requests] = $argv;
$value = ['title' => 'tea', 'body' => str_repeat('x', 500), 'tags' => ['hot', 'green']];
$sql = new Pgcache\Connection(getenv('STORE_DSN'), getenv('PGUSER'));
[$host, $port] = explode(':', getenv('STORE_DOOR'));
[$framework, $over] = explode('/', $store);
if ($framework === 'Laravel') {
    $redis = fn () => new Illuminate\Redis\RedisManager(null, 'phpredis', ['default' => ['host' => $host, 'port' => $port, 'database' => 0]]);
    $cache = $over === 'Redis' ? new Illuminate\Cache\RedisStore($redis()) : new Pgcache\Laravel\PgcacheStore(new Pgcache\Cache($sql, $over));
    $calls = ['set' => fn ($key) => $cache->put($key, $value, 300), 'get' => fn ($key) => $cache->get($key)];
} else {
    $cache = $over === 'Redis'
        ? new Symfony\Component\Cache\Adapter\RedisAdapter(Symfony\Component\Cache\Adapter\RedisAdapter::createConnection("redis://$host:$port"))
        : new Pgcache\Symfony\PgcacheAdapter(new Pgcache\Cache($sql, $over));
    $calls = ['set' => fn ($key) => $cache->save($cache->getItem($key)->set($value)->expiresAfter(300)), 'get' => fn ($key) => $cache->getItem($key)->get()];
}
$time = static fn () => ($usage = getrusage()) ? $usage['ru_utime.tv_sec'] + $usage['ru_stime.tv_sec'] + ($usage['ru_utime.tv_usec'] + $usage['ru_stime.tv_usec']) / 1e6 : 0;
$calls['set']('page0');
echo "ready\n";
fgets(STDIN);
[$from, $cpu] = [hrtime(true), $time()];
for ($i = 0; $i < $requests; ++$i) {
    $calls[$call]('page' . $i % 500);
}
printf("%f %f\n", $requests / ((hrtime(true) - $from) / 1e9), ($time() - $cpu) / $requests * 1e6);
fgets(STDIN); // keeps the connection open until run.py has read the server's processor time
