package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// One answer in this many is timed. If each answer were timed, reading the clock would take most of the measured time.
const timed = 16

type counts struct {
	requests   int
	kinds      [3]int
	errors     int
	firstError string
	wrong      int
	// The longest time after the acknowledgement of a change at which an older value was still returned.
	behind time.Duration
	times  []time.Duration
}

func (s *shop) visit(ctx context.Context, c *counts, random *rand.Rand, end time.Time) {
	for now := time.Now(); now.Before(end); now = time.Now() {
		for i := range timed {
			id := next(random)
			known, at := 0, time.Time{}
			if *writes > 0 && id <= products {
				one := &s.versions[id]
				one.Lock()
				known, at = one.number, one.at
				one.Unlock()
			}
			began := time.Now()
			value, kind, err := s.ask(ctx, id)
			if i == 0 {
				c.times = append(c.times, time.Since(began))
			}
			c.requests++
			c.kinds[kind]++
			if err != nil {
				c.errors++
				c.firstError = err.Error()
				continue
			}
			c.judge(id, value, known, began.Sub(at))
		}
	}
}

// Checks an answer. It counts as wrong unless it is a version of the product. If it is older than `known`, which was
// acknowledged `ago` before the request, the application was at least that far behind.
func (c *counts) judge(id int, value string, known int, ago time.Duration) {
	var of, number int
	switch {
	case id > products:
		c.wrong += count(value != "")
	case *writes == 0:
		c.wrong += count(value != product(id, 0))
	default:
		if _, err := fmt.Sscanf(value, "product %d %d", &of, &number); err != nil || of != id {
			c.wrong++
		} else if number < known {
			c.behind = max(c.behind, ago)
		}
	}
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func report(all []*counts, s *shop, took time.Duration) map[string]any {
	var sum counts
	for _, one := range all {
		sum.requests += one.requests
		for kind, number := range one.kinds {
			sum.kinds[kind] += number
		}
		sum.errors += one.errors
		sum.wrong += one.wrong
		sum.behind = max(sum.behind, one.behind)
		sum.times = append(sum.times, one.times...)
		if sum.firstError == "" {
			sum.firstError = one.firstError
		}
	}
	slices.Sort(sum.times)
	at := func(share float64) float64 {
		if len(sum.times) == 0 {
			return 0
		}
		return float64(sum.times[int(share*float64(len(sum.times)-1))].Nanoseconds()) / 1000
	}
	return map[string]any{
		"requests": sum.requests, "seconds": took.Seconds(), "queries": s.queries.Load(), "stale": sum.kinds[stale],
		"loaded": sum.kinds[loaded], "errors": sum.errors, "first_error": sum.firstError, "wrong": sum.wrong,
		"behind_ms": float64(sum.behind.Microseconds()) / 1000, "p50_us": at(0.5), "p95_us": at(0.95), "p99_us": at(0.99),
	}
}
