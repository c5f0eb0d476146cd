package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pgx prepares each statement once a connection by itself.
type postgresStore struct {
	pool              *pgxpool.Pool
	readSQL, writeSQL string
}

func openPostgres(ctx context.Context, where, readSQL, writeSQL string, connections int) (store, error) {
	config, err := pgxpool.ParseConfig(where)
	if err != nil {
		return nil, fmt.Errorf("connection string: %w", err)
	}
	config.MaxConns, config.MinConns = int32(connections), int32(connections)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return postgresStore{pool, readSQL, writeSQL}, pool.Ping(ctx)
}

// A miss is no row from a table and a NULL from a function.
func (s postgresStore) get(ctx context.Context, key string) ([]byte, bool, error) {
	var value *string
	err := s.pool.QueryRow(ctx, s.readSQL, key).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) || (err == nil && value == nil) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return []byte(*value), true, nil
}

func (s postgresStore) set(ctx context.Context, key string, value []byte) error {
	_, err := s.pool.Exec(ctx, s.writeSQL, key, string(value))
	return err
}
