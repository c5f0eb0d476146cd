package pgcache

import (
	"context"
	"time"
)

// How long a caller waits for the holder of the lease before it loads the value itself, and the longest pause between
// its attempts. It waits here and not in the server: a wait there would occupy a session, of which a pooler has few,
// and the holder needs one to store the value.
const (
	wait  = 2 * time.Second
	pause = 100 * time.Millisecond
)

// Remember returns the stored value, or stores and returns the result of load. Of all callers that miss a key at the
// same time, in whatever process, one loads it (by a lease of pgcache), and the others wait for it. Remember replaces
// gocache's LoadableCache, which works only within one process.
func (s *Store[T]) Remember(ctx context.Context, key string, ttl time.Duration, load func(context.Context) (T, error)) (T, error) {
	// One load in each process, which continues for the others if the first caller gives up.
	shared := s.loading.DoChan(key, func() (any, error) { return s.load(context.WithoutCancel(ctx), key, ttl, load) })
	select {
	case <-ctx.Done():
		return *new(T), ctx.Err()
	case loaded := <-shared:
		value, _ := loaded.Val.(T)
		return value, loaded.Err
	}
}

func (s *Store[T]) load(ctx context.Context, key string, ttl time.Duration, load func(context.Context) (T, error)) (T, error) {
	var value *T
	var state string
	var lease *int64
	for next, until := pause/16, time.Now().Add(wait); ; next = min(2*next, pause) {
		if err := s.row(ctx, []any{&value, &state, &lease}, s.sql.lease, key); err != nil {
			return *new(T), err
		}
		if state != "busy" || time.Now().After(until) {
			break
		}
		time.Sleep(next)
	}
	if (state == "hit" || state == "stale") && value != nil {
		return *value, nil
	}
	won := state == "win" && lease != nil
	loaded, err := load(ctx)
	if won && err != nil {
		_, _ = s.db.Exec(ctx, s.sql.release, key, lease) // or the lease ends by itself
	} else if won {
		_, err = s.db.Exec(ctx, s.sql.setLeased, key, loaded, lease, seconds(ttl))
	}
	return loaded, err
}
