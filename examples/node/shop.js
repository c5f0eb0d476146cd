// pgcache from Node.js: read-through, a counter, a rate limit, invalidation by a table. Uses pg.
//
// Connects to the database that PGHOST, PGDATABASE, ... name and examples/setup.sql has prepared.

import pg from "pg";

// The server runs this query on a miss, in only one of the sessions that miss the same key.
const LOADER = "SELECT name FROM example_shop.products WHERE id = $1::int";

const pool = new pg.Pool();

async function one(query, ...args) {
  const { rows } = await pool.query(query, args);
  return rows[0];
}

// Returns the name of a product, or null if it does not exist. The cache stores both results.
async function productName(id) {
  const { name } = await one("SELECT cache_fetch($1, $2, cache => 'example_shop.product_names') AS name", String(id), LOADER);
  return name;
}

async function isCached(id) {
  const { found } = await one("SELECT cache_exists($1, 'example_shop.product_names') AS found", String(id));
  return found ? "yes" : "no";
}

// Returns a bigint, which pg returns as a string, because it may exceed the exact integers of a JavaScript number.
async function countVisit(page) {
  const { visits } = await one("SELECT cache_incr($1, cache => 'example_shop.visits') AS visits", page);
  return visits;
}

// Allows three calls an hour. A web server would answer 429, with retry_after as its Retry-After header.
async function mayCall(client) {
  const { allowed, remaining } = await one(
    "SELECT allowed, remaining, retry_after FROM cache_rate_limit($1, 3, '1 hour', 'example_shop.limits')",
    client,
  );
  return allowed ? `allowed, ${remaining} left` : "refused, try again later";
}

try {
  console.log("Read-through");
  console.log("  cached:", await isCached(1));
  console.log("  product 1:", await productName(1));
  console.log("  cached:", await isCached(1));
  console.log("  product 2:", (await productName(2)) ?? "does not exist");

  console.log("Invalidation by the table");
  await pool.query("UPDATE example_shop.products SET name = $1 WHERE id = $2", ["kettle", 1]);
  console.log("  cached:", await isCached(1));
  console.log("  product 1:", await productName(1));
  await pool.query("INSERT INTO example_shop.products VALUES ($1, $2)", [2, "cup"]);
  console.log("  product 2:", await productName(2));

  console.log("Counter");
  for (let visit = 0; visit < 2; visit++) {
    console.log("  visits of /home:", await countVisit("/home"));
  }

  console.log("Rate limit");
  for (let call = 0; call < 4; call++) {
    console.log(" ", await mayCall("client-7"));
  }
} finally {
  await pool.end();
}
