"""What is compared, each told the same limit. `{mb}` in an option is the limit in MiB."""

from dataclasses import replace

from rounds.systems import CACHE, NEWER, System

NO_SAVE = ("--save", "", "--maxmemory", "{mb}mb", "--maxmemory-policy")
SAMPLES = ("--maxmemory-samples", "10")
MEMCACHED = ("-m", "{mb}")
FINE = ("-f", "1.05")  # size classes close to each other: less of each chunk is wasted


def redis(name, label, policy, more=(), program="redis-server", suite=""):
    return System(name, label, "#c8502d", program=program, options=(*NO_SAVE, policy, *more), suite=suite)


def memcached(name, label, more=(), suite=""):
    return System(name, label, "#5b8a3c", program="memcached", options=(*MEMCACHED, *more), suite=suite)


SYSTEMS = (
    System("pgcache_memory", "pgcache, memory", "#7b4fb3", CACHE.format(storage="memory"), "cache", tier=True),
    System(
        "pgcache_hot", "pgcache, unlogged + hot tier", "#1f9d8b", CACHE.format(storage="unlogged"), "cache", tier=True
    ),
    memcached("memcached", "memcached"),
    memcached("memcached_fine", "memcached, fine size classes", FINE),
    redis("redis_lru", "Redis, allkeys-lru", "allkeys-lru"),
    redis("redis_lru_10", "Redis, allkeys-lru, 10 samples", "allkeys-lru", SAMPLES),
    redis("redis_lfu_10", "Redis, allkeys-lfu, 10 samples", "allkeys-lfu", SAMPLES),
    memcached("memcached_new", "newer memcached", suite=NEWER),
    redis("redis_new_lru", "newer Redis, allkeys-lru", "allkeys-lru", suite=NEWER),
    redis("redis_new_lfu_10", "newer Redis, allkeys-lfu, 10 samples", "allkeys-lfu", SAMPLES, suite=NEWER),
    redis("valkey_new_lru", "Valkey, allkeys-lru", "allkeys-lru", program="valkey-server", suite=NEWER),
    redis("valkey_new_lfu_10", "Valkey, allkeys-lfu, 10 samples", "allkeys-lfu", SAMPLES, "valkey-server", NEWER),
)
QUICK = ("pgcache_memory", "memcached", "redis_lru", "redis_new_lfu_10")
SMOKE = ("pgcache_memory", "memcached", "redis_lru")


def by_names(names):
    known = {system.name: system for system in SYSTEMS}
    return [known[name] for name in names]


def limited(system, limit_mb):
    return replace(system, options=tuple(option.format(mb=limit_mb) for option in system.options))
