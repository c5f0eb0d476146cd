package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/jackc/pgx/v5"
)

// pgx prepares each statement once a connection by itself.
type pgcacheStore struct{ session *pgx.Conn }

func openPgcache(where string) opener {
	return func(ctx context.Context) (store, error) {
		session, err := pgx.Connect(ctx, where)
		return pgcacheStore{session}, err
	}
}

func (s pgcacheStore) put(ctx context.Context, key, value string) error {
	_, err := s.session.Exec(ctx, "SELECT cache_set($1, $2, cache => 'kv')", key, value)
	return err
}

func (s pgcacheStore) get(ctx context.Context, key string) (string, bool, error) {
	var value *string
	err := s.session.QueryRow(ctx, "SELECT cache_get($1, 'kv')", key).Scan(&value)
	if err != nil || value == nil {
		return "", false, err
	}
	return *value, true, nil
}

func (s pgcacheStore) scan(ctx context.Context, prefix string, most int) ([]entry, error) {
	rows, err := s.session.Query(ctx, "SELECT key, value FROM cache_scan($1, max_rows => $2, cache => 'kv')", prefix, most)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (found entry, err error) {
		return found, row.Scan(&found.key, &found.value)
	})
}

func (s pgcacheStore) delete(ctx context.Context, key string) error {
	_, err := s.session.Exec(ctx, "SELECT cache_delete($1, 'kv')", key)
	return err
}

// One round trip, as etcd's transaction is.
func (s pgcacheStore) putAll(ctx context.Context, entries []entry) error {
	batch := &pgx.Batch{}
	batch.Queue("BEGIN")
	for _, entry := range entries {
		batch.Queue("SELECT cache_set($1, $2, cache => 'kv')", entry.key, entry.value)
	}
	batch.Queue("COMMIT")
	return s.session.SendBatch(ctx, batch).Close()
}

// A cache has one channel: each watcher is told of every change and picks its own.
func (s pgcacheStore) watch(ctx context.Context, prefix string, ready func(), arrived func(key string)) error {
	var channel string
	if err := s.session.QueryRow(ctx, "SELECT cache_watch('kv')").Scan(&channel); err != nil {
		return err
	}
	if _, err := s.session.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	ready()
	for {
		told, err := s.session.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		var change struct{ Key string }
		if err := json.Unmarshal([]byte(told.Payload), &change); err != nil {
			return err
		}
		if strings.HasPrefix(change.Key, prefix) {
			arrived(change.Key)
		}
	}
}

func (s pgcacheStore) close() { s.session.Close(context.Background()) }
