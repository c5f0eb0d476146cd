"""Tests that the cache works after a restart of the server. It runs outside Django's tests, so that sessions outlive
a call. `restart_server` is a function of the shell that starts it; the cache is unlogged."""

import subprocess

import django

django.setup()
from django.core.cache import cache  # noqa: E402

cache.set("n", 1)
subprocess.run(["bash", "-c", "restart_server"], check=True)
found = cache.get("n"), cache.incr("n"), cache.get_or_set("other", 3)
if found != (1, 2, 3):
    raise SystemExit(f"after the restart there is {found}.")
