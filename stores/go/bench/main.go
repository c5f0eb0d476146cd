// Compares gocache over SQL with gocache over the Redis protocol in one run: requests a second, and the processor
// time of server and client for each request. Server and client must be on this machine.
//
//	PGHOST=... PGDATABASE=... DOOR_URL=redis://... [REDIS_URL=redis://...] go run . [REQUESTS [ROUNDS]]
//
// The database needs the extension, and the server pgcache.resp_port. DOOR_URL names a role with privileges on its
// cache.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/eko/gocache/lib/v4/store"
	redisstore "github.com/eko/gocache/store/redis/v4"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"pgcache/stores/go"
)

const clients = 8

var ctx = context.Background()

type system struct {
	name   string
	store  store.StoreInterface
	server func() time.Duration
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// stat returns the fields of /proc/PID/stat after the name, or none.
func stat(pid string) []string {
	line, _ := os.ReadFile("/proc/" + pid + "/stat")
	return strings.Fields(string(line[strings.LastIndexByte(string(line), ')')+1:]))
}

// used returns a process's own time and that of its children that have ended; it is exact to hundredths of a second.
func used(stat []string) (sum time.Duration) {
	for _, field := range stat[11:15] {
		ticks, _ := strconv.Atoi(field)
		sum += time.Duration(ticks) * 10 * time.Millisecond
	}
	return sum
}

func postgres(db *pgxpool.Pool) func() time.Duration {
	var pid int
	must(db.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid))
	parent := stat(strconv.Itoa(pid))[1]
	return func() (sum time.Duration) {
		processes, _ := filepath.Glob("/proc/[0-9]*")
		for _, process := range processes {
			pid := filepath.Base(process)
			if fields := stat(pid); len(fields) > 15 && (pid == parent || fields[1] == parent) {
				sum += used(fields)
			}
		}
		return sum
	}
}

func overRedis(name, url string, server func() time.Duration) system {
	options, err := redis.ParseURL(url)
	must(err)
	client := redis.NewClient(options)
	if server == nil {
		info, err := client.Info(ctx, "server").Result()
		must(err)
		pid := strings.Fields(info[strings.Index(info, "process_id:")+len("process_id:"):])[0]
		server = func() time.Duration { return used(stat(pid)) }
	}
	return system{name, redisstore.NewRedis(client), server}
}

func cpu() time.Duration {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// measure returns requests a second, and the microseconds of the server and of the client for each request.
func measure(of system, requests int, work func(store.StoreInterface, string) error) [3]float64 {
	var next atomic.Int64
	var all sync.WaitGroup
	from, server, client := time.Now(), of.server(), cpu()
	for range clients {
		all.Go(func() {
			for n := next.Add(1); n <= int64(requests); n = next.Add(1) {
				must(work(of.store, fmt.Sprint("bench:", n%1000)))
			}
		})
	}
	all.Wait()
	count := float64(requests)
	return [3]float64{
		count / time.Since(from).Seconds(),
		(of.server() - server).Seconds() * 1e6 / count,
		(cpu() - client).Seconds() * 1e6 / count,
	}
}

func main() {
	sizes := []int{20_000, 5}
	for n, argument := range os.Args[1:] {
		size, err := strconv.Atoi(argument)
		must(err)
		sizes[n] = size
	}
	db, err := pgxpool.New(ctx, fmt.Sprint("pool_max_conns=", clients))
	must(err)
	_, err = db.Exec(ctx, `SELECT cache_create('bench_unlogged', if_not_exists => true),
		cache_create('bench_memory', storage => 'memory', if_not_exists => true)`)
	must(err)
	server := postgres(db)
	systems := []system{
		{"SQL, memory", pgcache.New[string](db, "bench_memory"), server},
		{"SQL, unlogged", pgcache.New[string](db, "bench_unlogged"), server},
	}
	if url := os.Getenv("DOOR_URL"); url != "" {
		systems = append(systems, overRedis("the door, memory", url, server))
	}
	if url := os.Getenv("REDIS_URL"); url != "" {
		systems = append(systems, overRedis("Redis", url, nil))
	}

	value := strings.Repeat("x", 400)
	set := func(s store.StoreInterface, key string) error {
		return s.Set(ctx, key, value, store.WithExpiration(10*time.Minute))
	}
	get := func(s store.StoreInterface, key string) error { _, err := s.Get(ctx, key); return err }
	runs := map[string][][3]float64{}
	for round := range sizes[1] + 1 {
		for _, system := range systems {
			stored, read := measure(system, sizes[0], set), measure(system, sizes[0], get)
			if round > 0 { // the first one warms up
				runs["set, "+system.name] = append(runs["set, "+system.name], stored)
				runs["get, "+system.name] = append(runs["get, "+system.name], read)
			}
		}
	}
	for _, what := range []string{"get, ", "set, "} {
		for _, system := range systems {
			var median [3]float64
			for column := range median {
				var values []float64
				for _, run := range runs[what+system.name] {
					values = append(values, run[column])
				}
				slices.Sort(values)
				median[column] = values[len(values)/2]
			}
			fmt.Printf("%-24s %.0f requests/s, server %.0f µs, client %.0f µs\n", what+system.name, median[0], median[1], median[2])
		}
	}
}
