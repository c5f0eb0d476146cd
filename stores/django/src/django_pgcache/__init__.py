"""Django's cache in Postgres, by pgcache: the backend `django_pgcache.PgCache`."""

from .backend import PgCache

__all__ = ["PgCache"]
