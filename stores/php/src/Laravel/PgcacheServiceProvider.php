<?php

declare(strict_types=1);

namespace Pgcache\Laravel;

use Illuminate\Support\ServiceProvider;
use Pgcache\Cache;
use Pgcache\Connection;

/** Registers the driver of `'driver' => 'pgcache'` in config/cache.php. */
final class PgcacheServiceProvider extends ServiceProvider
{
    public function boot(): void
    {
        // Laravel binds the closure to its manager, so $this differs within it, and the closure must not be
        // static.
        $this->app['cache']->extend('pgcache', function ($app, array $config) {
            $database = $app['config']['database.connections.' . ($config['connection'] ?? $app['config']['database.default'])];
            $settings = array_filter([
                'host' => $database['host'] ?? null,
                'port' => $database['port'] ?? null,
                'dbname' => $database['database'] ?? null,
                'sslmode' => $database['sslmode'] ?? null,
            ]);
            $dsn = 'pgsql:' . implode(';', array_map(static fn ($name, $value) => "$name='" . addcslashes((string) $value, "'\\") . "'", array_keys($settings), $settings));
            $connection = new Connection($dsn, $database['username'] ?? null, $database['password'] ?? null, $config['options'] ?? []);
            $store = new PgcacheStore(new Cache($connection, $config['cache'] ?? 'pgcache.main'), $config['prefix'] ?? $app['config']['cache.prefix'] ?? '');
            $repository = new PgcacheRepository($store, $config['wait'] ?? 5.0);
            if ($app->bound('events')) {
                $repository->setEventDispatcher($app['events']);
            }

            return $repository;
        });
    }
}
