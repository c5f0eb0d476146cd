# frozen_string_literal: true

# pgcache from Ruby: read-through, a counter, a rate limit, invalidation by a table. Uses the gem pg.
#
# Connects as libpq does (PGHOST, PGDATABASE, ...) to a database that examples/setup.sql has prepared.

require 'pg'

class Shop
  # The server runs this query on a miss, in only one of the sessions that miss the same key.
  LOADER = 'SELECT name FROM example_shop.products WHERE id = $1::int'

  def initialize(db)
    @db = db
    @db.type_map_for_results = PG::BasicTypeMapForResults.new(@db)
  end

  # Returns the name of a product, or nil if it does not exist. The cache stores both results.
  def product_name(id)
    one("SELECT cache_fetch($1, $2, cache => 'example_shop.product_names')", id.to_s, LOADER).first
  end

  def cached?(id)
    one("SELECT cache_exists($1, 'example_shop.product_names')", id.to_s).first
  end

  def count_visit(page)
    one("SELECT cache_incr($1, cache => 'example_shop.visits')", page).first
  end

  # Allows three calls an hour. A web server would answer 429, with retry_after as its Retry-After header.
  def may_call(client)
    one("SELECT allowed, remaining FROM cache_rate_limit($1, 3, '1 hour', 'example_shop.limits')", client)
  end

  def change(query, *args) = @db.exec_params(query, args)

  private

  def one(query, *args) = @db.exec_params(query, args).values.first
end

def cached(shop, id) = puts("  cached: #{shop.cached?(id) ? 'yes' : 'no'}")
def product(shop, id) = puts("  product #{id}: #{shop.product_name(id) || 'does not exist'}")

db = PG.connect
shop = Shop.new(db)

puts 'Read-through'
cached(shop, 1)
product(shop, 1)
cached(shop, 1)
product(shop, 2)

puts 'Invalidation by the table'
shop.change('UPDATE example_shop.products SET name = $1 WHERE id = $2', 'kettle', 1)
cached(shop, 1)
product(shop, 1)
shop.change('INSERT INTO example_shop.products VALUES ($1, $2)', 2, 'cup')
product(shop, 2)

puts 'Counter'
2.times { puts "  visits of /home: #{shop.count_visit('/home')}" }

puts 'Rate limit'
4.times do
  allowed, remaining = shop.may_call('client-7')
  puts allowed ? "  allowed, #{remaining} left" : '  refused, try again later'
end

db.close
