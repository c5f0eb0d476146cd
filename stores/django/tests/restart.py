"""The server restarts under the cache, outside of Django's tests, where sessions outlive a call. `restart_server` is a
function of the shell that runs this; the cache is an unlogged one."""

import subprocess

import django

django.setup()
from django.core.cache import cache  # noqa: E402

cache.set("n", 1)
subprocess.run(["bash", "-c", "restart_server"], check=True)
found = cache.get("n"), cache.incr("n"), cache.get_or_set("other", 3)
if found != (1, 2, 3):
    raise SystemExit(f"after the restart there is {found}.")
