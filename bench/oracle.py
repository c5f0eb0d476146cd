"""Computes hit rates of a trace with libCacheSim, in a separate process, so that a crash in its C code does not end the
benchmark."""

import json
import sys

OVERHEAD, KEY, DEFAULT_SIZE = 56, 16, 100


def requests(lines):
    """Yields for each request the number of the key, the bytes of its entry, and whether it is a read that counts."""
    numbers = {}
    for number, line in enumerate(lines):
        key, size, op, *_ = [*(field.strip() for field in line.split(",")), "", "", ""]
        if not key or number == 0 and line.startswith("key") or op == "delete":
            continue
        yield numbers.setdefault(key, len(numbers) + 1), int(size or DEFAULT_SIZE) + KEY + OVERHEAD, op != "set"


def rate(cache, trace, request):
    warm_up, hits, gets = len(trace) // 3, 0, 0
    for turn, (key, size, counts) in enumerate(trace):
        request.obj_id, request.obj_size = key, size
        hit = cache.get(request)
        if counts and turn >= warm_up:
            gets, hits = gets + 1, hits + hit
    return 100 * hits / max(gets, 1)


def main():
    asked = json.load(sys.stdin)
    sys.path.insert(0, asked["library"])
    import libcachesim

    with open(asked["trace"]) as lines:
        trace = list(requests(lines))
    request = libcachesim.Request()
    found = [
        [rate(getattr(libcachesim, policy)(cache_size=size), trace, request) for policy in asked["policies"]] for size in asked["sizes"]
    ]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
