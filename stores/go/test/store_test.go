package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eko/gocache/lib/v4/cache"
	"github.com/eko/gocache/lib/v4/marshaler"
	"github.com/eko/gocache/lib/v4/store"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/philippgille/gokv"
	gokvtest "github.com/philippgille/gokv/test"
	"pgcache/stores/go"
)

// gokvStore lets gokv's tests, which work for any store, run on gocache's marshaler over our store. gocache's own
// tests check the calls that each of its stores makes to a mock of its client, so they cannot test another store.
type gokvStore struct{ values *marshaler.Marshaler }

func (s gokvStore) Set(key string, value any) error { return s.values.Set(ctx, key, value) }
func (s gokvStore) Delete(key string) error         { return s.values.Delete(ctx, key) }
func (s gokvStore) Close() error                    { return nil }
func (s gokvStore) Get(key string, into any) (bool, error) {
	_, err := s.values.Get(ctx, key, into)
	if errors.Is(err, store.NotFound{}) {
		return false, nil
	}
	return err == nil, err
}

func TestGokvsOwn(t *testing.T) {
	over(t, bytes, func(t *testing.T, s *pgcache.Store[[]byte], _ *pgxpool.Pool, _ string) {
		var values gokv.Store = gokvStore{marshaler.New(cache.New[any](s))}
		t.Run("TestStore", func(t *testing.T) { gokvtest.TestStore(values, t) })
		t.Run("TestTypes", func(t *testing.T) { gokvtest.TestTypes(values, t) })
		t.Run("TestConcurrentInteractions", func(t *testing.T) { gokvtest.TestConcurrentInteractions(t, 100, values) })
	})
}

func TestValuesComeAsTheyWereSet(t *testing.T) {
	over(t, texts, func(t *testing.T, s *pgcache.Store[string], db *pgxpool.Pool, name string) {
		pages := cache.New[string](s)
		_, err := pages.Get(ctx, "it's")
		equal(t, errors.Is(err, store.NotFound{}), true)
		must(t, pages.Set(ctx, "it's", "a 'text'"))
		value, err := pages.Get(ctx, "it's")
		must(t, err)
		equal(t, value, "a 'text'")
		equal(t, one[string](t, db, "SELECT cache_get($1, $2::text::regclass)", "it's", name), "a 'text'")
		equal(t, s.Set(ctx, "k", 7) != nil, true)
		must(t, pages.Delete(ctx, "it's"))
		must(t, pages.Delete(ctx, "it's"))
		_, err = pages.Get(ctx, "it's")
		equal(t, errors.Is(err, store.NotFound{}), true)
	})
	over(t, bytes, func(t *testing.T, s *pgcache.Store[[]byte], db *pgxpool.Pool, name string) {
		must(t, s.Set(ctx, "k", []byte{0, 255}))
		must(t, s.Set(ctx, "empty", []byte{}))
		value, err := s.Get(ctx, "k")
		must(t, err)
		equal(t, value, []byte{0, 255})
		value, err = s.Get(ctx, "empty")
		must(t, err)
		equal(t, value, []byte{})
		equal(t, one[int](t, db, "SELECT octet_length(cache_get_bytes('k', $1::text::regclass))", name), 2)
	})
}

func TestExpiration(t *testing.T) {
	over(t, texts, func(t *testing.T, s *pgcache.Store[string], db *pgxpool.Pool, name string) {
		must(t, s.Set(ctx, "own", "v", expiring(90*time.Second+500*time.Millisecond)))
		must(t, s.Set(ctx, "none", "v"))
		must(t, pgcache.New[string](db, name, expiring(time.Hour)).Set(ctx, "default", "v"))
		equal(t, left(t, db, "own", name).Round(10*time.Second), 90*time.Second)
		equal(t, left(t, db, "default", name).Round(time.Minute), time.Hour)
		_, ttl, err := s.GetWithTTL(ctx, "own")
		must(t, err)
		equal(t, ttl.Round(10*time.Second), 90*time.Second)
		value, ttl, err := s.GetWithTTL(ctx, "none")
		must(t, err)
		equal(t, value, "v")
		equal(t, ttl, time.Duration(0))
		must(t, s.Set(ctx, "own", "v", expiring(20*time.Millisecond)))
		time.Sleep(30 * time.Millisecond)
		_, ttl, err = s.GetWithTTL(ctx, "own")
		equal(t, errors.Is(err, store.NotFound{}), true)
		equal(t, ttl, time.Duration(0))
	})
}

