<?php

// Laravel's own database store with the tables of Laravel's migration: cache_attach() turns `cache` and
// `cache_locks` into caches, and Laravel continues as before.

error_reporting(E_ALL & ~E_DEPRECATED); // a Laravel may be older than the PHP that runs it
require is_file(__DIR__ . '/vendor/autoload.php') ? __DIR__ . '/vendor/autoload.php' : 'Illuminate/Cache/autoload.php';

use Illuminate\Cache\DatabaseStore;
use Illuminate\Cache\Repository;
use Illuminate\Database\Capsule\Manager;
use Illuminate\Support\Facades\Facade;

$manager = new Manager;
$manager->addConnection([
    'driver' => 'pgsql',
    'host' => getenv('PGHOST'),
    'port' => getenv('PGPORT'),
    'database' => getenv('PGDATABASE'),
    'username' => getenv('PGUSER'),
]);
$db = $manager->getConnection();

// The bindings that a migration expects in an application's container.
$manager->getContainer()->instance('db', $manager->getDatabaseManager());
$manager->getContainer()->bind('db.schema', fn () => $db->getSchemaBuilder());
Facade::setFacadeApplication($manager->getContainer());

// The migration that `php artisan cache:table` writes: since Laravel 9 an object, before that a class.
$migration = require dirname((new ReflectionClass(DatabaseStore::class))->getFileName()) . '/Console/stubs/cache.stub';
(is_object($migration) ? $migration : new CreateCacheTable)->up();

$store = new DatabaseStore($db, 'cache', 'app_');
$cache = new Repository($store);
$ask = fn (string $sql, ...$values) => current((array) $db->selectOne($sql, $values));

function say(string $what, $value): void
{
    echo $what, ': ', is_string($value) ? $value : json_encode($value), "\n";
}

$cache->put('before', 'set before it was attached', 600);
$db->select("SELECT cache_attach('cache', expires_column => 'expiration', expires_unit => 's')");
$db->select("SELECT cache_attach('cache_locks', value_column => 'owner', expires_column => 'expiration', expires_unit => 's')");

say('get', $cache->get('before'));
$cache->put('number', 41, 60);
say('increment', $cache->increment('number'));
say('add over a live entry', $cache->add('number', 1, 60));
$cache->putMany(['a' => 1, 'b' => ['of', 'two']], 60);
say('many', $cache->many(['a', 'b', 'none']));
say('remember', $cache->remember('made', 60, fn () => 'made once'));
$cache->forever('forever', 'stays');

say('pgcache sees it', unserialize($ask("SELECT cache_get('app_forever', 'cache')")));
say('for ten years', $ask("SELECT cache_ttl('app_forever', 'cache') > '3600 days'"));
$ask("SELECT cache_set('app_other', ?, '1 hour', 'cache')", serialize('of pgcache'));
say('set by pgcache', $cache->get('other'));
say('deleted by pgcache', $ask("SELECT cache_delete('app_a', 'cache')"));
say('and gone for Laravel', $cache->get('a'));
$cache->put('a', 2, 60);
$copied = $ask("SELECT cache_get('app_a', 'cache')");
$cache->put('a', 3, 60);
say("a copy follows Laravel's writes", [$copied, $ask("SELECT cache_get('app_a', 'cache')")]);
$cache->forget('a');
say('forgotten', $ask("SELECT cache_exists('app_a', 'cache')"));

$lock = $store->lock('report', 60, 'worker-7');
say('a lock', $lock->get());
say('its owner for pgcache', $ask("SELECT cache_get('app_report', 'cache_locks')"));
say('a second owner', $store->lock('report', 60, 'worker-8')->get());
$lock->release();
say('released', $store->lock('report', 1, 'worker-8')->get());

$cache->put('brief', 'gone soon', 1);
$cache->put('over', 'gone soon', 1);
$cache->put('number', 7, 1);
usleep(2100000);
say('expired for pgcache', $ask("SELECT cache_exists('app_brief', 'cache')"));
say('expired for Laravel', $cache->get('brief'));
say('its row, to plain SQL', $db->table('cache')->where('key', 'app_brief')->count());
$db->statement('SET pgcache.show_expired = on');
say('and there until a sweep', $db->table('cache')->where('key', 'app_brief')->count());
$db->statement('RESET pgcache.show_expired');
say('incremented', $cache->increment('number'));
say('add over an expired entry', $cache->add('over', 'again', 60));
say('put over an expired entry', [$cache->put('brief', 'again', 60), $cache->get('brief')]);
say('a lock that has expired', $store->lock('report', 60, 'worker-9')->get());
say('swept', $ask("SELECT cache_expire('cache')"));

$db->select("SELECT cache_detach('cache'), cache_detach('cache_locks')");
say('detached, and Laravel goes on', [$cache->get('over'), $cache->increment('fresh'), $cache->add('fresh', 1, 60)]);
$cache->clear();
say('cleared', $db->table('cache')->count());
