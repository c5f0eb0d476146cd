package main

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

type redisStore struct{ client *redis.Client }

func openRedis(ctx context.Context, address string, connections int) (store, error) {
	network := "tcp"
	if strings.Contains(address, "/") {
		network = "unix"
	}
	client := redis.NewClient(&redis.Options{Network: network, Addr: address, PoolSize: connections, MinIdleConns: connections})
	return redisStore{client}, client.Ping(ctx).Err()
}

func (s redisStore) get(ctx context.Context, key string) ([]byte, bool, error) {
	value, err := s.client.Get(ctx, key).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, false, nil
	}
	return value, err == nil, err
}

func (s redisStore) set(ctx context.Context, key string, value []byte) error {
	return s.client.Set(ctx, key, value, 0).Err()
}
