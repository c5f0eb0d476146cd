<?php

declare(strict_types=1);

// page.php FOLDER: runs the code of README.md, which check.sh has put into FOLDER.

require __DIR__ . '/bootstrap.php';
require 'Symfony/Bundle/FrameworkBundle/autoload.php';
require 'Symfony/Component/Yaml/autoload.php';

use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;

final class Application extends Symfony\Component\HttpKernel\Kernel
{
    use MicroKernelTrait;

    public function registerBundles(): iterable
    {
        yield new FrameworkBundle();
    }

    public function getProjectDir(): string
    {
        return $GLOBALS['argv'][1];
    }
}

function same(mixed $expected, mixed $found): void
{
    $expected === $found || throw new Exception(var_export($found, true) . ' in place of ' . var_export($expected, true));
}

$application = new Application('test', false);
$application->boot();
$made = static fn (string $value) => static fn () => $value;
$pool = $application->getContainer()->get('cache.app');
same(Pgcache\Symfony\PgcacheAdapter::class, $pool::class);
same("\xff", $pool->get('report', $made("\xff")));
same("\xff", $pool->get('report', $made('again')));
$application->getContainer()->get('cache.global_clearer')->clearPool('cache.app');
same('after', $pool->get('report', $made('after')));

$laravel = laravel();
$laravel['config']['cache'] = require "$argv[1]/laravel.php";
$laravel['config']['database.connections'] = ['pgsql' => ['username' => 'app'] + parse_dsn(getenv('STORE_DSN'))];
same('made', $laravel['cache']->remember('report', 60, $made('made')));
same('made', $laravel['cache']->remember('report', 60, $made('again')));

$password = 'none';
require "$argv[1]/outside.php";
same('made', $value);
$psr16->set('key', ['x'], 60);
same(['x'], $psr16->get('key'));
same('tagged', $tagged->get('key of tags', static fn ($item) => $item->tag('tag') ? 'tagged' : ''));
