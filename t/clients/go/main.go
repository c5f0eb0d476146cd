// go-redis and rueidis, each with what it sends unasked.
package main

import (
	"fmt"
	"os"
)

func main() {
	programs := map[string]func(string) error{"go-redis": goRedis, "rueidis": rueidisClient, "rueidis-cached": rueidisCached}
	if err := programs[os.Args[1]](os.Getenv("REDIS_URL")); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
