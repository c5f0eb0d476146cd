package pgcache

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

func (s *Store[T]) row(ctx context.Context, into []any, sql string, args ...any) error {
	return s.again(ctx, func() error { return s.db.QueryRow(ctx, sql, args...).Scan(into...) })
}

func (s *Store[T]) exec(ctx context.Context, sql string, args ...any) error {
	return s.again(ctx, func() error { _, err := s.db.Exec(ctx, sql, args...); return err })
}

// again runs a statement that may run twice.
func (s *Store[T]) again(ctx context.Context, ask func() error) error {
	err := ask()
	if pool, ok := s.db.(interface{ Reset() }); ok && lost(err) && ctx.Err() == nil {
		pool.Reset() // the idle connections may be lost, too, and the pool would lend them one after the other
		return ask()
	}
	return err
}

// lost returns whether the server or a pooler closed the connection. A server that refuses a new connection is not
// tried again at once.
func lost(err error) bool {
	var refused *pgconn.ConnectError
	var answer *pgconn.PgError
	var network *net.OpError
	switch {
	case err == nil || errors.As(err, &refused):
		return false
	case errors.As(err, &answer):
		return answer.Code == "57P01" || answer.Code == "57P02" || strings.HasPrefix(answer.Code, "08")
	default:
		return pgconn.SafeToRetry(err) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.As(err, &network)
	}
}
