from django.apps import AppConfig


class PgcacheConfig(AppConfig):
    """Provides the migration that creates the extension and the caches of CACHES."""

    name = "django_pgcache"
