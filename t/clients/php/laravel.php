<?php

// Laravel's Redis store and locks, by what the page has for config/database.php.

error_reporting(E_ALL & ~E_DEPRECATED); // a Laravel may be older than the PHP that runs it
require 'Illuminate/Cache/autoload.php';
require 'Illuminate/Redis/autoload.php';
require 'Predis/autoload.php';

use Illuminate\Cache\RedisStore;
use Illuminate\Cache\Repository;
use Illuminate\Container\Container;
use Illuminate\Redis\RedisManager;

function say(string $what, ...$values): void
{
    echo $what, ' ', json_encode($values), "\n";
}

$shown = require 'database.php'; // the page's block
foreach (['phpredis', 'predis'] as $client) {
    // Laravel 8 sends no user with phpredis.
    if ($client === 'phpredis' && str_contains(getenv('REDIS_URL'), '@')) {
        continue;
    }
    echo $client, "\n";
    $redis = new RedisManager(new Container, $client, $shown['redis']);
    $store = new RedisStore($redis, 'shop:', 'cache');
    $cache = new Repository($store);

    say('put', $cache->put('object', ['cups' => [1, 2]], 60), $cache->get('object'), $cache->get('nothing'));
    say('add', $cache->add('object', 1, 60), $cache->add('new', 41, 60), $cache->increment('new'), $cache->decrement('new'));
    say('many', $cache->putMany(['a' => 1, 'b' => 'two'], 60), $cache->many(['a', 'b', 'c']));
    say('remember', $cache->remember('made', 60, fn () => 'once'), $cache->remember('made', 60, fn () => 'twice'));
    say('forever', $cache->forever('forever', 'stays'), $cache->pull('forever'), $cache->has('forever'));
    $lock = $store->lock('lock', 30);
    say('lock', $lock->get(), $store->lock('lock', 30)->get(), $store->lock('lock', 30)->release());
    say('released', $lock->release(), $store->lock('lock', 30)->get(fn () => 'alone'));
    say('forget', $cache->forget('a'), $cache->forget('a'));
    say('flush', $cache->flush(), $cache->get('object'));
}
