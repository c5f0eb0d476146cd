"""Opens the connections for the backend's statements: separate sessions that all threads share, or Django's own
connection."""

from contextlib import nullcontext

import psycopg
from django import db
from django.core import mail
from django.db import connections, transaction
from pgcache import Sessions
from psycopg import sql

_sessions = {}


def sessions_of(options):
    alias, conninfo = options.get("database", "default"), options.get("conninfo")
    if options.get("transaction"):
        return _sessions.setdefault(alias, Transaction(alias))
    settings = {} if conninfo else connections.settings[alias]
    # DISABLE_SERVER_SIDE_CURSORS means that a pooler may run each transaction in another session.
    threshold = options.get("prepare_threshold", None if settings.get("DISABLE_SERVER_SIDE_CURSORS") else 5)
    # Tests drop their database at the end, which fails while a session is connected. `mail.outbox` exists only in
    # tests.
    keep = options.get("keep", 0 if hasattr(mail, "outbox") else 16)
    key = alias, conninfo, settings.get("NAME"), threshold, keep
    if key not in _sessions:
        sessions = Sessions.to(conninfo, threshold, keep) if conninfo else Sessions(lambda: _connect(alias, threshold), keep)
        _sessions.setdefault(key, sessions)
    return _sessions[key]


def _connect(alias, threshold):
    """Connects as Django does, but without Django's cursors, which send values within the statement."""
    params = connections[alias].get_connection_params()
    del params["cursor_factory"], params["context"]
    session = psycopg.connect(**params | {"autocommit": True, "prepare_threshold": threshold})
    if role := connections.settings[alias]["OPTIONS"].get("assume_role"):
        session.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
    return session


class Transaction:
    """Runs the statements in the application's own connection and transaction: an entry that is set becomes visible
    when that commits. Each statement is in a savepoint, so that a failure does not abort the transaction."""

    def __init__(self, alias):
        self._alias = alias

    def rows(self, query, values, again):
        connection = connections[self._alias]
        savepoint = transaction.atomic(self._alias) if connection.in_atomic_block else nullcontext()
        try:
            with savepoint, connection.cursor() as cursor:
                cursor.execute(query, values)
                return cursor.fetchall()
        except db.Error as error:
            raise error.__cause__ or error  # psycopg's error, as from the separate sessions
