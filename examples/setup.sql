-- Creates the objects of the examples: a table of a shop, and three caches. psql -f examples/setup.sql
SET client_min_messages = warning;

CREATE EXTENSION IF NOT EXISTS pgcache;
-- Everything is in a separate schema, which is dropped and created again.
DROP SCHEMA IF EXISTS example_shop CASCADE;
CREATE SCHEMA example_shop;
SET search_path = example_shop, public; -- the extension is in public

CREATE TABLE products (id int PRIMARY KEY, name text NOT NULL);
INSERT INTO products VALUES (1, 'teapot');

-- Product names by id. The commit of a change to the table removes the entry.
SELECT cache_create('product_names', ttl => '1 hour');
SELECT cache_depend('products', 'id::text', 'product_names');

-- If the library is preloaded, storage => 'memory' is better for these two caches: increments take effect at once,
-- and no session waits for another session's commit.
SELECT cache_create('limits');
SELECT cache_create('visits', ttl => '1 day');
