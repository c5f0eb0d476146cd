package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Changes that are told are the events; each watcher looks at keys of its own. A client makes all events of a
// watcher, so that they must come in order.
const writers = 10

// More than any of them takes, and an end where one is lost.
const patience = 60 * time.Second

type watchResult struct {
	result
	Lost int `json:"lost"` // a watcher's events that never came; those twice or out of order are wrong
}

type watcher struct {
	sent    []time.Time
	came    []string
	delays  []time.Duration
	problem error
}

func prefix(number int) string { return fmt.Sprintf("watch:%03d:", number) }

func eventKey(number, event int) string { return fmt.Sprintf("%s%04d", prefix(number), event) }

func watchers(ctx context.Context, open opener, count, events int) (watchResult, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	each := events / count
	all := make([]watcher, count)
	var ready, listening sync.WaitGroup
	var times sync.Mutex
	for number := range all {
		all[number].sent = make([]time.Time, each)
		ready.Add(1)
		listening.Go(func() { all[number].listen(ctx, open, prefix(number), sync.OnceFunc(ready.Done), &times) })
	}
	ready.Wait()
	start := time.Now()
	made := drive(ctx, open, writers, length{operations: events / writers}, func(client int) operation {
		return changes(all, client, each, &times)
	})
	listening.Wait()
	return tell(all, each, made, time.Since(start)), nil
}

// The warm-up of a client changes keys that nobody watches.
func changes(all []watcher, client, each int, times *sync.Mutex) operation {
	done := -warmUp
	return func(ctx context.Context, s store) (bool, error) {
		turn := done
		done++
		if turn < 0 {
			return false, s.put(ctx, "unwatched", "warm-up")
		}
		number, event := client+writers*(turn/each), turn%each
		times.Lock()
		all[number].sent[event] = time.Now()
		times.Unlock()
		return false, s.put(ctx, eventKey(number, event), "event")
	}
}

// Until the last of its events came.
func (w *watcher) listen(ctx context.Context, open opener, prefix string, ready func(), times *sync.Mutex) {
	defer ready()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s, err := open(ctx)
	if err != nil {
		w.problem = err
		return
	}
	defer s.close()
	err = s.watch(ctx, prefix, ready, func(key string) {
		now := time.Now()
		times.Lock()
		defer times.Unlock()
		w.came = append(w.came, key)
		if event, err := strconv.Atoi(strings.TrimPrefix(key, prefix)); err == nil && event < len(w.sent) {
			w.delays = append(w.delays, now.Sub(w.sent[event]))
		}
		if len(w.came) == len(w.sent) {
			stop()
		}
	})
	if len(w.came) < len(w.sent) {
		w.problem = err
	}
}

func tell(all []watcher, each int, made result, took time.Duration) watchResult {
	told := watchResult{result: result{Errors: made.Errors, FirstError: made.FirstError, Wrong: made.Wrong, Seconds: took.Seconds()}}
	var delays []time.Duration
	for number := range all {
		w := &all[number]
		told.Operations += len(w.came)
		told.Lost += each - len(w.came)
		if !slices.IsSorted(w.came) || len(slices.Compact(slices.Clone(w.came))) != len(w.came) {
			told.Wrong++
		}
		if w.problem != nil {
			told.Errors++
			told.FirstError = w.problem.Error()
		}
		delays = append(delays, w.delays...)
	}
	told.Mean, told.P50, told.P95, told.P99 = figures(delays)
	return told
}
