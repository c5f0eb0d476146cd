"""Tests what Django's own tests do not cover: a single computation for all callers, errors and rollbacks, async,
migrations, serializers."""

import threading
import time
import unittest
from unittest import mock

from asgiref.sync import async_to_sync
from django.conf import settings
from django.contrib.auth.models import Group
from django.core.cache import cache, caches
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.test import TransactionTestCase, override_settings
from django_pgcache.sessions import sessions_of

STORE = settings.CACHES["default"]
IN_TRANSACTION = "transaction" in STORE["OPTIONS"]
MIGRATED = "conninfo" not in STORE["OPTIONS"]
JSON = {"serializer": "json_values.Json"}
SEVERAL = not IN_TRANSACTION, "one transaction has one caller"


class Rolled(Exception):
    pass


class OwnTests(TransactionTestCase):
    available_apps = None

    def setUp(self):
        cache.clear()

    @unittest.skipUnless(*SEVERAL)
    def test_of_many_callers_one_computes(self):
        made = []

        def make():
            made.append(1)
            time.sleep(0.5)
            return {"a": 1}

        got = []
        threads = [threading.Thread(target=lambda: got.append(cache.get_or_set("report", make))) for _ in range(6)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual((len(made), got), (1, [{"a": 1}] * 6))

    def test_who_fails_to_compute_lets_the_next_one(self):
        with self.assertRaises(ZeroDivisionError):
            cache.get_or_set("report", lambda: 1 // 0)
        began = time.monotonic()
        self.assertEqual(cache.get_or_set("report", 7), 7)
        self.assertLess(time.monotonic() - began, 3)

    @unittest.skipUnless(*SEVERAL)
    def test_async_calls(self):
        async def calls():
            await cache.aset_many({"a": 1, "b": [2]})
            await cache.aincr("a", 4)
            await cache.adelete_many(["b"])
            found = await cache.aget_many(["a", "b"]), await cache.ahas_key("b"), await cache.aget_or_set("c", lambda: 3)
            return *found, await cache.aincr_version("c"), await cache.aget("c", version=2)

        self.assertEqual(async_to_sync(calls)(), ({"a": 5}, False, 3, 2, 3))

    def test_an_error_does_not_take_the_transaction_along(self):
        with transaction.atomic():
            group = Group.objects.create(name="shop")
            cache.set("text", "no number")
            with self.assertRaises(TypeError):
                cache.incr("text")
            with self.assertRaises(Exception):
                cache.get("k" * 3000)
            self.assertEqual(cache.get("text"), "no number")
        self.assertTrue(Group.objects.filter(pk=group.pk).exists())

    def test_a_rollback_counts_for_the_option_only(self):
        with self.assertRaises(Rolled), transaction.atomic():
            Group.objects.create(name="shop")
            cache.set("page", "new")
            raise Rolled
        self.assertEqual(cache.get("page"), None if IN_TRANSACTION else "new")

    @unittest.skipUnless(MIGRATED and not IN_TRANSACTION, "in Django's database, beside its transaction")
    def test_an_aborted_transaction_does_not_take_the_cache_along(self):
        with self.assertRaises(Rolled), transaction.atomic():
            with self.assertRaises(Exception), connection.cursor() as cursor:
                cursor.execute("SELECT 1 / 0")
            cache.set("page", "new")
            raise Rolled
        self.assertEqual(cache.get("page"), "new")

    def test_integers_are_counted_and_others_keep_their_type(self):
        values = {"large": 2**63, "small": -(2**63), "true": True, "float": 1.5, "bytes": b"\x00\xff", "digits": "12"}
        cache.set_many(values)
        found = cache.get_many(values)
        typed = ({key: (type(value), value) for key, value in each.items()} for each in (found, values))
        self.assertEqual(*typed)
        for key in "large", "true", "digits":
            with self.assertRaises(TypeError):
                cache.incr(key)

    def test_incr_keeps_the_deadline(self):
        cache.set("visits", 1, timeout=1)
        self.assertEqual(cache.incr("visits"), 2)
        time.sleep(1.2)
        self.assertIsNone(cache.get("visits"))

    def test_a_timeout_of_any_length(self):
        for timeout in 10**9, 10**15, None:
            with self.subTest(timeout=timeout):
                cache.set("page", "text", timeout)
                self.assertEqual(cache.get("page"), "text")
        self.assertIs(cache.add("page", "other", 0), False)
        cache.set("page", "text", 0.01)
        time.sleep(0.05)
        self.assertIsNone(cache.get("page"))

    @unittest.skipUnless(STORE["LOCATION"] == "memory", "a cache of text is made for it")
    @override_settings(CACHES={"default": STORE | {"LOCATION": "texts", "OPTIONS": STORE["OPTIONS"] | JSON}})
    def test_a_serializer_for_a_cache_of_text(self):
        cache.set("page", {"a": [1, None, "\xe9"]})
        self.assertEqual(cache.get("page"), {"a": [1, None, "\xe9"]})
        self.assertEqual(cache.get_or_set("n", 1), 1)
        self.assertEqual(cache.incr("n"), 2)

    @override_settings(CACHES={"default": STORE | {"LOCATION": ""}})
    def test_a_cache_must_be_named(self):
        with self.assertRaises(ImproperlyConfigured):
            caches["default"]

    @unittest.skipUnless(MIGRATED and not IN_TRANSACTION, "sessions of their own in Django's database")
    def test_behind_a_pooler_nothing_is_prepared(self):
        for pooled in False, True:
            with mock.patch.dict(connections.settings["default"], DISABLE_SERVER_SIDE_CURSORS=pooled):
                sessions = sessions_of({"keep": 1})
            for _ in range(8):
                sessions.rows("SELECT 1", (), True)
            ((prepared,),) = sessions.rows("SELECT count(*) FROM pg_prepared_statements", (), True)
            sessions.close()
            self.assertEqual(prepared == 0, pooled)

    @unittest.skipUnless(MIGRATED and not IN_TRANSACTION, "sessions of their own in Django's database")
    def test_sessions_have_the_role_that_django_assumes(self):
        with mock.patch.dict(connections.settings["default"]["OPTIONS"], assume_role="pg_monitor"):
            self.assertEqual(sessions_of({}).rows("SELECT current_user::text", (), True), [("pg_monitor",)])

    @unittest.skipUnless(MIGRATED, "in Django's database")
    def test_the_migration_makes_the_cache_and_takes_it_back(self):
        def there():
            with connection.cursor() as cursor:
                cursor.execute("SELECT storage, value_type::text FROM pgcache.caches WHERE cache = to_regclass('pages')")
                return cursor.fetchall()

        self.assertEqual(there(), [("unlogged", "bytea")])
        call_command("migrate", "django_pgcache", "zero", verbosity=0)
        self.assertEqual(there(), [])
        call_command("migrate", "django_pgcache", verbosity=0)
        self.assertEqual(there(), [("unlogged", "bytea")])
