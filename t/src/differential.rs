//! Generates random statements that run in two databases and must give equal answers.
//!
//! One database uses direct access to a cache's table wherever possible, the other uses saved plans. No statement
//! depends on the time of the run: deadlines are hours ahead or years in the past.

use crate::rng::Rng;

/// Recreates the schema `twin`, in which every statement of a round runs.
pub const FRESH: &str = "
    DROP SCHEMA IF EXISTS twin CASCADE;
    CREATE SCHEMA twin;
    GRANT USAGE ON SCHEMA twin TO PUBLIC;
    CREATE FUNCTION twin.stable_get(k text) RETURNS text LANGUAGE plpgsql STABLE AS
        $$ BEGIN RETURN cache_get(k, 'twin.c'); END $$;
    CREATE FUNCTION twin.select_in_stable(k text) RETURNS text LANGUAGE plpgsql STABLE AS
        $$ BEGIN RETURN (SELECT value FROM twin.c WHERE key = k); END $$;
    CREATE FUNCTION twin.seen(k text) RETURNS text LANGUAGE plpgsql VOLATILE AS
        $$ BEGIN RETURN (SELECT value FROM twin.c WHERE key = k); END $$;
    CREATE FUNCTION twin.tried(k text, v text) RETURNS text LANGUAGE plpgsql AS
        $$ BEGIN
            PERFORM cache_set(k, v, cache => 'twin.c');
            PERFORM cache_incr(k || k, 1, cache => 'twin.c');
            PERFORM 1 / (length(v) - 3);
            RETURN 'done';
        EXCEPTION WHEN OTHERS THEN RETURN sqlstate || coalesce(cache_get(k, 'twin.c'), '-'); END $$;
    CREATE FUNCTION twin.set_in_stable(k text, v text) RETURNS text LANGUAGE plpgsql STABLE AS
        $$ BEGIN PERFORM cache_set(k, v, cache => 'twin.c'); RETURN cache_get(k, 'twin.c') || (SELECT count(*) FROM twin.c); END $$;
    CREATE PROCEDURE twin.in_steps(k text, v text) LANGUAGE plpgsql AS
        $$ DECLARE got text; BEGIN
            got := cache_get(k, 'twin.c');
            PERFORM cache_set(k, v, cache => 'twin.c');
            COMMIT;
            got := cache_get(k, 'twin.c');
            PERFORM cache_set(k || '2', got, cache => 'twin.c');
            ROLLBACK;
            PERFORM cache_touch(k, '5 hours', 'twin.c');
        END $$;
    CREATE FUNCTION twin.large(salt text) RETURNS text LANGUAGE sql AS
        $$ SELECT string_agg(md5(i || salt), '') FROM generate_series(1, 300) AS i $$;
    CREATE FUNCTION twin.louder() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN NEW.value := upper(NEW.value::text); RETURN NEW; END $$;
    CREATE FUNCTION twin.never() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
    CREATE TABLE twin.log (at serial, what text);
    GRANT ALL ON twin.log, twin.log_at_seq TO PUBLIC;
    CREATE FUNCTION twin.noted() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO twin.log (what) VALUES (TG_OP || coalesce(OLD.key, '') || coalesce(NEW.key, '')); RETURN NULL; END $$;
    CREATE TABLE twin.parent (id text COLLATE \"C\" PRIMARY KEY);
    INSERT INTO twin.parent SELECT 'k' || i FROM generate_series(0, 3) AS i;
    CREATE TABLE twin.source (id int PRIMARY KEY, v text);
    INSERT INTO twin.source SELECT i, 'v' FROM generate_series(0, 9) AS i;
    CREATE DOMAIN twin.given AS text NOT NULL;
    CREATE DOMAIN twin.short AS text CHECK (length(VALUE) < 30);";

/// Returns the statement that creates the cache of a round.
pub fn cache(rng: &mut Rng) -> String {
    let storage = rng.pick(&["unlogged", "unlogged", "logged", "logged"]);
    let kind = rng.pick(&["text", "text", "text", "jsonb", "bytea"]);
    let ttl = rng.pick(&["", ", ttl => '9 hours'", ", grace => '1000 years'"]);
    let adopted = "
        CREATE TABLE twin.c (expires_at timestamptz, junk int DEFAULT 7, note text, value text, key text COLLATE \"C\" PRIMARY KEY);
        ALTER TABLE twin.c DROP COLUMN junk;
        CREATE TRIGGER pgcache_record AFTER INSERT OR UPDATE OR DELETE ON twin.c FOR EACH ROW EXECUTE FUNCTION pgcache.record();
        CREATE TRIGGER pgcache_record_truncate BEFORE TRUNCATE ON twin.c FOR EACH STATEMENT EXECUTE FUNCTION pgcache.record_truncate();
        ALTER TABLE twin.c ENABLE ALWAYS TRIGGER pgcache_record, ENABLE ALWAYS TRIGGER pgcache_record_truncate";
    match rng.below(8) {
        0 => adopted.to_owned(),
        _ => format!(
            "SELECT cache_create('twin.c', storage => '{storage}', value_type => '{kind}'{ttl})"
        ),
    }
}

fn key(rng: &mut Rng) -> String {
    match rng.below(16) {
        0 => "repeat('k1', 900)".into(),
        1 => "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 60) AS i)".into(),
        2 => format!("repeat('x', {})", rng.pick(&[125, 126, 127, 2048, 2049])),
        _ => format!("'k{}'", rng.below(7)),
    }
}

fn value(rng: &mut Rng) -> String {
    match rng.below(12) {
        0 => "NULL".into(),
        1 => format!("twin.large('{}')", rng.below(4)),
        2 => "repeat('z', 5000)".into(),
        3 => "'{\"a\": 1}'".into(),
        4 => "(SELECT value::text FROM twin.c ORDER BY length(value::text) DESC NULLS LAST, value::text LIMIT 1)".into(),
        _ => format!("'{}'", rng.below(4)),
    }
}

fn ttl(rng: &mut Rng) -> &'static str {
    rng.pick::<&'static str>(&[
        "NULL",
        "NULL",
        "'2 hours'",
        "'7 hours'",
        "cache_forever()",
        "'0'",
    ])
}

