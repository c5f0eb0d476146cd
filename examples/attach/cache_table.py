"""Django's own DatabaseCache with a table that is a cache of pgcache: `manage.py createcachetable`
creates the table, cache_attach() turns it into a cache, and Django continues as before."""

import os
import time

import django
import psycopg
from django.conf import settings

settings.configure(
    USE_TZ=True,
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": os.environ["PGDATABASE"],
        }
    },
    CACHES={
        "default": {
            "BACKEND": "django.core.cache.backends.db.DatabaseCache",
            "LOCATION": "my_cache_table",
        }
    },
)
django.setup()

from django.core.cache import cache
from django.core.management import call_command

call_command("createcachetable")
db = psycopg.connect("", autocommit=True)


def ask(sql, *arguments):
    return db.execute(sql, arguments).fetchone()[0]


cache.set("before", "set before it was attached")
db.execute(
    "SELECT cache_attach('my_cache_table', key_column => 'cache_key', expires_column => 'expires')"
)

print("get:", cache.get("before"))
cache.set("number", 41)
print("incr:", cache.incr("number"))
print("add over a live entry:", cache.add("number", 1))
cache.set_many({"a": 1, "b": 2}, timeout=60)
print("get_many:", cache.get_many(["a", "b", "none"]))
cache.set("forever", "stays", timeout=None)

print("pgcache sees it:", ask("SELECT cache_exists(':1:forever', 'my_cache_table')"))
print("it never expires:", ask("SELECT cache_ttl(':1:forever', 'my_cache_table') IS NULL"))
print("its bytes are Django's:", ask(
    "SELECT cache_get(':1:forever', 'my_cache_table') = value FROM my_cache_table"
    " WHERE cache_key = ':1:forever'"
))
print("touched by pgcache:", ask("SELECT cache_touch(':1:forever', '1 hour', 'my_cache_table')"))
print("and there for Django:", cache.get("forever"))
print("deleted by pgcache:", ask("SELECT cache_delete(':1:a', 'my_cache_table')"))
print("and gone for Django:", cache.get("a"))
cache.set("a", "new")
print("a copy follows Django's writes:", ask("SELECT cache_get(':1:a', 'my_cache_table') IS NOT NULL"))

cache.set("brief", "gone soon", timeout=1)
time.sleep(2.1)
print("expired for pgcache:", ask("SELECT cache_exists(':1:brief', 'my_cache_table')"))
db.execute("SELECT cache_expire('my_cache_table')")
print("swept:", ask("SELECT count(*) = 0 FROM my_cache_table WHERE cache_key = ':1:brief'"))
print("expired for Django:", cache.get("brief"))
cache.set("brief", "again", timeout=60)
print("set again:", cache.get("brief"))

db.execute("SELECT cache_detach('my_cache_table')")
print("detached, and Django goes on:", cache.get("forever"), cache.add("last", 1))
