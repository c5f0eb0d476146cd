// pgcache from Go: read-through, a counter, a rate limit, invalidation by a table. Uses pgx.
//
// Connects to the database that PGHOST, PGDATABASE, ... name and examples/setup.sql has prepared.
package main

import (
	"context"
	"fmt"
	"log"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"
)

// The server runs this query on a miss, in only one of the sessions that miss the same key.
const loader = "SELECT name FROM example_shop.products WHERE id = $1::int"

type shop struct{ db *pgxpool.Pool }

// Returns the name of a product, or nil if it does not exist. The cache stores both results.
func (s shop) productName(ctx context.Context, id int) (name *string, err error) {
	err = s.db.QueryRow(ctx, "SELECT cache_fetch($1, $2, cache => 'example_shop.product_names')", strconv.Itoa(id), loader).Scan(&name)
	return name, err
}

func (s shop) isCached(ctx context.Context, id int) (found bool, err error) {
	err = s.db.QueryRow(ctx, "SELECT cache_exists($1, 'example_shop.product_names')", strconv.Itoa(id)).Scan(&found)
	return found, err
}

func (s shop) countVisit(ctx context.Context, page string) (visits int64, err error) {
	err = s.db.QueryRow(ctx, "SELECT cache_incr($1, cache => 'example_shop.visits')", page).Scan(&visits)
	return visits, err
}

// Allows three calls an hour. A web server would answer 429, with retry_after as its Retry-After header.
func (s shop) mayCall(ctx context.Context, client string) (string, error) {
	var allowed bool
	var remaining int64
	err := s.db.QueryRow(ctx, "SELECT allowed, remaining FROM cache_rate_limit($1, 3, '1 hour', 'example_shop.limits')", client).
		Scan(&allowed, &remaining)
	if err != nil || !allowed {
		return "refused, try again later", err
	}
	return fmt.Sprintf("allowed, %d left", remaining), nil
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func orAbsent(name *string) string {
	if name == nil {
		return "does not exist"
	}
	return *name
}

// Ends the program on an error, because an example has no caller that could handle it.
func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	ctx := context.Background()
	db := must(pgxpool.New(ctx, ""))
	defer db.Close()
	s := shop{db}

	fmt.Println("Read-through")
	fmt.Println("  cached:", yesNo(must(s.isCached(ctx, 1))))
	fmt.Println("  product 1:", orAbsent(must(s.productName(ctx, 1))))
	fmt.Println("  cached:", yesNo(must(s.isCached(ctx, 1))))
	fmt.Println("  product 2:", orAbsent(must(s.productName(ctx, 2))))

	fmt.Println("Invalidation by the table")
	must(db.Exec(ctx, "UPDATE example_shop.products SET name = $1 WHERE id = $2", "kettle", 1))
	fmt.Println("  cached:", yesNo(must(s.isCached(ctx, 1))))
	fmt.Println("  product 1:", orAbsent(must(s.productName(ctx, 1))))
	must(db.Exec(ctx, "INSERT INTO example_shop.products VALUES ($1, $2)", 2, "cup"))
	fmt.Println("  product 2:", orAbsent(must(s.productName(ctx, 2))))

	fmt.Println("Counter")
	for range 2 {
		fmt.Println("  visits of /home:", must(s.countVisit(ctx, "/home")))
	}

	fmt.Println("Rate limit")
	for range 4 {
		fmt.Println(" ", must(s.mayCall(ctx, "client-7")))
	}
}