fn keys(rng: &mut Rng) -> String {
    match rng.below(6) {
        0 => "(SELECT array_agg('m' || i) FROM generate_series(1, 60) AS i)".into(),
        _ => format!("ARRAY[{}, {}, 'k3']", key(rng), key(rng)),
    }
}

/// Returns a call as an expression for a SELECT list.
fn call(rng: &mut Rng) -> String {
    let (k, v, other, t) = (key(rng), value(rng), value(rng), ttl(rng));
    match rng.below(36) {
        0..=4 => format!("cache_set({k}, {v}, {t}, 'twin.c')"),
        5..=6 => format!("cache_get({k}, 'twin.c')"),
        7 => format!("cache_add({k}, {v}, {t}, 'twin.c')"),
        8 => format!("cache_replace({k}, {v}, {t}, 'twin.c')"),
        9 => format!("cache_cas({k}, {v}, {other}, {t}, 'twin.c')"),
        10 => format!("cache_cas({k}, NULL, {other}, {t}, 'twin.c')"),
        11 => format!("cache_delete({k}, 'twin.c')"),
        12 => format!("cache_delete_if({k}, {v}, 'twin.c')"),
        13 => format!("cache_take({k}, 'twin.c')"),
        14 => format!("cache_incr({k}, {}, {t}, 'twin.c')", rng.pick(&["1", "-5", "9223372036854775807"])),
        15 => format!("cache_touch({k}, {t}, 'twin.c')"),
        16 => format!("cache_persist({k}, 'twin.c')"),
        17 => format!("cache_get_touch({k}, {t}, 'twin.c')"),
        18 => format!("cache_exists({k}, 'twin.c')"),
        19 => format!("(SELECT found::text || coalesce(value, '') FROM cache_lookup({k}, 'twin.c'))"),
        20 => format!("(SELECT string_agg(key || coalesce(value, '-'), ',') FROM cache_get_many({}, 'twin.c'))", keys(rng)),
        21 => format!("cache_set_many({0}, {0}, {t}, 'twin.c')", keys(rng)),
        22 => format!("cache_delete_many({}, 'twin.c')", keys(rng)),
        23 => "cache_delete_prefix('k', 'twin.c')".into(),
        24 => "(SELECT string_agg(key || coalesce(value, '-'), ',') FROM cache_scan('k', cache => 'twin.c'))".into(),
        25 => format!("cache_fetch({k}, 'SELECT ''9''::text WHERE $1 <> ''k2''', {t}, 'twin.c')"),
        26 => format!("(SELECT allowed FROM cache_rate_limit({k}, 3, '9 hours', 'twin.c'))"),
        27 => format!("twin.stable_get({k})"),
        28 => format!("twin.select_in_stable({k}), twin.seen({k}), twin.set_in_stable({k}, {v})"),
        29 => format!("cache_incr_existing({k}, {}, 'twin.c')", rng.pick(&["1", "-5", "9223372036854775807"])),
        30 => "cache_count('twin.c')".into(),
        31 => format!("(SELECT string_agg(key, ',') FROM cache_keys('', {k}, {}, 'twin.c'))", rng.pick(&["1", "3", "100"])),
        32 => format!("(SELECT string_agg(found::text || coalesce(value, '-'), ',') FROM cache_lookup_many({}, 'twin.c'))", keys(rng)),
        33 => format!("cache_take_bytes({k}, 'twin.c')"),
        34 => format!("cache_cas_bytes({k}, {v}::text::bytea, {other}::text::bytea, {t}, 'twin.c')"),
        _ => "cache_expire('twin.c')".into(),
    }
}

