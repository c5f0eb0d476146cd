package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/rueidis"
)

func rueidisClient(url string) error {
	ctx := context.Background()
	option, err := rueidis.ParseURL(url)
	if err != nil {
		return err
	}
	option.DisableCache = true
	client, err := rueidis.NewClient(option)
	if err != nil {
		return err
	}
	defer client.Close()
	b := client.B
	do := func(command rueidis.Completed) string {
		answer := client.Do(ctx, command)
		value, err := answer.ToAny()
		return fmt.Sprint(value, err)
	}
	fmt.Println("set", do(b().Set().Key("tea").Value("hot").ExSeconds(60).Build()), do(b().Set().Key("tea").Value("x").Nx().Build()))
	fmt.Println("get", do(b().Get().Key("tea").Build()), do(b().Get().Key("nothing").Build()))
	left, err := client.Do(ctx, b().Ttl().Key("tea").Build()).AsInt64()
	fmt.Println("ttl", 0 < left && left <= 60, err, do(b().Persist().Key("tea").Build()), do(b().Ttl().Key("tea").Build()))
	fmt.Println("incr", do(b().Incr().Key("n").Build()), do(b().Incrby().Key("n").Increment(41).Build()))
	fmt.Println("many", do(b().Mset().KeyValue().KeyValue("a", "1").KeyValue("b", "2").Build()), do(b().Mget().Key("a", "b", "c").Build()))

	var keys []string
	for cursor := uint64(0); ; {
		entry, err := client.Do(ctx, b().Scan().Cursor(cursor).Match("*").Count(2).Build()).AsScanEntry()
		if err != nil {
			return err
		}
		keys = append(keys, entry.Elements...)
		if cursor = entry.Cursor; cursor == 0 {
			break
		}
	}
	slices.Sort(keys)
	fmt.Println("scan", slices.Compact(keys))
	for _, answer := range client.DoMulti(ctx, b().Set().Key("p").Value("1").Build(), b().Incr().Key("p").Build(), b().Incr().Key("tea").Build()) {
		value, err := answer.ToAny()
		fmt.Println("pipeline", value, err)
	}
	err = client.Dedicated(func(one rueidis.DedicatedClient) error {
		for _, answer := range one.DoMulti(ctx, b().Watch().Key("n").Build(), b().Multi().Build(), b().Incr().Key("n").Build(), b().Exec().Build()) {
			value, err := answer.ToAny()
			fmt.Println("multi", value, err)
		}
		return nil
	})
	if err != nil {
		return err
	}

	heard := make(chan rueidis.PubSubMessage)
	listening, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	go func() {
		_ = client.Receive(listening, b().Subscribe().Channel("rueidis").Build(), func(message rueidis.PubSubMessage) { heard <- message })
		close(heard)
	}()
	for do(b().Publish().Channel("rueidis").Message("hello").Build()) == "0 <nil>" && listening.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("pubsub", <-heard)
	fmt.Println("clear", do(b().Flushdb().Build()), do(b().Dbsize().Build()))
	return nil
}
