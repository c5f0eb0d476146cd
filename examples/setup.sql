-- The objects on which the examples work: a table of a shop, and three caches. psql -f examples/setup.sql
SET client_min_messages = warning;

CREATE EXTENSION IF NOT EXISTS pgcache;
-- All of it in a schema of its own, which is dropped and made anew.
DROP SCHEMA IF EXISTS example_shop CASCADE;
CREATE SCHEMA example_shop;
SET search_path = example_shop, public; -- public: where the extension is

CREATE TABLE products (id int PRIMARY KEY, name text NOT NULL);
INSERT INTO products VALUES (1, 'teapot');

-- Product names by id. A change of the table takes the entry along, with the same commit.
SELECT cache_create('product_names', ttl => '1 hour');
SELECT cache_depend('products', 'id::text', 'product_names');

-- With the library preloaded, storage => 'memory' is the better choice for these two: hits count at once
-- and no session waits for another.
SELECT cache_create('limits');
SELECT cache_create('visits', ttl => '1 day');
