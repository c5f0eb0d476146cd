<?php

declare(strict_types=1);

// Laravel's own tests create their stores themselves, by `new ArrayStore`, or by Cache::store('redis') in an
// application. Here the first is replaced by our store, and the second by a minimal application whose stores are
// all ours.

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

    /** Returns the connection settings, which otherwise come from config/database.php. */
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
