"""One timed run: k6 outside, the store and the web server watched from outside."""

import json
import os

from rounds import law, processes
from rounds.command import RoundError, output

from .plan import LOAD

WARMUP = 2  # seconds, in a run of its own
OFFLINE = {"K6_AUTO_EXTENSION_RESOLUTION": "false", "K6_NO_USAGE_REPORT": "true"}


def run(web, name, plan):
    ask(web, name, plan, WARMUP)
    before = used(web)
    seen, memory = ask(web, name, plan, plan.seconds), processes.pss_mb(web.store.pid)
    store, server = ((after - then) / seen["requests"] * 1e6 for after, then in zip(used(web), before))
    check(web, name, seen)
    cost = {"cpu_us": store, "web_cpu_us": server, "rss_mb": memory}
    return {"round": name, "system": web.store.system.name, **seen, **cost}


def used(web):
    return processes.cpu_seconds(web.store.pid), processes.cpu_seconds(web.pid)


def ask(web, name, plan, seconds):
    told = {
        "URL": web.url,
        "ROUND": name,
        "USERS": plan.users,
        "SECONDS": seconds,
        "ENTRIES": plan.store.entries,
        "VALUE": law.value(plan.store.value_size),
        "OFFSET": law.PGBENCH_OFFSET if web.store.system.is_postgres else 0,
    }
    words = [os.environ["PGCACHE_K6"], "run", "--quiet", "--no-usage-report"]
    words += [word for key, content in told.items() for word in ("-e", f"{key}={content}")]
    return json.loads(output([*words, LOAD], env={**os.environ, **OFFLINE}))


def check(web, name, seen):
    """A server that answers errors fast has no figure, nor one that misses what is there."""
    where = f"{web.store.system.name}, {name}"
    if seen["failures"]:
        raise RoundError(f"{where}: {seen['failures']} requests failed: see {web.log}")
    reads = seen["hits"] + seen["misses"]
    if reads > 1000 and abs(seen["hits"] / reads - law.HIT_RATE) > 0.03:
        raise RoundError(f"{where}: {seen['hits']} of {reads} reads hit, not {law.HIT_RATE:.0%}")
