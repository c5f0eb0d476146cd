<?php

// phpredis, the extension in C.

$url = parse_url(getenv('REDIS_URL'));
$connect = function () use ($url): Redis {
    $redis = new Redis;
    $redis->connect($url['host'], $url['port'], 10);
    if (isset($url['pass'])) {
        $redis->auth([$url['user'], $url['pass']]);
    }
    $redis->select((int) substr($url['path'], 1));
    return $redis;
};
function say(string $what, ...$values): void
{
    echo $what, ' ', json_encode($values), "\n";
}

$redis = $connect();
say('set', $redis->set('tea', 'hot', ['ex' => 60]), $redis->set('tea', 'x', ['nx']), $redis->setnx('tea', 'x'));
say('get', $redis->get('tea'), $redis->get('nothing'), $redis->getRange('tea', 0, 1));
$redis->set('bytes', "\x00\xff");
say('bytes', bin2hex($redis->get('bytes')));
say('ttl', $redis->ttl('tea') > 0, $redis->ttl('nothing'), $redis->persist('tea'), $redis->ttl('tea'), $redis->setex('brief', 60, 'v'));
say('incr', $redis->incr('n'), $redis->incrBy('n', 41), $redis->decr('n'), $redis->incrByFloat('f', 1.5));
say('many', $redis->mset(['a' => 1, 'b' => 2]), $redis->mget(['a', 'b', 'c']), $redis->exists('a', 'c'), $redis->del('a', 'c'));
$redis->setOption(Redis::OPT_SCAN, Redis::SCAN_RETRY);
$keys = [];
for ($cursor = null; ($some = $redis->scan($cursor, '*', 2)) !== false;) {
    $keys = array_merge($keys, $some);
}
sort($keys);
say('scan', array_unique($keys), $redis->dbSize());
say('pipeline', $redis->multi(Redis::PIPELINE)->set('p', 1)->get('p')->incr('p')->exec());
say('multi', $redis->multi()->incr('n')->get('n')->exec());
$redis->watch('n');
$connect()->incr('n');
say('watch', $redis->multi()->set('n', 0)->exec());
say('error', $redis->incr('tea'), $redis->getLastError());

$redis->setOption(Redis::OPT_SERIALIZER, Redis::SERIALIZER_PHP);
say('serialized', $redis->set('object', ['cups' => [1, 2]]), $redis->get('object'));
$redis->setOption(Redis::OPT_SERIALIZER, Redis::SERIALIZER_NONE);

// While the first connection listens, a second process publishes until a message arrives.
$listener = $connect();
$listener->setOption(Redis::OPT_READ_TIMEOUT, 10);
$speaker = proc_open(['redis-cli', '--no-auth-warning', '-u', getenv('REDIS_URL'), '-r', '100', '-i', '0.02', 'PUBLISH', 'phpredis', 'hello'],
    [1 => ['file', '/dev/null', 'w']], $pipes);
try {
    $listener->subscribe(['phpredis'], function ($redis, $channel, $message) {
        say('pubsub', $channel, $message);
        $redis->close(); // there is no other way out of subscribe()
    });
} catch (RedisException) {
}
proc_terminate($speaker);
$redis = $connect();
say('clear', $redis->flushDB(), $redis->dbSize());
