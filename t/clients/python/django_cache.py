"""Tests Django's own RedisCache and django-redis, each with the CACHES setting that docs/redis-clients.md shows."""

import os

import django
from django.conf import settings

CHANGED = {}
exec(open("settings.py").read(), CHANGED)  # the page's block
OWN = CHANGED["CACHES"]["default"]
PACKAGE = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": OWN["LOCATION"]}
settings.configure(CACHES={"default": OWN, "package": PACKAGE}, INSTALLED_APPS=["django.contrib.sessions"],
                   SESSION_ENGINE=CHANGED["SESSION_ENGINE"])
django.setup()

from django.contrib.sessions.backends.cache import SessionStore
from django.core.cache import caches

for name in ("default", "package"):
    cache = caches[name]
    print(name)
    cache.set("object", {"cups": [1, 2]}, timeout=60)
    print("get", cache.get("object"), cache.get("nothing", "none"))
    print("add", cache.add("object", 1), cache.add("new", 1))
    print("incr", cache.incr("new", 41), cache.decr("new"))
    try:
        cache.incr("nothing")
    except ValueError:
        print("incr of none is an error")
    print("many", cache.set_many({"a": 1, "b": "two"}), cache.get_many(["a", "b", "c"]), cache.delete_many(["a", "b"]))
    print("get_or_set", cache.get_or_set("made", lambda: "once", 60), cache.touch("made", 90), cache.has_key("made"))
    cache.set("gone", 1, timeout=0)
    print("gone", cache.get("gone"), cache.delete("made"), cache.delete("made"))
    print("version", cache.set("v", 1, version=1), cache.incr_version("v"), cache.get("v", version=2))
    cache.clear()
    print("clear", cache.get("object"))

package = caches["package"]
package.set("p:1", 1, timeout=50)
print("ttl", 0 < package.ttl("p:1") <= 50, package.keys("p:*"), list(package.iter_keys("p:*")), package.delete_pattern("p:*"))
with package.lock("lock", timeout=10):
    print("lock", package.lock("lock").acquire(blocking=False))

session = SessionStore()
session["user"] = "somebody"
session.save()
print("session", SessionStore(session.session_key)["user"])
session.flush()
print("flushed", SessionStore(session.session_key).get("user"))
