<?php

// Predis, the client in PHP.

require 'Predis/autoload.php';

function say(string $what, ...$values): void
{
    echo $what, ' ', json_encode($values), "\n";
}

// Predis 1 leaves the path of the URL alone.
$url = parse_url(getenv('REDIS_URL'));
$connect = fn () => new Predis\Client(['host' => $url['host'], 'port' => $url['port'], 'database' => (int) substr($url['path'], 1),
    'username' => $url['user'] ?? null, 'password' => $url['pass'] ?? null]);
$redis = $connect();

say('set', (string) $redis->set('tea', 'hot', 'EX', 60), $redis->set('tea', 'x', 'NX'), $redis->setnx('tea', 'x'));
say('get', $redis->get('tea'), $redis->get('nothing'), $redis->getrange('tea', 0, 1));
say('ttl', $redis->ttl('tea') > 0, $redis->ttl('nothing'), $redis->persist('tea'), $redis->ttl('tea'));
say('incr', $redis->incr('n'), $redis->incrby('n', 41), $redis->decr('n'), $redis->incrbyfloat('f', 1.5));
say('many', (string) $redis->mset(['a' => 1, 'b' => 2]), $redis->mget(['a', 'b', 'c']), $redis->exists('a'), $redis->del(['a', 'c']));
$keys = [];
foreach (new Predis\Collection\Iterator\Keyspace($redis, '*', 2) as $key) {
    $keys[] = $key;
}
sort($keys);
say('scan', array_values(array_unique($keys)), $redis->dbsize());
say('pipeline', array_map(fn ($reply) => (string) $reply, $redis->pipeline(function ($pipe) {
    $pipe->set('p', 1);
    $pipe->get('p');
    $pipe->incr('p');
})));
say('multi', $redis->transaction(function ($tx) {
    $tx->incr('n');
    $tx->get('n');
}));
$redis->watch('n');
$connect()->incr('n');
$redis->multi();
$redis->set('n', 0);
say('watch', $redis->exec());
try {
    $redis->incr('tea');
} catch (Predis\Response\ServerException $error) {
    say('error', $error->getMessage());
}
$listener = $connect()->pubSubLoop();
$listener->subscribe('predis');
foreach ($listener as $message) {
    say($message->kind, $message->channel, $message->payload);
    if ($message->kind === 'subscribe') {
        say('publish', $redis->publish('predis', 'hello'));
    } else {
        $listener->stop();
    }
}
say('clear', (string) $redis->flushdb(), $redis->dbsize());
