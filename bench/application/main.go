// Simulates an application that keeps the values that it reads in its own memory. Reads go first to rueidis'
// client-side cache, whose entries the server invalidates, then to pgcache, whose leases choose one caller to refresh a
// value, and last to a slow database. A visitor is a goroutine that requests one product after the other.
//
// With -writes, source rows change that many times a second, and each answer is compared with the acknowledged
// versions.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"
)

var (
	resp     = flag.String("resp", "", "unix socket of the Redis protocol")
	postgres = flag.String("postgres", "", "connection string")
	visitors = flag.Int("clients", 100, "visitors at once")
	seconds  = flag.Float64("seconds", 10, "length of the run")
	pool     = flag.Int("pool", 20, "connections of the slow database")
	latency  = flag.Int("latency-ms", 85, "for which a query keeps one of them")
	writes   = flag.Int("writes", 0, "changes of source rows a second")
)

func main() {
	flag.Parse()
	out, err := run(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(out)
}

func run(ctx context.Context) (map[string]any, error) {
	shop := newShop()
	near, err := rueidis.NewClient(rueidis.ClientOption{
		OnInvalidations:   shop.forget,
		InitAddress:       []string{"localhost:0"},
		ForceSingleClient: true,
		DialCtxFn: func(ctx context.Context, _ string, dialer *net.Dialer, _ *tls) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", *resp)
		},
	})
	if err != nil {
		return nil, err
	}
	defer near.Close()
	sql, err := pgxpool.New(ctx, *postgres)
	if err != nil {
		return nil, err
	}
	defer sql.Close()

	shop.near, shop.sql = near, sql
	end := time.Now().Add(time.Duration(*seconds * float64(time.Second)))
	began := time.Now()
	all := make([]*counts, *visitors)
	var group sync.WaitGroup
	if *writes > 0 {
		group.Go(func() { shop.write(ctx, end) })
	}
	for i := range all {
		all[i] = &counts{}
		group.Go(func() { shop.visit(ctx, all[i], rand.New(rand.NewPCG(uint64(i), 0)), end) })
	}
	group.Wait()
	return report(all, shop, time.Since(began)), nil
}
