<?php

declare(strict_types=1);

// Laravel's own tests make their stores by themselves: `new ArrayStore`, or Cache::store('redis') in an application.
// Here the one is our store, and the other an application of little more than a cache, all of whose stores are ours.

namespace {
    use Illuminate\Cache\CacheManager;
    use Illuminate\Config\Repository as Config;
    use Illuminate\Container\Container;
    use Illuminate\Support\Facades\Facade;
    use Pgcache\Laravel\PgcacheServiceProvider;

    function laravel(): Container
    {
        $app = new Container();
        $store = ['driver' => 'pgcache', 'connection' => 'test', 'cache' => getenv('STORE_CACHE'), 'prefix' => 'laravel:'];
        $app['config'] = new Config([
            'cache' => ['default' => 'redis', 'stores' => ['redis' => $store, 'file' => $store, 'memcached' => $store]],
            'database' => ['connections' => ['test' => parse_dsn(getenv('STORE_DSN'))]],
        ]);
        $app->singleton('cache', static fn ($app) => new CacheManager($app));
        (new PgcacheServiceProvider($app))->boot();
        Facade::clearResolvedInstances();
        Facade::setFacadeApplication($app);

        return $app;
    }

    /** What config/database.php would say. */
    function parse_dsn(string $dsn): array
    {
        parse_str(strtr(substr($dsn, strlen('pgsql:')), ';', '&'), $parts);

        return ['host' => $parts['host'], 'port' => $parts['port'], 'database' => $parts['dbname'], 'username' => getenv('PGUSER')];
    }
}

namespace Illuminate\Cache {
    use Pgcache\Laravel\PgcacheStore;

    class ArrayStore extends PgcacheStore
    {
        public function __construct()
        {
            parent::__construct(\cache());
            $this->flush();
        }
    }
}
