// The client of bench/kv: one load on one store, the result as one line of JSON. Each client has a connection
// of its own and one operation in flight.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
)

func main() {
	store := flag.String("store", "pgcache", "pgcache or etcd")
	where := flag.String("where", "", "connection string, or etcd's endpoint")
	load := flag.String("load", "", "half-puts, puts, everything, watchers or transactions")
	clients := flag.Int("clients", 10, "clients, or watchers")
	operations := flag.Int("operations", 0, "of each client, or events of all")
	seconds := flag.Float64("seconds", 0, "instead of operations")
	flag.Parse()

	open := openPgcache(*where)
	if *store == "etcd" {
		open = openEtcd(*where)
	}
	measured, err := run(context.Background(), open, *load, *clients, length{*operations, *seconds})
	if err != nil {
		fmt.Fprintln(os.Stderr, "kv:", err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(measured); err != nil {
		fmt.Fprintln(os.Stderr, "kv:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, open opener, load string, clients int, until length) (any, error) {
	operations := map[string]func(client int) operation{
		"half-puts": halfPuts, "puts": onlyPuts, "everything": everything, "transactions": transactions,
	}
	if load == "watchers" {
		return watchers(ctx, open, clients, until.operations)
	}
	operation, known := operations[load]
	if !known {
		return nil, fmt.Errorf("no load is called %q", load)
	}
	if err := preload(ctx, open); err != nil {
		return nil, err
	}
	return drive(ctx, open, clients, until, operation), nil
}