fn plain_sql(rng: &mut Rng) -> String {
    let (k, n) = (key(rng), rng.below(4));
    match rng.below(12) {
        0 => format!(
            "INSERT INTO twin.c (key, expires_at) VALUES ({k}, '-infinity') ON CONFLICT (key) DO UPDATE SET expires_at = excluded.expires_at"
        ),
        1 => format!("UPDATE twin.c SET expires_at = '2001-01-01' WHERE key = {k}"),
        2 => format!("DELETE FROM twin.c WHERE key = {k}"),
        3 => format!("UPDATE twin.c SET key = 'k{n}' WHERE key = {k}"),
        4 => format!(
            "SELECT key FROM twin.c WHERE key = {k} FOR {}",
            rng.pick(&["UPDATE", "KEY SHARE", "SHARE", "NO KEY UPDATE"])
        ),
        5 => "TRUNCATE twin.c".into(),
        6 => format!("UPDATE twin.c SET expires_at = 'infinity' WHERE key = {k}"),
        7 => format!("INSERT INTO twin.c (key) VALUES ({k})"),
        8 => format!("UPDATE twin.source SET v = v || '.' WHERE id < {n}"),
        9 => format!(
            "MERGE INTO twin.c USING twin.parent AS p ON c.key = p.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (key) VALUES (p.id || {n})"
        ),
        10 => "DELETE FROM twin.parent WHERE id = 'k1'".into(),
        _ => "INSERT INTO twin.parent VALUES ('k1') ON CONFLICT DO NOTHING".into(),
    }
}

