package main

import (
	"context"
	cryptotls "crypto/tls"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"
)

type tls = cryptotls.Config

const (
	products = 10_000
	absent   = 1_000
	// The longest time for which the application keeps a value without an invalidation. The server's deadlines are
	// earlier.
	kept = time.Minute
	// The pause before a goroutine requests a lease again that it could not get or use.
	again = 20 * time.Millisecond

	lease   = "SELECT value, state, lease FROM cache_lease($1, '0 seconds', 'products')"
	release = "SELECT cache_release($1, $2, 'products')"
	store   = "SELECT cache_set_leased($1, $2, $3, CASE WHEN $2 = '' THEN absent_ttl() END, 'products')"
)

// A shop: the caches in front of its products, and the known versions of the products.
type shop struct {
	near     rueidis.Client
	sql      *pgxpool.Pool
	slow     chan struct{}
	queries  atomic.Int64
	flights  [64]flights
	versions [products + 1]version
}

// The last version of a source row whose commit was acknowledged, and the time of the acknowledgement.
type version struct {
	sync.Mutex
	number int
	at     time.Time
}

// The running loads, by product. This process runs at most one load of a product at a time. Other requests for the
// product return the stale value, or wait for the load if no stale value exists.
type flights struct {
	sync.Mutex
	of map[int]*flight
}

type flight struct {
	known chan struct{} // closed once a stale value is known or the load has ended
	done  chan struct{}
	stale atomic.Pointer[string]
	value string
	err   error
}

func newShop() *shop {
	s := &shop{slow: make(chan struct{}, *pool)}
	for i := range s.flights {
		s.flights[i].of = map[int]*flight{}
	}
	return s
}

// Handles an invalidation of these keys, or of all keys if `keys` is nil. Drops their stale values, which requests must
// no longer return.
func (s *shop) forget(keys []rueidis.RedisMessage) {
	if keys == nil {
		for i := range s.flights {
			all := &s.flights[i]
			all.Lock()
			for _, one := range all.of {
				one.stale.Store(nil)
			}
			all.Unlock()
		}
	}
	for _, key := range keys {
		name, _ := key.ToString()
		id, _ := strconv.Atoi(strings.TrimPrefix(name, "p:"))
		all := &s.flights[id%len(s.flights)]
		all.Lock()
		if one := all.of[id]; one != nil {
			one.stale.Store(nil)
		}
		all.Unlock()
	}
}

// The source of an answer: the application's own memory, a stale value, or a load.
type kind int

const (
	near kind = iota
	stale
	loaded
)

// Returns a product's value, which is empty if the product does not exist. GET returns nil for a negative entry as for
// a miss, so both continue with the lease.
func (s *shop) ask(ctx context.Context, id int) (string, kind, error) {
	key := "p:" + strconv.Itoa(id)
	value, err := s.near.DoCache(ctx, s.near.B().Get().Key(key).Cache(), kept).ToString()
	if !rueidis.IsRedisNil(err) {
		return value, near, err
	}
	return s.fly(ctx, id, key)
}

func (s *shop) fly(ctx context.Context, id int, key string) (string, kind, error) {
	all := &s.flights[id%len(s.flights)]
	all.Lock()
	one, ok := all.of[id]
	if !ok {
		one = &flight{known: make(chan struct{}), done: make(chan struct{})}
		all.of[id] = one
		go func() {
			one.value, one.err = s.load(ctx, id, key, one)
			all.Lock()
			delete(all.of, id)
			all.Unlock()
			close(one.done)
		}()
	}
	all.Unlock()
	<-one.known
	if old := one.stale.Load(); old != nil {
		return *old, stale, nil
	}
	<-one.done
	return one.value, loaded, one.err
}

// Requests the key's lease until a value exists. The holder of the lease loads the value from the slow database. If a
// stale value exists, the holder loads only if a connection is free, so that requests without any value come first.
func (s *shop) load(ctx context.Context, id int, key string, one *flight) (string, error) {
	defer closeOnce(one.known)
	for {
		var value *string
		var state string
		var number *int64
		err := s.sql.QueryRow(ctx, lease, key).Scan(&value, &state, &number)
		switch {
		case err != nil:
			return "", err
		case state == "hit":
			return *value, nil
		case value != nil:
			one.stale.Store(value)
			closeOnce(one.known)
		}
		if state == "win" {
			if s.enter(one) {
				return s.refresh(ctx, id, key, number)
			}
			_, _ = s.sql.Exec(ctx, release, key, number)
		}
		// Another process loads the value, or no connection is free.
		time.Sleep(again)
		if old := one.stale.Load(); old != nil {
			return *old, nil
		}
	}
}

func (s *shop) refresh(ctx context.Context, id int, key string, number *int64) (string, error) {
	fresh, err := s.query(ctx, id)
	<-s.slow
	if err != nil {
		_, _ = s.sql.Exec(ctx, release, key, number)
		return "", err
	}
	_, err = s.sql.Exec(ctx, store, key, fresh, number)
	return fresh, err
}

// Takes a connection of the slow database. Waits for one only if no stale value can be returned instead. Returns false
// if all connections are busy.
func (s *shop) enter(one *flight) bool {
	if one.stale.Load() == nil {
		s.slow <- struct{}{}
		return true
	}
	select {
	case s.slow <- struct{}{}:
		return true
	default:
		return false
	}
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// Simulates a query of the slow database, which takes `latency`.
func (s *shop) query(ctx context.Context, id int) (string, error) {
	s.queries.Add(1)
	time.Sleep(time.Duration(*latency) * time.Millisecond)
	number := 0
	if id > products {
		return "", nil
	}
	if *writes > 0 {
		if err := s.sql.QueryRow(ctx, "SELECT version FROM shelf WHERE id = $1", id).Scan(&number); err != nil {
			return "", err
		}
	}
	return product(id, number), nil
}

func product(id, number int) string { return fmt.Sprintf("product %d %d", id, number) }

// Changes rows at the rate of -writes, and records each version when its commit is acknowledged.
func (s *shop) write(ctx context.Context, end time.Time) {
	random := rand.New(rand.NewPCG(7, 7))
	for tick := time.NewTicker(time.Second / time.Duration(*writes)); time.Now().Before(end); <-tick.C {
		id := next(random)
		if id > products {
			continue
		}
		var number int
		if s.sql.QueryRow(ctx, "UPDATE shelf SET version = version + 1 WHERE id = $1 RETURNING version", id).Scan(&number) != nil {
			continue
		}
		one := &s.versions[id]
		one.Lock()
		one.number, one.at = number, time.Now()
		one.Unlock()
	}
}

// Draws a product: with 80 % one of 1-50, with 15 % of 51-500, with 4 % of 501-5,000, with 1 % a product that does not
// exist. bench/stampede.py has the same numbers.
func next(random *rand.Rand) int {
	switch share := random.IntN(100); {
	case share < 80:
		return 1 + random.IntN(50)
	case share < 95:
		return 51 + random.IntN(450)
	case share < 99:
		return 501 + random.IntN(4_500)
	default:
		return products + 1 + random.IntN(absent)
	}
}
