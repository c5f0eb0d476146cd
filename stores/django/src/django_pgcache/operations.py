"""What a migration does with caches."""

from django.db.migrations.operations.base import Operation


class CreateCache(Operation):
    """Makes the extension where it is not there, for which it takes a superuser, and a cache for pickled values in the
    database of that alias. A cache that is there stays as it is."""

    reversible = True

    def __init__(self, name, database="default", storage="unlogged", max_entries=None):
        self.name, self.database, self.storage, self.max_entries = name, database, storage, max_entries

    def state_forwards(self, app_label, state):
        pass

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        if schema_editor.connection.alias != self.database:
            return
        with schema_editor.connection.cursor() as cursor:
            cursor.execute("SELECT FROM pg_extension WHERE extname = 'pgcache'")
            if not cursor.rowcount:
                cursor.execute("CREATE EXTENSION pgcache")
        schema_editor.execute(
            "SELECT cache_create(%s, storage => %s, max_entries => %s, value_type => 'bytea', if_not_exists => true)",
            [self.name, self.storage, self.max_entries],
        )

    def database_backwards(self, app_label, schema_editor, from_state, to_state):
        if schema_editor.connection.alias == self.database:
            schema_editor.execute("SELECT cache_drop(to_regclass(%s)) WHERE to_regclass(%s) IS NOT NULL", [self.name] * 2)

    def describe(self):
        return f"Create the cache {self.name}"


def configured(settings):
    """One for each cache of CACHES that has this backend and lives in a database of DATABASES."""
    for cache in settings.CACHES.values():
        options = cache.get("OPTIONS", {})
        if cache["BACKEND"].startswith("django_pgcache.") and cache.get("LOCATION") and "conninfo" not in options:
            chosen = {name: options[name] for name in ("database", "storage") if name in options}
            yield CreateCache(cache["LOCATION"], **chosen)
