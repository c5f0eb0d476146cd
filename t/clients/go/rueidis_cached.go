package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

// rueidis with the cache of its own, which the server keeps true (CLIENT TRACKING).
func rueidisCached(url string) error {
	ctx := context.Background()
	option, err := rueidis.ParseURL(url)
	if err != nil {
		return err
	}
	client, err := rueidis.NewClient(option)
	if err != nil {
		return err
	}
	defer client.Close()
	option.DisableCache = true
	other, err := rueidis.NewClient(option)
	if err != nil {
		return err
	}
	defer other.Close()

	get := func() (string, bool) {
		answer := client.DoCache(ctx, client.B().Get().Key("k").Cache(), time.Hour)
		value, err := answer.ToString()
		if err != nil {
			value = err.Error()
		}
		return value, answer.IsCacheHit()
	}
	// Reads until the invalidation arrives, which it must sooner or later.
	until := func(wanted string) string {
		value, _ := get()
		for tries := 0; tries < 500 && value != wanted; tries++ {
			time.Sleep(10 * time.Millisecond)
			value, _ = get()
		}
		return value
	}
	set := func(value string) {
		fmt.Println("set", other.Do(ctx, other.B().Set().Key("k").Value(value).Build()).Error())
	}
	set("one")
	fmt.Println(get())
	fmt.Println(get())
	set("two")
	fmt.Println("told", until("two"))
	fmt.Println("del", other.Do(ctx, other.B().Del().Key("k").Build()).Error(), until("redis nil message"))
	set("three")
	fmt.Println("told", until("three"))
	fmt.Println("clear", other.Do(ctx, other.B().Flushdb().Build()).Error(), until("redis nil message"))
	return nil
}
