"""Migration operations that create the extension and caches."""

from django.db.migrations.operations.base import Operation


class CreateCache(Operation):
    """Creates the extension if it does not exist, which requires a superuser, and a cache for pickled values, in the
    database of that alias. An existing cache stays as it is.

    `touch_after`: the share of its timeout that an entry must have lived before `touch` writes a new deadline; with 0
    it always does. It has no effect on a memory cache."""

    reversible = True

    def __init__(self, name, database="default", storage="unlogged", max_entries=None, touch_after=0.1):
        self.name, self.database, self.storage, self.max_entries = name, database, storage, max_entries
        self.touch_after = touch_after

    def state_forwards(self, app_label, state):
        pass

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        if schema_editor.connection.alias != self.database:
            return
        with schema_editor.connection.cursor() as cursor:
            cursor.execute("SELECT FROM pg_extension WHERE extname = 'pgcache'")
            if not cursor.rowcount:
                cursor.execute("CREATE EXTENSION pgcache")
            cursor.execute("SELECT to_regclass(%s) IS NULL", [self.name])
            (is_new,) = cursor.fetchone()
        schema_editor.execute(
            "SELECT cache_create(%s, storage => %s, max_entries => %s, value_type => 'bytea', if_not_exists => true)",
            [self.name, self.storage, self.max_entries],
        )
        if is_new and self.touch_after and self.storage != "memory":
            schema_editor.execute("SELECT cache_tune(to_regclass(%s), touch_after => %s)", [self.name, self.touch_after])

    def database_backwards(self, app_label, schema_editor, from_state, to_state):
        if schema_editor.connection.alias == self.database:
            schema_editor.execute("SELECT cache_drop(to_regclass(%s)) WHERE to_regclass(%s) IS NOT NULL", [self.name] * 2)

    def describe(self):
        return f"Create the cache {self.name}"


def configured(settings):
    """Returns an operation for each cache of CACHES that has this backend and is in a database of DATABASES."""
    for cache in settings.CACHES.values():
        options = cache.get("OPTIONS", {})
        if cache["BACKEND"].startswith("django_pgcache.") and cache.get("LOCATION") and "conninfo" not in options:
            chosen = {name: options[name] for name in ("database", "storage") if name in options}
            yield CreateCache(cache["LOCATION"], **chosen)
