package main

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// What one client does over and over; wrong tells that the store's answer cannot be true.
type operation func(ctx context.Context, s store) (wrong bool, err error)

// How long clients work: a number of operations each, or until a deadline.
type length struct {
	operations int
	seconds    float64
}

type result struct {
	Operations int     `json:"operations"`
	Seconds    float64 `json:"seconds"`
	Errors     int     `json:"errors"`
	FirstError string  `json:"first_error,omitempty"`
	Wrong      int     `json:"wrong"`
	Mean       float64 `json:"mean_ms"`
	P50        float64 `json:"p50_ms"`
	P95        float64 `json:"p95_ms"`
	P99        float64 `json:"p99_ms"`
}

// The first operations of a connection prepare its statements.
const warmUp = 20

// Each client has a connection and an operation of its own. The clock starts when all have warmed up.
func drive(ctx context.Context, open opener, clients int, until length, of func(client int) operation) result {
	var ready, done sync.WaitGroup
	start := new(atomic.Int64)
	begin := sync.OnceFunc(func() { start.Store(time.Now().UnixNano()) })
	ready.Add(clients)
	tallies := make([]tally, clients)
	for client := range clients {
		done.Go(func() {
			tallies[client].work(ctx, open, until, of(client), func() {
				ready.Done()
				ready.Wait()
				begin()
			})
		})
	}
	done.Wait()
	seconds := time.Since(time.Unix(0, start.Load())).Seconds()
	return sum(tallies, seconds)
}

type tally struct {
	times  []time.Duration
	errors []string
	wrong  int
}

func (t *tally) work(ctx context.Context, open opener, until length, next operation, together func()) {
	s, err := open(ctx)
	if err != nil {
		t.errors = append(t.errors, err.Error())
		together()
		return
	}
	defer s.close()
	for range warmUp {
		t.judge(next(ctx, s))
	}
	together()
	end := time.Now().Add(time.Duration(until.seconds * float64(time.Second)))
	for len(t.times) < until.operations || (until.operations == 0 && time.Now().Before(end)) {
		from := time.Now()
		wrong, err := next(ctx, s)
		t.times = append(t.times, time.Since(from))
		t.judge(wrong, err)
	}
}

func (t *tally) judge(wrong bool, err error) {
	if err != nil {
		t.errors = append(t.errors, err.Error())
	} else if wrong {
		t.wrong++
	}
}

func sum(tallies []tally, seconds float64) result {
	var times []time.Duration
	all := result{Seconds: seconds}
	for _, one := range tallies {
		times = append(times, one.times...)
		all.Wrong += one.wrong
		all.Errors += len(one.errors)
		if all.FirstError == "" && len(one.errors) > 0 {
			all.FirstError = one.errors[0]
		}
	}
	all.Operations = len(times)
	all.Mean, all.P50, all.P95, all.P99 = figures(times)
	return all
}

func figures(times []time.Duration) (mean, p50, p95, p99 float64) {
	if len(times) == 0 {
		return 0, 0, 0, 0
	}
	slices.Sort(times)
	total := time.Duration(0)
	for _, one := range times {
		total += one
	}
	at := func(share float64) float64 { return milliseconds(times[int(share*float64(len(times)-1))]) }
	return milliseconds(total) / float64(len(times)), at(0.50), at(0.95), at(0.99)
}

func milliseconds(time time.Duration) float64 { return time.Seconds() * 1000 }
