<?php

declare(strict_types=1);

// compute.php FRAMEWORK FILE: requests an item that takes long to compute. The process that computes it writes a
// line to FILE.

require __DIR__ . '/bootstrap.php';

$compute = static function (): string {
    file_put_contents($GLOBALS['argv'][2], "once\n", FILE_APPEND);
    usleep(500000);

    return 'computed';
};
echo match ($argv[1]) {
    'laravel' => laravel()['cache']->store('redis')->remember('slow', 60, $compute),
    'symfony' => (new Pgcache\Symfony\PgcacheAdapter(cache(), 'slow'))->get('slow', $compute),
};
