"""pgcache from Python: read-through, a counter, a rate limit, invalidation by a table. Uses psycopg 3.

Connects as libpq does (PGHOST, PGDATABASE, ...) to a database that examples/setup.sql has prepared.
"""

import psycopg

# The server runs this query on a miss, in only one of the sessions that miss the same key.
LOADER = "SELECT name FROM example_shop.products WHERE id = $1::int"


def one(db, query, *args):
    return db.execute(query, args).fetchone()


def product_name(db, product_id):
    """Returns the name of a product, or None if it does not exist. The cache stores both results."""
    (name,) = one(db, "SELECT cache_fetch(%s, %s, cache => 'example_shop.product_names')", str(product_id), LOADER)
    return name


def is_cached(db, product_id):
    (found,) = one(db, "SELECT cache_exists(%s, 'example_shop.product_names')", str(product_id))
    return "yes" if found else "no"


def count_visit(db, page):
    (visits,) = one(db, "SELECT cache_incr(%s, cache => 'example_shop.visits')", page)
    return visits


def may_call(db, client):
    """Allows three calls an hour. A web server would answer 429, with retry_after as its Retry-After header."""
    allowed, remaining, retry_after = one(
        db, "SELECT allowed, remaining, retry_after FROM cache_rate_limit(%s, 3, '1 hour', 'example_shop.limits')", client
    )
    return f"allowed, {remaining} left" if allowed else "refused, try again later"


def main():
    # With autocommit other sessions see an entry, and a counted visit, as soon as the call returns.
    with psycopg.connect(autocommit=True) as db:
        print("Read-through")
        print("  cached:", is_cached(db, 1))
        print("  product 1:", product_name(db, 1))
        print("  cached:", is_cached(db, 1))
        print("  product 2:", product_name(db, 2) or "does not exist")

        print("Invalidation by the table")
        db.execute("UPDATE example_shop.products SET name = %s WHERE id = %s", ("kettle", 1))
        print("  cached:", is_cached(db, 1))
        print("  product 1:", product_name(db, 1))
        db.execute("INSERT INTO example_shop.products VALUES (%s, %s)", (2, "cup"))
        print("  product 2:", product_name(db, 2))

        print("Counter")
        for _ in range(2):
            print("  visits of /home:", count_visit(db, "/home"))

        print("Rate limit")
        for _ in range(4):
            print(" ", may_call(db, "client-7"))


if __name__ == "__main__":
    main()