/// Returns a statement that combines calls with other reads and changes of the same rows.
fn mixed(rng: &mut Rng) -> String {
    let (one, two, k, v) = (call(rng), call(rng), key(rng), value(rng));
    match rng.below(17) {
        0 => format!("SELECT {one}, {two}, {}", call(rng)),
        1 => format!("WITH u AS (UPDATE twin.c SET expires_at = NULL WHERE key = {k} RETURNING key) SELECT {one}, (SELECT count(*) FROM u), {two}"),
        2 => format!("WITH d AS (DELETE FROM twin.c WHERE key = {k} RETURNING key) SELECT cache_set(key, {v}, cache => 'twin.c'), {two} FROM d"),
        3 => format!("WITH i AS (INSERT INTO twin.c (key) VALUES ({k}) ON CONFLICT (key) DO NOTHING RETURNING key) SELECT cache_incr(key, 1, NULL, 'twin.c'), {one} FROM i"),
        4 => "SELECT key, cache_get(key, 'twin.c') = value::text AS same, cache_delete(key, 'twin.c'), cache_get(key, 'twin.c') FROM twin.c ORDER BY key".into(),
        5 => "UPDATE twin.c SET expires_at = CASE WHEN cache_delete(key, 'twin.c') THEN NULL::timestamptz END".into(),
        6 => format!("UPDATE twin.c SET expires_at = CASE WHEN cache_set(key, {v}, cache => 'twin.c') IS NULL THEN timestamptz 'infinity' END WHERE key < 'k3'"),
        7 => format!("INSERT INTO twin.c (key, expires_at) SELECT 'n' || i, CASE WHEN cache_set('n' || i, {v}, cache => 'twin.c') IS NULL THEN NULL::timestamptz END FROM generate_series(1, 3) AS i"),
        8 => format!("SELECT cache_set('k' || i % 3, {v}, cache => 'twin.c'), {one} FROM generate_series(1, 5) AS i"),
        9 => format!("BEGIN; DECLARE r CURSOR FOR SELECT key, cache_take(key, 'twin.c') FROM twin.c ORDER BY key; FETCH 2 FROM r; SELECT {one}; FETCH 2 FROM r; COMMIT"),
        10 => format!("SELECT twin.tried({k}, {v})"),
        11 => format!("DO $do$BEGIN PERFORM {one}; BEGIN PERFORM {two}; RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN PERFORM {}; END; END$do$", call(rng)),
        15 => format!("BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT {one} FROM generate_series(1, 3); FETCH 1 FROM h; SELECT {two}; COMMIT; FETCH ALL FROM h; CLOSE h"),
        12 => format!("CALL twin.in_steps({}, {v})", "'k5'"),
        13 => format!("DELETE FROM twin.c WHERE cache_get(key, 'twin.c') IS NOT NULL AND key <> {k}"),
        14 => format!("WITH x AS MATERIALIZED (SELECT key, value::text AS v FROM twin.c WHERE key = {k}) SELECT cache_delete(key, 'twin.c'), cache_set(key || '1', v, cache => 'twin.c') FROM x"),
        _ => format!("SELECT (SELECT count(*) FROM twin.c), {one}, (SELECT count(*) FROM twin.c), twin.seen({k})"),
    }
}

