<?php

// Symfony's own PdoAdapter with the table that it creates, which cache_attach() turns into a cache. Symfony stores
// the time of the write and the lifetime; a generated column computes the deadline from both.

error_reporting(E_ALL & ~E_DEPRECATED); // a Symfony may be older than the PHP that runs it
require is_file(__DIR__ . '/vendor/autoload.php') ? __DIR__ . '/vendor/autoload.php' : 'Symfony/Component/Cache/autoload.php';

use Symfony\Component\Cache\Adapter\PdoAdapter;
use Symfony\Component\Cache\Marshaller\DefaultMarshaller;

$db = new PDO(
    sprintf('pgsql:host=%s;port=%s;dbname=%s', getenv('PGHOST'), getenv('PGPORT'), getenv('PGDATABASE')),
    getenv('PGUSER')
);
$cache = new PdoAdapter($db, 'app');
$cache->createTable();

$ask = fn (string $sql) => $db->query($sql)->fetchColumn();
$save = fn (string $key, $value, ?int $seconds = null) => $cache->save($cache->getItem($key)->set($value)->expiresAfter($seconds));

// If PHP has the extension igbinary, Symfony stores values in its format, which is not text, so they are read as bytes.
$value = fn (string $key) => (new DefaultMarshaller())->unmarshall(
    stream_get_contents($ask("SELECT cache_get_bytes('$key', 'cache_items')"))
);

function say(string $what, $value): void
{
    echo $what, ': ', is_string($value) ? $value : json_encode($value), "\n";
}

$save('before', 'set before it was attached');
$db->exec('ALTER TABLE cache_items ADD expires_at integer GENERATED ALWAYS AS (item_time + item_lifetime) STORED');
$ask("SELECT cache_attach('cache_items', key_column => 'item_id', value_column => 'item_data', expires_unit => 's')");

say('get', $cache->getItem('before')->get());
$save('one', 'first', 60);
$save('one', 'second', 60);
say('overwritten', $cache->getItem('one')->get());
foreach (['once', 'twice'] as $times) {
    say('made on a miss', $cache->get('made', function ($item) use ($times) {
        $item->expiresAfter(60);

        return "made $times";
    }));
}

say('pgcache sees it', $value('app:one'));
say('with its deadline', $ask("SELECT cache_ttl('app:one', 'cache_items') BETWEEN '50 seconds' AND '1 minute'"));
say('and one that never expires', $ask("SELECT cache_ttl('app:before', 'cache_items') IS NULL"));
$save('one', 'third', 60);
say("a copy follows Symfony's writes", $value('app:one'));
try {
    $ask("SELECT cache_set('app:one', 'x', cache => 'cache_items')");
} catch (PDOException $refused) {
    say('written by pgcache', $refused->getCode());
}
say('deleted by pgcache', $ask("SELECT cache_delete('app:one', 'cache_items')"));
say('and gone for Symfony', $cache->hasItem('one'));
$cache->deleteItem('made');
say('deleted by Symfony', $ask("SELECT cache_exists('app:made', 'cache_items')"));

$save('brief', 'gone soon', 1);
$save('over', 'gone soon', 1);
usleep(2100000);
say('expired for pgcache', $ask("SELECT cache_exists('app:brief', 'cache_items')"));
say('expired for Symfony', $cache->hasItem('brief'));
say('its row, to plain SQL', $ask("SELECT count(*) FROM cache_items WHERE item_id = 'app:brief'"));
$save('over', 'again', 60);
say('saved over an expired entry', $cache->getItem('over')->get());
say('with a deadline of its own', $ask("SELECT cache_ttl('app:over', 'cache_items') > '50 seconds'"));
$cache->prune();
say('swept', $ask("SELECT cache_expire('cache_items')"));

$ask("SELECT cache_detach('cache_items')");
say('detached, and Symfony goes on', [$cache->getItem('over')->get(), $save('last', 1, 60)]);
$cache->clear();
say('cleared', $ask('SELECT count(*) FROM cache_items'));
