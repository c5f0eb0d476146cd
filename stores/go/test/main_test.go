// Tests the store through gocache: with gocache's caches, and in the cases that these do not use.
package test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/eko/gocache/lib/v4/store"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgcache/stores/go"
)

var ctx = context.Background()

// The caches that check.sh creates, of text and of bytes, each in a table and in memory.
var texts, bytes = []string{"texts", "texts_memory"}, []string{"bytes", "bytes_memory"}

func connect(t *testing.T) *pgxpool.Pool {
	settings := ""
	if os.Getenv("POOLED") != "" {
		settings = "default_query_exec_mode=exec"
	}
	pool, err := pgxpool.New(ctx, settings)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal(t *testing.T, actual, expected any) {
	t.Helper()
	if fmt.Sprintf("%#v", actual) != fmt.Sprintf("%#v", expected) {
		t.Fatalf("%#v, and not %#v", actual, expected)
	}
}

func one[T any](t *testing.T, db pgcache.Querier, sql string, args ...any) (value T) {
	t.Helper()
	must(t, db.QueryRow(ctx, sql, args...).Scan(&value))
	return value
}

func left(t *testing.T, db pgcache.Querier, key, cache string) time.Duration {
	t.Helper()
	seconds := one[*float64](t, db, "SELECT extract(epoch FROM cache_ttl($1, $2::text::regclass))::float8", key, cache)
	if seconds == nil {
		return 0
	}
	return time.Duration(*seconds * float64(time.Second))
}

// over calls the test once for each cache, which it empties first.
func over[T string | []byte](t *testing.T, caches []string, test func(*testing.T, *pgcache.Store[T], *pgxpool.Pool, string)) {
	for _, cache := range caches {
		t.Run(cache, func(t *testing.T) {
			db := connect(t)
			s := pgcache.New[T](db, cache)
			must(t, s.Clear(ctx))
			test(t, s, db, cache)
		})
	}
}

func expiring(ttl time.Duration) store.Option { return store.WithExpiration(ttl) }