/// Changes of definitions. Some decide whether the table permits direct access; others are usual for any table.
const DEFINITIONS: &[&str] = &[
    "CREATE INDEX c_value ON twin.c (value)",
    "CREATE INDEX c_note ON twin.c (note)",
    "CREATE INDEX c_hash ON twin.c USING hash (value)",
    "CREATE INDEX c_brin ON twin.c USING brin (expires_at)",
    "CREATE INDEX c_date ON twin.c (expires_at)",
    "CREATE UNIQUE INDEX c_unique ON twin.c (value)",
    "CREATE UNIQUE INDEX c_twice ON twin.c (key)",
    "CREATE UNIQUE INDEX c_pattern ON twin.c (key text_pattern_ops)",
    "CREATE INDEX c_expression ON twin.c (length(value::text))",
    "CREATE INDEX c_failing ON twin.c ((1 / (length(value::text) - 1)))",
    "CREATE INDEX c_partial ON twin.c (key) WHERE value IS NULL",
    "ALTER TABLE twin.c ADD CONSTRAINT c_apart EXCLUDE USING hash (value WITH =)",
    "ALTER TABLE twin.c ADD CONSTRAINT c_deferred UNIQUE (value) DEFERRABLE INITIALLY DEFERRED",
    "DROP INDEX IF EXISTS twin.c_value, twin.c_note, twin.c_hash, twin.c_brin, twin.c_date, twin.c_unique, twin.c_twice",
    "DROP INDEX IF EXISTS twin.c_pattern, twin.c_expression, twin.c_failing, twin.c_partial",
    "ALTER TABLE twin.c DROP CONSTRAINT IF EXISTS c_apart, DROP CONSTRAINT IF EXISTS c_deferred",
    "ALTER TABLE twin.c ADD CONSTRAINT c_small CHECK (length(value::text) < 100) NOT VALID",
    "ALTER TABLE twin.c DROP CONSTRAINT IF EXISTS c_small",
    "ALTER TABLE twin.c ALTER value SET NOT NULL",
    "ALTER TABLE twin.c ALTER value DROP NOT NULL",
    "ALTER TABLE twin.c ALTER value SET DEFAULT '1'",
    "ALTER TABLE twin.c ADD note text",
    "ALTER TABLE twin.c ADD note text DEFAULT 'given'",
    "ALTER TABLE twin.c ALTER note DROP DEFAULT",
    "UPDATE twin.c SET note = twin.large(key)",
    "ALTER TABLE twin.c ADD note twin.given DEFAULT 'x'",
    "ALTER TABLE twin.c ADD note twin.short",
    "ALTER TABLE twin.c ADD note text GENERATED ALWAYS AS (key || 'g') STORED",
    "ALTER TABLE twin.c ADD note int GENERATED ALWAYS AS IDENTITY",
    "ALTER TABLE twin.c ADD note text REFERENCES twin.parent",
    "ALTER TABLE twin.c DROP COLUMN IF EXISTS note",
    "ALTER TABLE twin.c ADD FOREIGN KEY (key) REFERENCES twin.parent ON DELETE CASCADE",
    "ALTER TABLE twin.c DROP CONSTRAINT IF EXISTS c_key_fkey",
    "CREATE TABLE twin.referring (k text COLLATE \"C\" REFERENCES twin.c ON DELETE SET NULL)",
    "INSERT INTO twin.referring SELECT key FROM twin.c ORDER BY key LIMIT 1",
    "DROP TABLE IF EXISTS twin.referring",
    "CREATE TRIGGER louder BEFORE INSERT OR UPDATE ON twin.c FOR EACH ROW EXECUTE FUNCTION twin.louder()",
    "CREATE TRIGGER never BEFORE DELETE ON twin.c FOR EACH ROW EXECUTE FUNCTION twin.never()",
    "CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON twin.c FOR EACH ROW EXECUTE FUNCTION twin.noted()",
    "ALTER TABLE twin.c DISABLE TRIGGER USER",
    "ALTER TABLE twin.c ENABLE TRIGGER USER",
    "ALTER TABLE twin.c DISABLE TRIGGER pgcache_record",
    "ALTER TABLE twin.c ENABLE ALWAYS TRIGGER pgcache_record",
    "DROP TRIGGER IF EXISTS louder ON twin.c",
    "DROP TRIGGER IF EXISTS never ON twin.c",
    "DROP TRIGGER IF EXISTS noted ON twin.c",
    "CREATE RULE also AS ON DELETE TO twin.c DO ALSO INSERT INTO twin.log (what) VALUES ('rule')",
    "CREATE RULE instead AS ON UPDATE TO twin.c DO INSTEAD NOTHING",
    "DROP RULE IF EXISTS also ON twin.c",
    "DROP RULE IF EXISTS instead ON twin.c",
    "CREATE TABLE twin.child () INHERITS (twin.c)",
    "DROP TABLE IF EXISTS twin.child",
    "ALTER TABLE twin.c ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY some ON twin.c USING (key <> 'k1') WITH CHECK (key <> 'k2')",
    "ALTER TABLE twin.c DISABLE ROW LEVEL SECURITY",
    "ALTER TABLE twin.c REPLICA IDENTITY FULL",
    "ALTER TABLE twin.c REPLICA IDENTITY NOTHING",
    "ALTER TABLE twin.c REPLICA IDENTITY USING INDEX c_pkey",
    "ALTER TABLE twin.c REPLICA IDENTITY DEFAULT",
    "ALTER TABLE twin.c SET LOGGED",
    "ALTER TABLE twin.c SET UNLOGGED",
    "ALTER TABLE twin.c SET (fillfactor = 10)",
    "ALTER TABLE twin.c SET (toast_tuple_target = 128)",
    "ALTER TABLE twin.c ALTER value SET COMPRESSION lz4",
    "ALTER TABLE twin.c ALTER value SET STORAGE EXTERNAL",
    "ALTER TABLE twin.c ALTER key SET STORAGE PLAIN",
    "ALTER TABLE twin.c ALTER key SET STORAGE EXTENDED",
    "ALTER TABLE twin.c ALTER value TYPE text USING value::text",
    "ALTER TABLE twin.c ALTER value TYPE jsonb USING to_jsonb(value::text)",
    "ALTER TABLE twin.c ALTER value TYPE bytea USING convert_to(value::text, 'UTF8')",
    "ALTER TABLE twin.c RENAME value TO worth; ALTER TABLE twin.c RENAME note TO value",
    "ALTER TABLE twin.c RENAME value TO note; ALTER TABLE twin.c RENAME worth TO value",
    "ALTER TABLE twin.c DROP CONSTRAINT c_pkey; ALTER TABLE twin.c ADD CONSTRAINT c_pkey PRIMARY KEY (key)",
    "ALTER TABLE twin.c DROP CONSTRAINT c_pkey; ALTER TABLE twin.c ADD CONSTRAINT c_pkey PRIMARY KEY (key) INCLUDE (expires_at)",
    "ALTER TABLE twin.c DROP CONSTRAINT c_pkey; ALTER TABLE twin.c ADD CONSTRAINT c_pkey PRIMARY KEY (key) INCLUDE (value)",
    "ALTER TABLE twin.c DROP CONSTRAINT c_pkey; UPDATE twin.c SET key = key || 'x' WHERE key < 'k3'; ALTER TABLE twin.c ADD CONSTRAINT c_pkey PRIMARY KEY (key)",
    "ALTER TABLE twin.c DROP CONSTRAINT c_pkey; ALTER TABLE twin.c ADD CONSTRAINT c_pkey PRIMARY KEY (key) DEFERRABLE",
    "ALTER TABLE twin.c DROP CONSTRAINT c_pkey",
    "ALTER TABLE twin.c ADD CONSTRAINT c_pkey PRIMARY KEY (key)",
    "ALTER TABLE twin.c ADD CONSTRAINT c_pkey PRIMARY KEY (key)",
    "REINDEX TABLE twin.c",
    "REINDEX TABLE CONCURRENTLY twin.c",
    "CLUSTER twin.c USING c_pkey",
    "VACUUM twin.c",
    "VACUUM (FULL, FREEZE) twin.c",
    "ANALYZE twin.c",
    "CREATE STATISTICS twin.figures ON key, value FROM twin.c",
    "SELECT cache_depend('twin.source', $$'k' || id$$, 'twin.c')",
    "SELECT cache_undepend('twin.source', 'twin.c')",
    "SELECT cache_clear('twin.c')",
    "SELECT cache_alter('twin.c', max_entries => 5)",
    "SELECT cache_watch('twin.c') IS NULL",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON twin.c TO twin_user",
    "REVOKE ALL ON twin.c FROM twin_user",
    "REVOKE SELECT ON twin.c FROM twin_user",
    "GRANT SELECT (key, value) ON twin.c TO twin_user",
    "GRANT ALL ON ALL TABLES IN SCHEMA twin TO twin_user",
];

