from django.apps import AppConfig


class PgcacheConfig(AppConfig):
    """Brings the migration, which creates the extension and the caches of CACHES."""

    name = "django_pgcache"
