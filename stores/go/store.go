// Package pgcache is a store for gocache that uses a cache of pgcache, by pgx.
//
//	pool, err := pgxpool.New(ctx, "")
//	pages := cache.New[string](pgcache.New[string](pool, "pages"))
//	err = pages.Set(ctx, "home", "<h1>Hello</h1>", store.WithExpiration(5*time.Minute))
//
// Over a pool, each statement runs by itself. If its connection breaks, it runs once more on a new connection, unless
// running twice and running once differ in effect. Over a pgx.Tx or a pgx.Conn no statement runs twice: the store
// is then part of that transaction, and other sessions see no entry of a table cache before it commits.
package pgcache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/eko/gocache/lib/v4/store"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/singleflight"
)

// Type is the result of GetType, and the label of gocache's metrics.
const Type = "pgcache"

// The number of keys of one tag that one statement removes.
const page = 10_000

// Querier is a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Store is a gocache store whose values are text or bytes; use bytes for a cache of bytea, and for gocache's
// marshaler.
type Store[T string | []byte] struct {
	db      Querier
	options *store.Options
	loading singleflight.Group
	sql     statements
}

var _ store.StoreInterface = (*Store[string])(nil)

type statements struct{ get, lookup, set, setTagged, remove, invalidate, clear, lease, setLeased, release string }

// New makes a store over the cache of this name, which is parsed as in SQL. The options are gocache's, and apply to
// each value that is set without its own; without an expiration the cache's ttl applies.
func New[T string | []byte](db Querier, cache string, options ...store.Option) *Store[T] {
	form, array := "", "text[]"
	if _, bytes := any(*new(T)).([]byte); bytes {
		form, array = "_bytes", "bytea[]"
	}
	name := "'" + strings.ReplaceAll(cache, "'", "''") + "'"
	sql := strings.NewReplacer("{cache}", name, "{form}", form, "{array}", array).Replace
	set := sql("SELECT cache_set{form}($1, $2, make_interval(secs => $3), {cache})")
	return &Store[T]{db: db, options: store.ApplyOptions(options...), sql: statements{
		get:    sql("SELECT cache_get{form}($1, {cache})"),
		lookup: sql("SELECT value, coalesce(extract(epoch FROM expires_at - clock_timestamp()), 0)::float8 FROM cache_lookup{form}($1, {cache})"),
		set:    set,
		// The entry comes first, so that its tags last at least as long: a batch has one ttl. The value of a tag is valid
		// as text, bytes and JSON.
		setTagged: set + sql(", cache_set_many{form}($4::text[], array_fill('null'::text, ARRAY[cardinality($4::text[])])::{array}, make_interval(secs => $3), {cache})"),
		remove:    sql("SELECT cache_delete($1, {cache})"),
		// Deletes the keys after the prefix, which have the tag, and then the tag's own keys, in the order in which they
		// are set.
		invalidate: sql(`SELECT count(*), cache_delete_many(coalesce(array_agg(substr(key, length($1) + 1)), '{}'::text[]), {cache}),
			cache_delete_many(coalesce(array_agg(key), '{}'::text[]), {cache}) FROM cache_keys($1, max_rows => $2, cache => {cache})`),
		clear:     sql("SELECT cache_clear({cache})"),
		lease:     sql("SELECT value, state, lease FROM cache_lease{form}($1, cache => {cache})"),
		setLeased: sql("SELECT cache_set_leased{form}($1, $2, $3, make_interval(secs => $4), {cache})"),
		release:   sql("SELECT cache_release($1, $2, {cache})"),
	}}
}

// Get returns a value of type T, or an error that is store.NotFound.
func (s *Store[T]) Get(ctx context.Context, key any) (any, error) {
	var value *T
	if err := s.row(ctx, []any{&value}, s.sql.get, key); err != nil {
		return nil, err
	}
	return found(value)
}

// GetWithTTL also returns how long the value remains; 0 means for ever.
func (s *Store[T]) GetWithTTL(ctx context.Context, key any) (any, time.Duration, error) {
	var value *T
	var left float64
	if err := s.row(ctx, []any{&value, &left}, s.sql.lookup, key); err != nil {
		return nil, 0, err
	}
	result, err := found(value)
	return result, time.Duration(left * float64(time.Second)), err
}

// Set stores a value of type T. Its tags are entries, too, which hold only their keys.
func (s *Store[T]) Set(ctx context.Context, key any, value any, options ...store.Option) error {
	if _, ok := value.(T); !ok {
		return fmt.Errorf("pgcache: the values of this store are %T, not %T", *new(T), value)
	}
	given := store.ApplyOptionsWithDefault(s.options, options...)
	if len(given.Tags) == 0 {
		return s.exec(ctx, s.sql.set, key, value, seconds(given.Expiration))
	}
	tagged := make([]string, len(given.Tags))
	for n, tag := range given.Tags {
		tagged[n] = prefix(tag) + fmt.Sprint(key)
	}
	return s.exec(ctx, s.sql.setTagged, key, value, seconds(given.Expiration), tagged)
}

// Delete removes the entry. A missing entry is not an error.
func (s *Store[T]) Delete(ctx context.Context, key any) error { return s.exec(ctx, s.sql.remove, key) }

// Invalidate removes the entries that have one of the tags.
func (s *Store[T]) Invalidate(ctx context.Context, options ...store.InvalidateOption) error {
	for _, tag := range store.ApplyInvalidateOptions(options...).Tags {
		for removed := page; removed == page; {
			if err := s.row(ctx, []any{&removed, nil, nil}, s.sql.invalidate, prefix(tag), page); err != nil {
				return err
			}
		}
	}
	return nil
}

// Clear removes all entries of the cache, which requires the privilege TRUNCATE.
func (s *Store[T]) Clear(ctx context.Context) error { return s.exec(ctx, s.sql.clear) }

// GetType returns the name of the store.
func (s *Store[T]) GetType() string { return Type }

// prefix contains the tag's length, so that no tag's keys begin with those of another tag.
func prefix(tag string) string { return fmt.Sprintf("gocache_tag_%d:%s:", len(tag), tag) }

// seconds returns NULL for no ttl, which means the cache's own ttl.
func seconds(ttl time.Duration) *float64 {
	if ttl == 0 {
		return nil
	}
	secs := ttl.Seconds()
	return &secs
}

func found[T string | []byte](value *T) (any, error) {
	if value == nil {
		return nil, store.NotFoundWithCause(errors.New("no such entry"))
	}
	return *value, nil
}