func TestTags(t *testing.T) {
	tagged := func(tags ...string) store.Option { return store.WithTags(tags) }
	over(t, texts, func(t *testing.T, s *pgcache.Store[string], db *pgxpool.Pool, name string) {
		must(t, s.Set(ctx, "both", "v", tagged("a", "a:b"), expiring(time.Hour)))
		must(t, s.Set(ctx, "b:one", "v", tagged("a")))
		must(t, s.Set(ctx, "one", "v", tagged("a:b")))
		must(t, s.Set(ctx, "none", "v"))
		// More keys than one statement of Invalidate removes.
		for _, before := range []string{"", "gocache_tag_4:many:"} {
			one[int64](t, db, `SELECT cache_set_many(keys, keys, cache => $2::text::regclass)
				FROM (SELECT array_agg($1::text || 'many' || n) FROM generate_series(1, 10001) AS n) AS many (keys)`, before, name)
		}
		must(t, s.Invalidate(ctx, store.WithInvalidateTags([]string{"a", "many", "unknown"})))
		equal(t, one[[]string](t, db, "SELECT array_agg(key) FROM cache_keys(cache => $1::text::regclass) AS key", name),
			[]string{"gocache_tag_3:a:b:both", "gocache_tag_3:a:b:one", "none", "one"})
		must(t, s.Invalidate(ctx, store.WithInvalidateTags([]string{"a:b"})))
		equal(t, one[[]string](t, db, "SELECT array_agg(key) FROM cache_keys(cache => $1::text::regclass) AS key", name), []string{"none"})
	})
	over(t, bytes, func(t *testing.T, s *pgcache.Store[[]byte], db *pgxpool.Pool, name string) {
		must(t, s.Set(ctx, "k", []byte{0}, tagged("é"), expiring(time.Hour)))
		equal(t, left(t, db, "gocache_tag_2:é:k", name) >= left(t, db, "k", name), true)
		must(t, s.Invalidate(ctx, store.WithInvalidateTags([]string{"é"})))
		equal(t, one[int64](t, db, "SELECT cache_count($1::text::regclass)", name), int64(0))
	})
}

func TestOneLoadsForAll(t *testing.T) {
	over(t, texts, func(t *testing.T, s *pgcache.Store[string], db *pgxpool.Pool, name string) {
		var loads atomic.Int64
		load := func(context.Context) (string, error) {
			time.Sleep(300 * time.Millisecond)
			return fmt.Sprint("load ", loads.Add(1)), nil
		}
		var all sync.WaitGroup
		// More processes than a pooler has sessions: a waiting process must not occupy one.
		for n := range 16 {
			others := []*pgcache.Store[string]{s, pgcache.New[string](connect(t), name)}
			all.Go(func() {
				value, err := others[n%2].Remember(ctx, "key", time.Minute, load)
				if err != nil || value != "load 1" {
					t.Errorf("%q %v", value, err)
				}
			})
		}
		all.Wait()
		equal(t, left(t, db, "key", name) > 50*time.Second, true)

		_, err := s.Remember(ctx, "luck", 0, func(context.Context) (string, error) { return "", errors.New("no luck") })
		equal(t, fmt.Sprint(err), "no luck")
		from := time.Now()
		value, err := s.Remember(ctx, "luck", 0, func(context.Context) (string, error) { return "luck", nil })
		must(t, err)
		equal(t, value, "luck")
		equal(t, time.Since(from) < 1500*time.Millisecond, true)

		soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_, err = s.Remember(soon, "gone", 0, load)
		equal(t, errors.Is(err, context.DeadlineExceeded), true)
		value, err = s.Remember(ctx, "gone", 0, load)
		must(t, err)
		equal(t, value, "load 2")
	})
}

func TestInATransaction(t *testing.T) {
	db := connect(t)
	transaction, err := db.Begin(ctx)
	must(t, err)
	must(t, pgcache.New[string](transaction, "texts").Set(ctx, "uncommitted", "v"))
	must(t, transaction.Rollback(ctx))
	_, err = pgcache.New[string](db, "texts").Get(ctx, "uncommitted")
	equal(t, errors.Is(err, store.NotFound{}), true)
}

// losing is a pool that loses the connection during each statement.
type losing struct {
	asked, resets int
	answer        error
}

func (l *losing) Reset() { l.resets++ }
func (l *losing) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	l.asked++
	return pgconn.CommandTag{}, l.answer
}
func (l *losing) QueryRow(context.Context, string, ...any) pgx.Row { return leased{} }

type leased struct{}

func (leased) Scan(into ...any) error {
	lease := int64(7)
	*into[1].(*string), *into[2].(**int64) = "win", &lease
	return nil
}

func TestWhatIsSaidTwice(t *testing.T) {
	ended := &pgconn.PgError{Code: "57P01"}
	lost := &losing{answer: ended}
	equal(t, errors.Is(pgcache.New[string](lost, "texts").Set(ctx, "k", "v"), ended), true)
	equal(t, []int{lost.asked, lost.resets}, []int{2, 1})

	lost = &losing{answer: ended}
	_, err := pgcache.New[string](lost, "texts").Remember(ctx, "k", 0, func(context.Context) (string, error) { return "v", nil })
	equal(t, errors.Is(err, ended), true)
	equal(t, []int{lost.asked, lost.resets}, []int{1, 0})

	lost = &losing{answer: &pgconn.PgError{Code: "22001"}}
	equal(t, pgcache.New[string](lost, "texts").Set(ctx, strings.Repeat("k", 3000), "v") != nil, true)
	equal(t, []int{lost.asked, lost.resets}, []int{1, 0})
}

// The server restarts while four connections are idle, so each of the later statements finds a dead connection.
func TestAfterARestart(t *testing.T) {
	if os.Getenv("RESTART") == "" {
		t.Skip("check.sh calls it by itself")
	}
	db := connect(t)
	s, memory := pgcache.New[string](db, "texts"), pgcache.New[string](db, "texts_memory")
	must(t, s.Set(ctx, "key", "value"))
	must(t, memory.Set(ctx, "key", "value"))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { one[bool](t, db, "SELECT pg_sleep(0.3) IS NULL") })
	}
	all.Wait()
	if out, err := exec.Command("bash", "-euc", "restart_server >/dev/null").CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	value, err := s.Get(ctx, "key")
	must(t, err)
	equal(t, value, "value")
	must(t, s.Set(ctx, "key", "other"))
	_, err = memory.Get(ctx, "key")
	equal(t, errors.Is(err, store.NotFound{}), true)
}