/// Statements about publications, which need `wal_level = logical`.
pub const PUBLICATIONS: &[&str] = &[
    "CREATE PUBLICATION twin FOR TABLE twin.c",
    "CREATE PUBLICATION twin FOR TABLES IN SCHEMA twin",
    "CREATE PUBLICATION twin FOR TABLE twin.c WHERE (key <> 'k1')",
    "DROP PUBLICATION IF EXISTS twin",
    "DROP PUBLICATION IF EXISTS twin",
];

/// Returns one step of a round: the statement, and which of the two sessions of each database runs it.
pub fn step(rng: &mut Rng) -> (usize, String) {
    let session = usize::from(rng.below(4) == 0);
    let isolation = rng.pick(&[
        "",
        "",
        " ISOLATION LEVEL REPEATABLE READ",
        " ISOLATION LEVEL SERIALIZABLE",
        " READ ONLY",
    ]);
    let sql = match rng.below(100) {
        0..=39 => format!("SELECT {}", call(rng)),
        40..=59 => mixed(rng),
        60..=69 => plain_sql(rng),
        70..=76 => (*rng.pick(DEFINITIONS)).to_owned(),
        77 => (*rng.pick(PUBLICATIONS)).to_owned(),
        78..=82 => format!("BEGIN{isolation}"),
        83..=86 => (*rng.pick(&[
            "COMMIT",
            "ROLLBACK",
            "RESET ROLE; GRANT ALL ON ALL TABLES IN SCHEMA twin TO twin_user",
        ]))
        .to_owned(),
        87..=88 => "SAVEPOINT s".to_owned(),
        89 => "ROLLBACK TO s".to_owned(),
        90 => "RELEASE s".to_owned(),
        91 => format!("SET pgcache.hot_tier = {}", rng.pick(&["on", "off"])),
        92 => format!(
            "SET ROLE {}",
            rng.pick(&["twin_user", "none", "none", "none"])
        ),
        93 => format!(
            "SET session_replication_role = {}",
            rng.pick(&["replica", "origin"])
        ),
        94..=95 => format!("SELECT {} FROM generate_series(1, 2) AS i", call(rng)),
        96 => format!(
            "CREATE TABLE twin.t{} AS SELECT {}",
            rng.below(1000),
            call(rng)
        ),
        97 => format!(
            "EXECUTE {}",
            rng.pick(&["setting('k1', 'p')", "getting('k1')", "deleting('k1')"])
        ),
        _ => format!("{}; {}", plain_sql(rng), mixed(rng)),
    };
    (session, sql)
}

