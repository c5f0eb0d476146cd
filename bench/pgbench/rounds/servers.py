"""Which class starts a system's server."""

from .memcached_server import MemcachedServer
from .postgres_server import PostgresServer
from .redis_server import RedisServer


def of(system, plan):
    if system.is_postgres:
        return PostgresServer(system, plan)
    return (RedisServer if system.is_redis else MemcachedServer)(system, plan)
