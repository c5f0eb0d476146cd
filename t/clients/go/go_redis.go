package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

func goRedis(url string) error {
	ctx := context.Background()
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	for _, protocol := range []int{2, 3} {
		options.Protocol = protocol
		client := redis.NewClient(options)
		fmt.Println("protocol", protocol)
		if err := goRedisSheet(ctx, client); err != nil {
			return err
		}
		if err := client.Close(); err != nil {
			return err
		}
	}
	return nil
}

func goRedisSheet(ctx context.Context, c *redis.Client) error {
	fmt.Println(c.Set(ctx, "tea", "hot", time.Minute), c.SetNX(ctx, "tea", "x", 0), c.SetXX(ctx, "none", "x", 0))
	fmt.Println(c.Get(ctx, "tea"), c.Get(ctx, "nothing").Err() == redis.Nil, c.StrLen(ctx, "tea"))
	left := c.TTL(ctx, "tea").Val()
	fmt.Println("ttl", 0 < left && left <= time.Minute, c.TTL(ctx, "nothing"), c.Persist(ctx, "tea"), c.TTL(ctx, "tea"))
	fmt.Println(c.Incr(ctx, "n"), c.IncrBy(ctx, "n", 41), c.Decr(ctx, "n"), c.IncrByFloat(ctx, "f", 1.5))
	fmt.Println(c.MSet(ctx, "a", 1, "b", 2), c.MGet(ctx, "a", "b", "c"), c.Exists(ctx, "a", "c"), c.Del(ctx, "a", "c"))

	var keys []string
	for walk := c.Scan(ctx, 0, "*", 2).Iterator(); walk.Next(ctx); {
		keys = append(keys, walk.Val())
	}
	slices.Sort(keys)
	fmt.Println("scan", slices.Compact(keys), c.DBSize(ctx))

	pipe, err := c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "p", 1, 0)
		pipe.Incr(ctx, "p")
		return nil
	})
	fmt.Println("pipeline", pipe, err)
	tx, err := c.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Incr(ctx, "n")
		pipe.Get(ctx, "n")
		return nil
	})
	fmt.Println("multi", tx, err)
	err = c.Watch(ctx, func(tx *redis.Tx) error {
		c.Incr(ctx, "n")
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return pipe.Set(ctx, "n", 0, 0).Err() })
		return err
	}, "n")
	fmt.Println("watch", errors.Is(err, redis.TxFailedErr), c.Incr(ctx, "tea").Err())

	listener := c.Subscribe(ctx, "go_redis")
	defer listener.Close()
	if _, err := listener.Receive(ctx); err != nil {
		return err
	}
	fmt.Println(c.Publish(ctx, "go_redis", "hello"))
	message, err := listener.ReceiveTimeout(ctx, 10*time.Second)
	fmt.Println("pubsub", message, err)
	fmt.Println(c.FlushDB(ctx), c.DBSize(ctx))
	return nil
}
