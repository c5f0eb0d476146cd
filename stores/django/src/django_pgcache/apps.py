from django.apps import AppConfig


class PgcacheConfig(AppConfig):
    """For its migration, which makes the extension and the caches of CACHES."""

    name = "django_pgcache"
