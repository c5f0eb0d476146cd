"""Tests redis-py, with both versions of the protocol."""

import os
import time

import redis

URL = os.environ["REDIS_URL"]


def sheet(r):
    print("ping", r.ping())
    print("set", r.set("tea", b"\x00\xff hot", ex=60), r.set("tea", "x", nx=True), r.set("tea", "cup", xx=True, get=True))
    print("get", r.get("tea"), r.get("nothing"), r.getrange("tea", 0, 1), r.strlen("tea"))
    r.set("brief", "v", ex=100)
    print("ttl", 0 < r.ttl("brief") <= 100, r.ttl("tea"), r.ttl("nothing"), r.persist("brief"), r.expire("brief", 9, gt=True))
    print("incr", r.incr("n"), r.incrby("n", 41), r.decr("n"), r.incrbyfloat("f", 1.5))
    print("many", r.mset({"a": "1", "b": "2"}), r.mget("a", "b", "c"), r.exists("a", "b", "c"), r.delete("a", "c"))
    print("scan", sorted(r.scan_iter(match="*", count=2)), sorted(r.keys("te*")), r.dbsize())
    print("getdel", r.getdel("b"), r.getex("f", ex=60), r.rename("f", "g"), r.type("g"))

    with r.pipeline(transaction=False) as pipe:
        print("pipeline", [pipe.set("p", i).get("p").execute()[1] for i in range(3)])
    with r.pipeline() as pipe:
        print("multi", pipe.incr("n").get("n").delete("p").execute())
    with r.pipeline() as pipe:
        pipe.watch("n")
        seen = int(pipe.get("n"))
        r.incr("n")
        pipe.multi()
        pipe.set("n", seen)
        try:
            print("watch", pipe.execute())
        except redis.WatchError:
            print("watch", "somebody was faster")
    try:
        r.incr("tea")
    except redis.ResponseError as error:
        print("error", error)

    with r.pubsub() as listener:
        listener.subscribe("redis_py")
        listener.psubscribe("redis_*")
        heard = [listener.get_message(timeout=10) for _ in range(2)]
        print("publish", r.publish("redis_py", "hello"))
        heard += [listener.get_message(timeout=10) for _ in range(2)]
        print("pubsub", sorted((m["type"], m["channel"], m["data"]) for m in heard))

    lock = r.lock("lock", timeout=30)
    print("lock", lock.acquire(), r.lock("lock").acquire(blocking=False), lock.extend(10), lock.reacquire(), lock.owned())
    lock.release()
    print("released", lock.locked(), r.lock("lock", timeout=1).acquire())

    print("client", r.client_setname("sheet"), r.client_getname(), r.client_id() > 0)
    print("info", r.info()["role"], r.info("server")["redis_mode"], len(r.time()))
    r.set("soon", "x", px=20)
    time.sleep(0.05)
    print("expired", r.get("soon"), r.exists("soon"))
    print("clear", r.flushdb(), r.dbsize())


for protocol in (2, 3):
    print("protocol", protocol)
    sheet(redis.Redis.from_url(URL, protocol=protocol))
