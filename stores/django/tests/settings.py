"""Django's settings for running its own tests on the store, in the way that the variable STORE names."""

import os

name, cache = os.environ["STORE"], os.environ.get("STORE_CACHE", "")
SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
POSTGRES = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": os.environ["PGDATABASE"],
    "USER": "postgres",
    "HOST": os.environ["PGHOST"],
    "PORT": os.environ["PGPORT"],
    # The test database is created without the extension, because the migration creates that.
    "TEST": {"NAME": f"django_{name}", "TEMPLATE": "template0"},
}
# `keep` has the value that applies outside tests, where sessions outlive a call.
WAYS = {
    "direct": (SQLITE, {"conninfo": "user=postgres", "keep": 16}),
    "pooled": (
        SQLITE,
        {
            "conninfo": f"user=postgres host={os.environ.get('POOLED_HOST')} port={os.environ.get('POOLED_PORT')}",
            "prepare_threshold": None,
            "keep": 16,
        },
    ),
    "migrated": (POSTGRES, {}),
    "transaction": (POSTGRES, {"transaction": True}),
}
database, options = WAYS[name]
DATABASES = {"default": database}
CACHES = {"default": {"BACKEND": "django_pgcache.PgCache", "LOCATION": cache or "pages", "OPTIONS": options}}
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "cache",
    "sessions_tests",
    "django_pgcache",
]
MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware"]
MIGRATION_MODULES = {"auth": None, "contenttypes": None, "sessions": None}
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
SECRET_KEY = "of tests"
SILENCED_SYSTEM_CHECKS = ["fields.W342"]
USE_TZ = False