/// Statements that a session runs before a round.
pub const PREPARED: &str = "
    DEALLOCATE ALL;
    PREPARE setting (text, text) AS SELECT cache_set($1, $2, cache => 'twin.c');
    PREPARE getting (text) AS SELECT cache_get($1, 'twin.c');
    PREPARE deleting (text) AS SELECT cache_delete($1, 'twin.c')";

/// Queries the rows of the cache.
pub const CONTENT: &str = "
    SELECT key, md5((to_jsonb(c) - 'expires_at')::text),
           CASE WHEN isfinite(expires_at) AND expires_at > now() THEN round(extract(epoch FROM expires_at - now()) / 3600)::text ELSE expires_at::text END
    FROM ONLY twin.c ORDER BY key";

/// Queries for a round's results: the rows, the server's counters of rows, the number of values stored out of line, and
/// the triggers' log.
pub const QUESTIONS: &[&str] = &[
    CONTENT,
    "SELECT n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables WHERE relid = 'twin.c'::regclass",
    "DO $do$BEGIN EXECUTE format('CREATE VIEW pg_temp.outside AS SELECT count(DISTINCT chunk_id) FROM %s',
        (SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 'twin.c'::regclass)); END$do$;
     SELECT * FROM pg_temp.outside; DROP VIEW pg_temp.outside",
    "SELECT what FROM twin.log ORDER BY at",
];
