"""Compares a store with its framework's stock Redis store, which uses the Redis protocol of the same server:
requests a second of one thread, and the processor time of a request on both sides. bench.sh starts the server
and explains the output."""

import os
import sys
import time

from spent import best, server_time

CONNINFO, REDIS = os.environ["SQL"], os.environ["DOOR"]
KEYS, ROUNDS = int(os.environ.get("KEYS", 500)), 15
VALUE = {"title": "tea", "body": "x" * 500, "tags": ["hot", "green"]}


def django(backend, location, **options):
    from django.utils.module_loading import import_string

    cache = import_string(backend)(location, {"TIMEOUT": 300, "OPTIONS": options})
    return lambda key: cache.set(key, VALUE), cache.get


def dogpile(backend, **arguments):
    from dogpile.cache import make_region

    region = make_region().configure(backend, arguments=arguments)
    return lambda key: region.set(key, VALUE), region.get


def flask(kind, **config):
    import flask
    import flask_caching

    cache = flask_caching.Cache(flask.Flask("bench"), config=config | {"CACHE_TYPE": kind}).cache
    return lambda key: cache.set(key, VALUE), cache.get


def stores():
    from django.conf import settings

    settings.configure()
    host, port = REDIS.removeprefix("redis://").split("/")[0].split(":")
    for storage in "memory", "unlogged":
        yield "Django", storage, django("django_pgcache.PgCache", storage, conninfo=CONNINFO)
    yield "Django", "Redis", django("django.core.cache.backends.redis.RedisCache", REDIS)
    for storage in "memory", "unlogged":
        yield "dogpile.cache", storage, dogpile("pgcache", cache=storage, conninfo=CONNINFO, ttl=300)
    yield "dogpile.cache", "Redis", dogpile("dogpile.cache.redis", host=host, port=port, redis_expiration_time=300)
    for storage in "memory", "unlogged":
        named = {"CACHE_PGCACHE_NAME": storage, "CACHE_PGCACHE_CONNINFO": CONNINFO}
        yield "Flask-Caching", storage, flask("pgcache.flask.PgCache", **named)
    yield "Flask-Caching", "Redis", flask("RedisCache", CACHE_REDIS_HOST=host, CACHE_REDIS_PORT=int(port))


def measure(call, postmaster):
    server, client, began = server_time(postmaster), time.process_time(), time.perf_counter()
    for number in range(KEYS):
        call(f"page:{number}")
    return (
        KEYS / (time.perf_counter() - began),
        (time.process_time() - client) / KEYS * 1e6,
        (server_time(postmaster) - server) / KEYS * 1e6,
    )


def main(postmaster):
    runs = {}
    made = list(stores())
    for _ in range(ROUNDS):
        for framework, storage, calls in made:
            for name, call in zip(("set", "get"), calls):
                runs.setdefault((framework, name, storage), []).append(measure(call, postmaster))
    print("| framework | call | over | requests/s | client CPU | server CPU |\n|---|---|---|---|---|---|")
    for (framework, name, storage), figures in sorted(runs.items()):
        rate, client, server = best(figures)
        base = best(runs[framework, name, "Redis"])
        over = f"{rate:,.0f} ({rate / base[0]:.2f}) | {client:.0f} µs ({client / base[1]:.2f}) | {server:.0f} µs ({server / base[2]:.2f})"
        print(f"| {framework} | {name} | {storage} | {over} |")


main(sys.argv[1])
