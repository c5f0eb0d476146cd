<?php

declare(strict_types=1);

// Prepares phpunit: loads the store, the frameworks as the distribution packages them, and their own tests, which
// are in FRAMEWORKS, the folder of their source packages. With LARAVEL, the Laravel in that folder replaces the
// distribution's. The files required at the end make the tests use the store.

error_reporting(E_ALL & ~E_DEPRECATED); // a framework may be older than the PHP that runs it

require __DIR__ . '/../autoload.php';
require 'Symfony/Component/Cache/autoload.php';
require 'Cache/IntegrationTests/autoload.php';
require_once 'Mockery/autoload.php';

if ($laravel = getenv('LARAVEL')) {
    require_once 'Carbon/autoload.php';
    require_once 'Doctrine/Inflector/autoload.php';
    require_once 'Psr/Container/autoload.php';
    require_once 'Psr/SimpleCache/autoload.php';
    require "$laravel/src/Illuminate/Collections/helpers.php";
    require "$laravel/src/Illuminate/Support/helpers.php";
} else {
    require 'Illuminate/Cache/autoload.php';
    require_once 'Illuminate/Support/autoload.php';
    require_once 'Illuminate/Container/autoload.php';
}

spl_autoload_register(static function (string $class): void {
    $frameworks = getenv('FRAMEWORKS');
    $laravel = getenv('LARAVEL') ?: "$frameworks/laravel";
    $folders = [
        [__DIR__, 'Pgcache\Tests\\'],
        ["$frameworks/symfony/src/Symfony/Component/Cache/Tests", 'Symfony\Component\Cache\Tests\\'],
        ["$laravel/tests", 'Illuminate\Tests\\'],
        ["$laravel/src/Illuminate", 'Illuminate\\'],
        ["$laravel/src/Illuminate/Collections", 'Illuminate\Support\\'],
        ["$laravel/src/Illuminate/Macroable", 'Illuminate\Support\\'],
        ["$laravel/src/Illuminate/Conditionable", 'Illuminate\Support\\'],
        ["$laravel/src/Illuminate/Reflection", 'Illuminate\Support\\'],
    ];
    foreach ($folders as [$folder, $space]) {
        $file = "$folder/" . strtr(substr($class, strlen($space)), '\\', '/') . '.php';
        if (str_starts_with($class, $space) && is_file($file)) {
            require_once $file;
        }
    }
});

/** Returns the connection for the mode of the tests. */
function connection(): Pgcache\Connection
{
    static $connection;

    return $connection ??= new Pgcache\Connection(getenv('STORE_DSN'), getenv('PGUSER') ?: null);
}

/** Returns a cache on that connection: the one for the mode, or another one. */
function cache(?string $name = null): Pgcache\Cache
{
    return new Pgcache\Cache(connection(), $name ?? getenv('STORE_CACHE'));
}

require __DIR__ . '/laravel.php';
if (class_exists(PHPUnit\Framework\TestCase::class)) {
    require __DIR__ . '/testbench.php';
}
