module pgcache/stores/go

go 1.26.0

require (
	github.com/eko/gocache/lib/v4 v4.2.0
	github.com/jackc/pgx/v5 v5.12.0
	golang.org/x/sync v0.22.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	go.uber.org/mock v0.4.0 // indirect
	golang.org/x/exp v0.0.0-20240416160154-fe59bbe5cc7f // indirect
	golang.org/x/text v0.41.0 // indirect
)
