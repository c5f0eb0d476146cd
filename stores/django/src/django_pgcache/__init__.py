"""A cache backend for Django in Postgres, by pgcache: `django_pgcache.PgCache`."""

from .backend import PgCache

__all__ = ["PgCache"]
