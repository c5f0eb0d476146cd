package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Entries are key:00000 to key:09999 with values that begin with their key, so that a wrong answer shows.
const (
	keys    = 10000
	perScan = 100
	groups  = 20
)

var filling = strings.Repeat("v", 100)

func key(number int) string { return fmt.Sprintf("key:%05d", number) }

func valueOf(key string) string { return key + " " + filling }

func belongs(key, value string) bool { return strings.HasPrefix(value, key+" ") }

func preload(ctx context.Context, open opener) error {
	s, err := open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	const atOnce = 100 // etcd takes 128
	for first := 0; first < keys && err == nil; first += atOnce {
		some := make([]entry, atOnce)
		for i := range some {
			some[i] = entry{key(first + i), valueOf(key(first + i))}
		}
		err = s.putAll(ctx, some)
	}
	return err
}

func put(ctx context.Context, s store, key string) (bool, error) {
	return false, s.put(ctx, key, valueOf(key))
}

// Nothing is deleted where must is set.
func get(ctx context.Context, s store, key string, must bool) (bool, error) {
	value, found, err := s.get(ctx, key)
	return found && !belongs(key, value) || must && !found, err
}

func scan(ctx context.Context, s store, prefix string) (bool, error) {
	found, err := s.scan(ctx, prefix, perScan)
	last := ""
	for _, entry := range found {
		if entry.key <= last || !strings.HasPrefix(entry.key, prefix) || !belongs(entry.key, entry.value) {
			return true, err
		}
		last = entry.key
	}
	return false, err
}

// Clients draw their keys from streams of their own: every run asks for the same.
func random(client int) *rand.Rand { return rand.New(rand.NewPCG(7, uint64(client))) }

func halfPuts(client int) operation {
	chance := random(client)
	return func(ctx context.Context, s store) (bool, error) {
		key := key(chance.IntN(keys))
		if chance.IntN(2) == 0 {
			return put(ctx, s, key)
		}
		return get(ctx, s, key, true)
	}
}

func onlyPuts(client int) operation {
	chance := random(client)
	return func(ctx context.Context, s store) (bool, error) { return put(ctx, s, key(chance.IntN(keys))) }
}

// 40 % PUT, 40 % GET, 10 % RANGE, 10 % DELETE.
func everything(client int) operation {
	chance := random(client)
	return func(ctx context.Context, s store) (bool, error) {
		key := key(chance.IntN(keys))
		switch dice := chance.IntN(10); {
		case dice < 4:
			return put(ctx, s, key)
		case dice < 8:
			return get(ctx, s, key, false)
		case dice < 9:
			return scan(ctx, s, key[:len(key)-2])
		default:
			return false, s.delete(ctx, key)
		}
	}
}

// Entries that one transaction puts.
func group(number int, value string) []entry {
	name := groupName(number)
	return []entry{{name + "a", value}, {name + "b", value}, {name + "c", value}}
}

func groupName(number int) string { return fmt.Sprintf("group:%02d:", number) }

// Every tenth looks at a group, too, while others change it.
func transactions(client int) operation {
	chance := random(client)
	done := 0
	return func(ctx context.Context, s store) (bool, error) {
		done++
		number := chance.IntN(groups)
		err := s.putAll(ctx, group(number, fmt.Sprintf("%d/%d", client, done)))
		if err != nil || done%10 != 0 {
			return false, err
		}
		return torn(ctx, s, groupName(number))
	}
}

// Whether what one look sees is not of one transaction.
func torn(ctx context.Context, s store, name string) (bool, error) {
	found, err := s.scan(ctx, name, perScan)
	return err == nil && (len(found) != 3 || found[0].value != found[1].value || found[1].value != found[2].value), err
}
