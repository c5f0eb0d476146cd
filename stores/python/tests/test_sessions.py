"""Tests behaviour that no framework's tests cover: broken sessions, forks, which caller computes, deadlines to the
second."""

import os
import subprocess
import threading
import time

import psycopg
import pytest
from pgcache import FOREVER, Cache, Sessions, seconds
from ways import DIRECT, WAYS


@pytest.fixture
def sessions():
    sessions = Sessions.to(DIRECT)
    sessions.close()
    yield sessions
    sessions.close()


@pytest.fixture(params=WAYS)
def cache(request):
    name, conninfo, threshold = WAYS[request.param]
    cache = Cache(name, Sessions.to(conninfo, threshold))
    cache.clear()
    yield cache
    cache._sessions.close()


def pid(sessions):
    return sessions.rows("SELECT pg_backend_pid()", (), True)[0][0]


def end(process):
    with psycopg.connect(DIRECT, autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(%s, 5000)", [process])


def test_a_session_is_used_again(sessions):
    assert pid(sessions) == pid(sessions)


def test_the_same_place_has_the_same_sessions(sessions):
    assert Sessions.to(DIRECT, 5) is sessions
    assert Sessions.to(DIRECT, None) is not sessions


def test_threads_have_a_session_each(sessions):
    threads = [threading.Thread(target=sessions.rows, args=("SELECT pg_sleep(0.3)", (), True)) for _ in range(4)]
    began = time.monotonic()
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert time.monotonic() - began < 1
    assert len(sessions._idle) == 4


def test_no_more_sessions_wait_than_are_kept():
    sessions = Sessions.to(DIRECT, keep=0)
    assert pid(sessions) != pid(sessions)
    assert not sessions._idle


def test_a_session_that_ended_is_seen_before_a_counter_is_sent(sessions):
    counter = Cache("unlogged", sessions)
    counter.delete("n")
    assert counter.incr("n") == 1
    end(pid(sessions))
    assert counter.incr("n") == 2


def test_what_broke_under_a_query_is_said_again_only_if_that_is_safe(sessions, monkeypatch):
    monkeypatch.setattr("pgcache._has_spoken", lambda session: False)
    cache = Cache("unlogged", sessions)
    cache.set("n", b"1")
    end(pid(sessions))
    assert cache.get("n") == b"1"
    end(pid(sessions))
    with pytest.raises(psycopg.OperationalError):
        cache.incr("n")
    assert cache.get("n") == b"1"


def test_an_error_of_a_statement_keeps_the_session(sessions):
    process = pid(sessions)
    with pytest.raises(psycopg.errors.StringDataRightTruncation):
        Cache("unlogged", sessions).get("k" * 3000)
    assert pid(sessions) == process


def test_an_interrupted_session_is_not_used_again(sessions, monkeypatch):
    process = pid(sessions)
    session = sessions._idle[0]

    class Interrupted(BaseException):
        pass

    def interrupted(query, values, binary):
        session.pgconn.send_query(b"SELECT 'of somebody else'")
        raise Interrupted

    monkeypatch.setattr(session, "execute", interrupted)
    with pytest.raises(Interrupted):
        sessions.rows("SELECT 1", (), True)
    assert pid(sessions) != process


def test_a_child_leaves_the_sessions_of_its_parent_alone(sessions):
    before = pid(sessions)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        sessions.close()
        os.write(write, str(pid(sessions)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(read, 100)) != before
    assert pid(sessions) == before


def test_of_many_callers_one_computes(cache):
    made, got = [], []

    def make():
        made.append(1)
        time.sleep(0.6)
        return b"value"

    threads = [threading.Thread(target=lambda: got.append(cache.fetch("report", make))) for _ in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert (len(made), got) == (1, [b"value"] * 6)


def test_who_waits_too_long_computes(cache):
    in_time = threading.Event()
    winner = threading.Thread(target=cache.fetch, args=("report", lambda: in_time.wait(5) and b"first"))
    winner.start()
    time.sleep(0.2)
    assert cache.fetch("report", lambda: b"second", wait=0.3) == b"second"
    in_time.set()
    winner.join()
    assert cache.get("report") == b"first"


def test_who_fails_to_compute_lets_the_next_one(cache):
    with pytest.raises(ZeroDivisionError):
        cache.fetch("report", lambda: 1 // 0)
    began = time.monotonic()
    assert cache.fetch("report", lambda: b"value") == b"value"
    assert time.monotonic() - began < 3


def test_without_preload_everybody_computes_and_the_first_stores(cache, monkeypatch):
    rows = cache._sessions.rows

    def without(query, values, again):
        if "lease" in query:
            raise psycopg.errors.ObjectNotInPrerequisiteState("leases need pgcache's shared memory")
        return rows(query, values, again)

    monkeypatch.setattr(cache._sessions, "rows", without)
    assert cache.fetch("report", lambda: b"first") == b"first"
    assert cache.fetch("report", lambda: b"second") == b"first"


def test_a_day_has_24_hours():
    sessions = Sessions.to(DIRECT + " options='-c TimeZone=Europe/Berlin'")
    cache = Cache("unlogged", sessions)
    for days in 100, 200, 300:
        cache.set("page", b"text", seconds(days * 86400))
        query = "SELECT extract(epoch FROM expires_at - clock_timestamp())::float8 FROM cache_lookup_bytes('page', 'unlogged')"
        left = sessions.rows(query, (), True)[0][0]
        assert 0 <= days * 86400 - left < 60
    sessions.close()


def test_ttls_from_a_millisecond_to_for_ever(cache):
    cache.set("page", b"text", seconds(0.001))
    time.sleep(0.05)
    assert cache.get("page") is None
    for ttl in seconds(1e10), seconds(1e18), FOREVER:
        cache.set("page", b"text", ttl)
        assert cache.get("page") == b"text"


@pytest.mark.parametrize("name", ['"it\'s 100%"', '"back\\slash"'])
def test_any_name_of_a_cache(sessions, name):
    sessions.rows("SELECT cache_create(%s, value_type => 'bytea')", [name], False)
    cache = Cache(name, sessions)
    cache.set("k", b"v")
    assert cache.get_many(["k", "other"]) == [b"v", None]
    sessions.rows("SELECT cache_drop(%s)", [name], False)


def test_a_restart_of_the_server():
    """`restart_server` is a function of the shell that starts the tests."""
    caches = [Cache(name, Sessions.to(conninfo, threshold)) for name, conninfo, threshold in WAYS.values()]
    for cache in caches:
        cache.set("n", b"1")
    subprocess.run(["bash", "-c", "restart_server"], check=True, stdout=subprocess.DEVNULL)
    for cache, (name, *_) in zip(caches, WAYS.values()):
        assert cache.get("n") == (None if "memory" in name else b"1")
    assert caches[0].incr("n") == 2
    assert caches[1].incr("n") == 1
