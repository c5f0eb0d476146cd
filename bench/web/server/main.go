// The web server of the published rounds: /get and /set over one cache, Redis or Postgres.
//
// It decides nothing: a request is one call of the store. Hits answer 200 with the value, misses 404.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"os/signal"
	"syscall"
)

type store interface {
	get(ctx context.Context, key string) (value []byte, found bool, err error)
	set(ctx context.Context, key string, value []byte) error
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to serve HTTP on")
	redisAddress := flag.String("redis", "", "unix socket or host:port of Redis")
	postgres := flag.String("postgres", "", "connection string of Postgres")
	readSQL := flag.String("read-sql", "", "the key is $1")
	writeSQL := flag.String("write-sql", "", "the key is $1, the value $2")
	connections := flag.Int("connections", 16, "held to the store")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	cache, err := open(ctx, *redisAddress, *postgres, *readSQL, *writeSQL, *connections)
	if err != nil {
		log.Fatal(err)
	}
	if err := serve(ctx, *listen, cache); err != nil {
		log.Fatal(err)
	}
}

func open(ctx context.Context, redisAddress, postgres, readSQL, writeSQL string, connections int) (store, error) {
	switch {
	case redisAddress != "":
		return openRedis(ctx, redisAddress, connections)
	case postgres != "":
		return openPostgres(ctx, postgres, readSQL, writeSQL, connections)
	}
	return nil, errors.New("name a store: -redis or -postgres")
}

func serve(ctx context.Context, address string, cache store) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	log.Printf("listening on %s", listener.Addr()) // whoever started us reads the port here
	server := &http.Server{Handler: routes(cache)}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func routes(cache store) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /get", func(w http.ResponseWriter, r *http.Request) {
		value, found, err := cache.get(r.Context(), r.URL.Query().Get("key"))
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case !found:
			w.WriteHeader(http.StatusNotFound)
		default:
			w.Write(value)
		}
	})
	mux.HandleFunc("POST /set", func(w http.ResponseWriter, r *http.Request) {
		value, err := io.ReadAll(r.Body)
		if err == nil {
			err = cache.set(r.Context(), r.URL.Query().Get("key"), value)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}
