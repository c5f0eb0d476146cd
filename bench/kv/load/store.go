package main

import "context"

// One connection of one client. A load knows no more of a store than this.
type store interface {
	put(ctx context.Context, key, value string) error
	get(ctx context.Context, key string) (value string, found bool, err error)
	// The entries whose keys begin with prefix, in key order.
	scan(ctx context.Context, prefix string, most int) ([]entry, error)
	delete(ctx context.Context, key string) error
	// All or none.
	putAll(ctx context.Context, entries []entry) error
	// Calls arrived with the key of each change below prefix until ctx ends or something fails. It calls
	// ready once, as soon as no later change can be missed.
	watch(ctx context.Context, prefix string, ready func(), arrived func(key string)) error
	close()
}

type entry struct{ key, value string }

type opener func(ctx context.Context) (store, error)
