//! Tables that others have made, as caches: what the functions answer over each shape of a table is what they
//! answer over a cache of our own, on both ways to the table; what cannot be a cache is refused; the software that
//! made a table goes on with its own statements.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::refusal::refused;
use pgcache_tests::stage::succeed;
use postgres::Client;

/// A table that somebody else has made: what makes it, how it is attached, and its keys.
struct Made {
    table: &'static str,
    attach: &'static str,
    key: fn(u32) -> String,
    /// The direct way is taken for writes.
    plain: bool,
}

fn word(number: u32) -> String {
    format!("k{number}")
}

fn uuid(number: u32) -> String {
    format!("a0eebc99-9c0b-4ef8-bb6d-{number:012}")
}

fn bigint(number: u32) -> String {
    format!("{number}")
}

/// Every type of key, value and deadline, with and without NOT NULL, in columns that stand in other orders.
const TABLES: &[Made] = &[
    Made {
        table: "(cache_key varchar(255) NOT NULL PRIMARY KEY, value text NOT NULL, expires timestamptz NOT NULL)",
        attach: "key_column => 'cache_key', expires_column => 'expires'",
        key: word,
        plain: true,
    },
    Made {
        table: "(sid varchar NOT NULL COLLATE \"default\" PRIMARY KEY, sess json NOT NULL, expire timestamptz(6) NOT NULL)",
        attach: "key_column => 'sid', value_column => 'sess', expires_column => 'expire'",
        key: word,
        plain: false,
    },
    Made {
        table: "(\"Va$$lue\" varchar, x int, expires_at timestamptz, \"the \"\"key\"\"\" text COLLATE \"POSIX\" PRIMARY KEY)",
        attach: "key_column => 'the \"key\"', value_column => 'Va$$lue'",
        key: word,
        plain: true,
    },
    Made {
        table: "(id uuid PRIMARY KEY, j jsonb, e int)",
        attach: "key_column => 'id', value_column => 'j', expires_column => 'e', expires_unit => 's'",
        key: uuid,
        plain: true,
    },
    Made {
        table: "(e bigint NOT NULL, v bytea NOT NULL, id bigserial PRIMARY KEY)",
        attach: "key_column => 'id', value_column => 'v', expires_column => 'e', expires_unit => 'ms'",
        key: bigint,
        plain: true,
    },
    Made {
        table: "(e int NOT NULL, v bytea, id bigint PRIMARY KEY)",
        attach: "key_column => 'id', value_column => 'v', expires_column => 'e', expires_unit => 's'",
        key: bigint,
        plain: true,
    },
    Made {
        table: "(key varchar(255) PRIMARY KEY, value varchar(100), expiration bigint)",
        attach: "expires_column => 'expiration', expires_unit => 'ms'",
        key: word,
        plain: false,
    },
    Made {
        table: "(key varchar(255) PRIMARY KEY, value text)",
        attach: "",
        key: word,
        plain: true,
    },
];

/// Calls over a cache `$c` with keys `$1` to `$5`; a number is text, JSON and bytes alike. A deadline shows only
/// within seconds, which is what some tables keep.
const CALLS: &[&str] = &[
    "SELECT cache_get('$1', '$c')",
    "SELECT cache_set('$1', '1', '1 hour', '$c')",
    "SELECT cache_get('$1', '$c'), cache_get_bytes('$1', '$c'), cache_get_json('$1', '$c')",
    "SELECT cache_ttl('$1', '$c') BETWEEN '59 minutes 58 seconds' AND '1 hour 1 second'",
    "SELECT cache_set('$2', '2', cache => '$c')",
    "SELECT cache_ttl('$2', '$c') IS NULL, cache_exists('$2', '$c')",
    "SELECT found, value, expires_at IS NULL FROM cache_lookup('$2', '$c')",
    "SELECT cache_add('$2', '22', cache => '$c'), cache_add('$3', '3', cache => '$c')",
    "SELECT cache_replace('$3', '33', '1 minute', '$c'), cache_replace('$4', '4', cache => '$c')",
    "SELECT cache_cas('$3', '3', '5', cache => '$c'), cache_cas('$3', '33', '34', cache => '$c')",
    "SELECT cache_ttl('$3', '$c') IS NULL",
    "SELECT cache_incr('$2', 5, cache => '$c'), cache_incr('$4', 7, '1 hour', '$c'), cache_incr('$4', -1, cache => '$c')",
    "SELECT cache_ttl('$4', '$c') > '58 minutes'",
    "SELECT cache_touch('$2', '2 hours', '$c'), cache_touch('$5', '2 hours', '$c')",
    "SELECT cache_ttl('$2', '$c') > '1 hour 58 minutes'",
    "SELECT cache_persist('$2', '$c'), cache_persist('$5', '$c')",
    "SELECT cache_ttl('$2', '$c') IS NULL",
    "SELECT cache_get_touch('$2', '3 hours', '$c')",
    "SELECT key, value FROM cache_scan(cache => '$c')",
    "SELECT key, value FROM cache_scan(after => '$2', max_rows => 1, cache => '$c')",
    "SELECT value FROM cache_get_many('{$4,$5,$1,$4}', '$c')",
    "SELECT cache_set_many('{$5,$1}', '{50,10}', '1 hour', '$c')",
    "SELECT key, value FROM cache_scan(cache => '$c')",
    "SELECT cache_delete('$5', '$c'), cache_delete('$5', '$c')",
    "SELECT cache_delete_if('$1', '11', '$c'), cache_delete_if('$1', '10', '$c')",
    "SELECT cache_take('$4', '$c'), cache_take('$4', '$c')",
    "SELECT cache_set('$1', '1', '1 millisecond', '$c'), pg_sleep(1.1)",
    "SELECT cache_get('$1', '$c'), cache_exists('$1', '$c'), cache_touch('$1', '1 hour', '$c'), cache_delete('$1', '$c')",
    "SELECT cache_set('$1', '1', '1 millisecond', '$c'), cache_set('$4', '1', '1 millisecond', '$c'), pg_sleep(1.1)",
    "SELECT cache_add('$4', '44', cache => '$c')",
    "SELECT cache_expire('$c')",
    "SELECT key, value FROM cache_scan(cache => '$c')",
    "SELECT cache_rate_limit('$5', 1, '1 hour', '$c') IS NULL, (SELECT allowed FROM cache_rate_limit('$5', 1, '1 hour', '$c'))",
    "SELECT cache_fetch('$1', 'SELECT ''77''', '1 hour', '$c'), cache_fetch('$1', 'SELECT ''78''', '1 hour', '$c')",
    "SELECT cache_delete_many('{$1,$2,$3}', '$c')",
    "SELECT key, value FROM cache_scan(cache => '$c')",
    "SELECT cache_clear('$c')",
    "SELECT count(*) FROM cache_scan(cache => '$c')",
];

/// What the calls answer, with each key by its number.
fn answers(session: &mut Client, cache: &str, key: fn(u32) -> String) -> Vec<String> {
    let mut answers = Vec::new();
    for call in CALLS {
        let spelled = |text: &str| {
            (1..=5).fold(text.replace("$c", cache), |text, number| {
                text.replace(&format!("${number}"), &key(number))
            })
        };
        for line in session.lines(&spelled(call)) {
            let keys = if call.starts_with("SELECT key") { 5 } else { 0 };
            let numbered = (1..=keys).fold(line, |line, number| {
                let prefix = format!("{}|", key(number));
                line.strip_prefix(&prefix)
                    .map_or(line.clone(), |rest| format!("#{number}|{rest}"))
            });
            answers.push(format!("{call}: {numbered}"));
        }
    }
    answers
}

fn taken(session: &mut Client) -> [i64; 2] {
    ["direct", "plan"]
        .map(|path| session.number(&format!("SELECT {path} FROM pgcache.table_path_taken()")))
}

fn attach(session: &mut Client, name: &str, made: &Made) {
    session.run(&format!("CREATE TABLE {name} {}", made.table));
    let comma = if made.attach.is_empty() { "" } else { ", " };
    session.run(&format!(
        "SELECT cache_attach('{name}'{comma}{})",
        made.attach
    ));
}

#[test]
fn functions_answer_over_any_shape_of_table_as_over_our_own() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run("SELECT cache_create('own')");
    let expected = answers(&mut session, "own", word);
    for path in ["auto", "plan"] {
        let mut session = database.connect();
        session.run(&format!("SET pgcache.table_path = {path}"));
        for (number, made) in TABLES.iter().enumerate() {
            let name = format!("t_{path}_{number}");
            attach(&mut session, &name, made);
            let before = taken(&mut session);
            assert_eq!(
                answers(&mut session, &name, made.key),
                expected,
                "{}",
                made.table
            );
            let after = taken(&mut session);
            let [direct, plan] = [after[0] - before[0], after[1] - before[1]];
            match (path, made.plain) {
                ("plan", _) => assert_eq!(direct, 0, "{}", made.table),
                (_, true) => assert_eq!(plan, 0, "{}", made.table),
                (_, false) => assert!(plan > 0, "{}", made.table),
            }
            let differing = session.lines(&format!("SELECT * FROM pgcache.verify('{name}')"));
            assert_eq!(differing, [""; 0]);
        }
    }
}

#[test]
fn both_ways_write_the_same_row() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    for (number, made) in TABLES.iter().enumerate() {
        let mut rows = Vec::new();
        for path in ["auto", "plan"] {
            let (name, key) = (format!("same_{path}_{number}"), (made.key)(1));
            attach(&mut session, &name, made);
            session.run(&format!("SET pgcache.table_path = {path}"));
            session.run(&format!(
                "SELECT cache_set('{key}', '[1, 2]', cache => '{name}')"
            ));
            rows.push(session.lines(&format!("SELECT * FROM {name}")));
            // Beyond what an integer holds, and what a timestamp does.
            session.run(&format!(
                "SELECT cache_set('{key}', '[1, 2]', '300 years', cache => '{name}')"
            ));
            rows.push(session.lines(&format!(
                "SELECT expires_at > now() + '10 years' FROM cache_lookup('{key}', '{name}')"
            )));
        }
        assert_eq!(rows[..2], rows[2..], "{}", made.table);
    }
}

#[test]
fn a_key_is_one_however_it_is_spelled() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE u (id uuid PRIMARY KEY, value text, expires_at timestamptz);
         CREATE TABLE n (id bigint PRIMARY KEY, value text, expires_at timestamptz);
         SELECT cache_attach('u', key_column => 'id'), cache_attach('n', key_column => 'id');",
    );
    let spellings = [
        (
            "u",
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc999c0b4ef8bb6d6bb9bd380a11}",
        ),
        ("n", "0042", " +42 "),
    ];
    for (cache, one, other) in spellings {
        for path in ["auto", "plan"] {
            session.run(&format!("SET pgcache.table_path = {path}"));
            session.run(&format!(
                "SELECT cache_set('{one}', 'x', cache => '{cache}')"
            ));
            let get = format!("SELECT cache_get('{other}', '{cache}')");
            assert_eq!(session.lines(&get), ["x"]);
            session.run(&format!("UPDATE {cache} SET value = 'y'"));
            assert_eq!(session.lines(&get), ["y"], "a copy outlived its row");
            assert_eq!(session.lines(&get), ["y"]);
            let asked =
                format!("SELECT * FROM cache_get_many(ARRAY['{other}', '{one}'], '{cache}')");
            assert_eq!(
                session.lines(&asked),
                [format!("{other}|y"), format!("{one}|y")]
            );
            session.run(&format!("DELETE FROM {cache}"));
            assert_eq!(session.lines(&get), [""]);
            session.run(&format!(
                "SELECT cache_incr('{one}', 1, cache => '{cache}')"
            ));
            session.run(&format!(
                "SELECT cache_incr('{other}', 1, cache => '{cache}')"
            ));
            assert_eq!(session.number(&format!("SELECT count(*) FROM {cache}")), 1);
            session.run(&format!(
                "SELECT cache_set_many(ARRAY['{one}', '{other}'], '{{1,2}}', cache => '{cache}')"
            ));
            assert_eq!(session.lines(&get), ["2"]);
            session.run(&format!("SELECT cache_delete('{other}', '{cache}')"));
            assert_eq!(session.number(&format!("SELECT count(*) FROM {cache}")), 0);
        }
        for (call, state) in [
            ("cache_get('zz', '$c')", "22P02"),
            ("cache_set('zz', 'x', cache => '$c')", "22P02"),
            ("cache_delete('zz', '$c')", "22P02"),
            ("cache_lease('zz', cache => '$c')", "22P02"),
            ("count(*) FROM cache_scan('1', cache => '$c')", "0A000"),
            ("cache_delete_prefix('1', '$c')", "0A000"),
        ] {
            if call.contains("lease")
                && session.value("SELECT size FROM pgcache.hot_tier").is_none()
            {
                continue;
            }
            refused(
                session.try_lines(&format!("SELECT {}", call.replace("$c", cache))),
                state,
            );
        }
    }
    session.run("INSERT INTO n SELECT g, g, NULL FROM generate_series(8, 11) AS g");
    let page = "SELECT key FROM cache_scan(after => '9', cache => 'n')";
    assert_eq!(session.lines(page), ["10", "11"]);
    session
        .run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT cache_set('9', 'own', cache => 'n')");
    assert_eq!(
        session.lines("SELECT key FROM cache_scan(cache => 'n')"),
        ["8", "9", "10", "11"]
    );
    session.run("COMMIT");
    session.run("CREATE TABLE s (u uuid PRIMARY KEY, n text)");
    session.run(
        "SELECT cache_depend('s', 'upper(u::text)', 'u'), cache_depend('s', '''0'' || n', 'n')",
    );
    session.run("INSERT INTO s VALUES ('a0eebc999c0b4ef8bb6d6bb9bd380a11', '8')");
    session.run("SELECT cache_set('a0eebc999c0b4ef8bb6d6bb9bd380a11', 'x', cache => 'u')");
    session.run("SELECT cache_get('a0eebc999c0b4ef8bb6d6bb9bd380a11', 'u'), cache_set('8', 'x', cache => 'n')");
    session.run("UPDATE s SET u = u");
    let left =
        "SELECT cache_exists('a0eebc999c0b4ef8bb6d6bb9bd380a11', 'u'), cache_exists('8', 'n')";
    assert_eq!(session.lines(left), ["f|f"]);
}

#[test]
fn a_key_that_the_column_would_cut_off_is_refused() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE c (key varchar(3) PRIMARY KEY, value varchar(3));
         SELECT cache_attach('c'), cache_set('äöü', 'x', cache => 'c');",
    );
    for path in ["auto", "plan"] {
        session.run(&format!("SET pgcache.table_path = {path}"));
        for call in [
            "cache_set('äöü ', 'y', cache => 'c')",
            "cache_add('äöü ', 'y', cache => 'c')",
            "cache_cas('äöü ', NULL, 'y', cache => 'c')",
            "cache_incr('äöü ', 1, cache => 'c')",
            "cache_set_many('{a,abcd}', '{1,2}', cache => 'c')",
            "cache_set('v', 'long', cache => 'c')",
            "cache_fetch('äöü ', 'SELECT 1', cache => 'c')",
        ] {
            refused(session.try_lines(&format!("SELECT {call}")), "22001");
        }
        let lookups = "SELECT cache_get('äöü ', 'c'), cache_delete('äöü ', 'c'), cache_replace('äöü ', '1', cache => 'c')";
        assert_eq!(session.lines(lookups), ["|f|f"]);
        assert_eq!(session.lines("SELECT key, value FROM c"), ["äöü|x"]);
    }
}

/// A table, the arguments, and words of the detail or hint.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "(key char(9) PRIMARY KEY, value text, expires_at timestamptz)",
        "",
        "text, varchar, uuid or bigint",
    ),
    (
        "(key dom PRIMARY KEY, value text, expires_at timestamptz)",
        "",
        "of type dom",
    ),
    (
        "(key int PRIMARY KEY, value text, expires_at timestamptz)",
        "",
        "of type integer",
    ),
    (
        "(key text PRIMARY KEY, value dom, expires_at timestamptz)",
        "",
        "of type dom",
    ),
    (
        "(key text PRIMARY KEY, value xml, expires_at timestamptz)",
        "",
        "of type xml",
    ),
    (
        "(key text PRIMARY KEY, value text, expires_at timestamp)",
        "",
        "AT TIME ZONE",
    ),
    (
        "(key text PRIMARY KEY, value text, expires_at bigint)",
        "",
        "expires_unit => 's'",
    ),
    (
        "(key text PRIMARY KEY, value text, expires_at timestamptz)",
        ", expires_unit => 's'",
        "integer or bigint",
    ),
    (
        "(key text PRIMARY KEY, value text, expires_at date)",
        "",
        "timestamptz",
    ),
    (
        "(key text PRIMARY KEY, value text, expires_at timestamptz)",
        ", value_column => 'key'",
        "three columns",
    ),
    (
        "(key text UNIQUE NOT NULL, value text, expires_at timestamptz)",
        "",
        "primary key",
    ),
    (
        "(key text PRIMARY KEY DEFERRABLE, value text, expires_at timestamptz)",
        "",
        "primary key",
    ),
    (
        "(key text, n int, value text, expires_at timestamptz, PRIMARY KEY (key, n))",
        "",
        "primary key",
    ),
    (
        "(n int PRIMARY KEY, key text UNIQUE, value text, expires_at timestamptz)",
        "",
        "primary key",
    ),
    (
        "(key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, value text, expires_at timestamptz)",
        "",
        "generated",
    ),
    (
        "(a text, key text GENERATED ALWAYS AS (lower(a)) STORED PRIMARY KEY, value text, expires_at timestamptz)",
        "",
        "generated",
    ),
    (
        "(key text PRIMARY KEY, value text, expires_at timestamptz) PARTITION BY HASH (key)",
        "",
        "partitioned",
    ),
];

#[test]
fn what_cannot_be_a_cache_is_refused_and_left_as_it_is() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run("CREATE DOMAIN dom AS text");
    for (table, arguments, words) in REFUSED {
        session.run(&format!("CREATE TABLE c {table}"));
        let attached = session.try_lines(&format!("SELECT cache_attach('c'{arguments})"));
        let error = refused(attached, "42804");
        let said = format!("{:?} {:?}", error.detail(), error.hint());
        assert!(said.contains(words), "{table}: {said}");
        let triggers =
            "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'c'::regclass AND NOT tgisinternal";
        assert_eq!(session.number(triggers), 0, "{table}");
        session.run("DROP TABLE c");
    }
    session.run(
        "CREATE TABLE c (key text PRIMARY KEY, value text, expires_at timestamptz);
         CREATE TABLE p (key text, value text, expires_at timestamptz) PARTITION BY LIST (key);
         CREATE TABLE p1 PARTITION OF p (PRIMARY KEY (key)) FOR VALUES IN ('a');
         CREATE TEMP TABLE t (key text PRIMARY KEY, value text, expires_at timestamptz);
         CREATE VIEW v AS SELECT * FROM c;",
    );
    for (name, why) in [
        ("p1", "partition"),
        ("t", "temporary"),
        ("v", "not a table"),
        ("pg_class", "belongs to Postgres"),
        ("information_schema.sql_features", "belongs to Postgres"),
    ] {
        let error = refused(
            session.try_lines(&format!("SELECT cache_attach('{name}')")),
            "42804",
        );
        assert!(error.detail().unwrap().contains(why), "{name}: {error:?}");
    }
    for (arguments, state) in [
        ("NULL", "22004"),
        ("'c', key_column => NULL", "22004"),
        ("'c', key_column => 'none'", "42703"),
        ("'c', value_column => 'ctid'", "42703"),
        (
            "'c', expires_column => 'none', expires_unit => 's'",
            "42703",
        ),
        ("'c', expires_unit => 'h'", "22023"),
        ("'c', ttl => '0'", "22023"),
        ("'pgcache.main'", "42P07"),
    ] {
        refused(
            session.try_lines(&format!("SELECT cache_attach({arguments})")),
            state,
        );
    }
    session.run("SELECT cache_attach('c')");
    refused(session.try_lines("SELECT cache_attach('c')"), "42P07");
    refused(
        session.try_lines("SELECT cache_detach('pgcache.main')"),
        "0A000",
    );
    refused(session.try_lines("SELECT cache_detach('v')"), "42809");
    let stranger = Cluster::shared().role();
    session.run(&format!(
        "CREATE TABLE mine (key text PRIMARY KEY, value text); SET ROLE {stranger}"
    ));
    refused(session.try_lines("SELECT cache_attach('mine')"), "42501");
    refused(session.try_lines("SELECT cache_detach('c')"), "42501");
}

#[test]
fn a_nondeterministic_collation_is_refused() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    let made = session.try_lines(
        "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    );
    if made.is_err() {
        return; // a server without ICU
    }
    session.run("CREATE TABLE c (key text COLLATE loose PRIMARY KEY, value text)");
    refused(session.try_lines("SELECT cache_attach('c')"), "42804");
}

#[test]
fn detaching_gives_the_table_back_as_it_was() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    let role = Cluster::shared().role();
    session.run(&format!(
        "CREATE TABLE c (key text PRIMARY KEY, value text NOT NULL,
             expires_at timestamptz DEFAULT now() + '3 days'::interval, more int);
         CREATE INDEX ON c (expires_at);
         GRANT SELECT ON c TO {role};
         INSERT INTO c VALUES ('old', 'v', NULL, 1);"
    ));
    let definition = "SELECT array_agg((attname, atttypid, attnotnull, pg_get_expr(adbin, adrelid))::text ORDER BY attnum)
            || (SELECT array_agg(pg_get_indexdef(indexrelid) ORDER BY 1) FROM pg_index WHERE indrelid = 'c'::regclass)
            || (SELECT relacl::text FROM pg_class WHERE oid = 'c'::regclass)
            || (SELECT count(*)::text FROM pg_trigger WHERE tgrelid = 'c'::regclass)
          FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
         WHERE attrelid = 'c'::regclass AND attnum > 0";
    let before = session.text(definition);
    session.run("SELECT cache_attach('c', '1 hour')");
    session.run("INSERT INTO c (key, value) VALUES ('plain', 'v')");
    let ttl = "SELECT cache_ttl('plain', 'c') BETWEEN '58 minutes' AND '1 hour', cache_ttl('old', 'c') IS NULL";
    assert_eq!(session.lines(ttl), ["t|t"]);
    session.run("SELECT cache_alter('c', '2 hours')");
    session.run("INSERT INTO c (key, value) VALUES ('later', 'v')");
    assert!(session.holds("SELECT cache_ttl('later', 'c') > '118 minutes'"));
    session.run("SELECT cache_get('plain', 'c'), cache_detach('c')");
    assert_eq!(session.text(definition), before);
    refused(session.try_lines("SELECT cache_get('plain', 'c')"), "42809");
    session.run("UPDATE c SET value = 'changed while it was no cache'");
    session.run("SELECT cache_attach('c')");
    assert_eq!(
        session.lines("SELECT cache_get('plain', 'c')"),
        ["changed while it was no cache"]
    );
    session.run("BEGIN; SELECT cache_detach('c'); ROLLBACK");
    assert_eq!(
        session.lines("SELECT cache_get('plain', 'c')"),
        ["changed while it was no cache"]
    );
}

#[test]
fn detaching_ends_what_the_cache_depends_on() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE c (key text PRIMARY KEY, value text);
         CREATE TABLE source (name text);
         CREATE TABLE parted (name text) PARTITION BY LIST (name);
         CREATE TABLE part PARTITION OF parted DEFAULT;
         SELECT cache_attach('c'), cache_depend('source', 'name', 'c'), cache_depend('parted', 'name', 'c')",
    );
    let triggers = "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'pgcache_depend%'";
    assert!(session.holds(&format!("SELECT ({triggers}) > 6")));
    session.run("BEGIN; SELECT cache_detach('c'); ROLLBACK");
    assert!(session.holds(&format!("SELECT ({triggers}) > 6")));
    session.run("SELECT cache_detach('c')");
    assert_eq!(session.lines(triggers), ["0"]);
    // They would give the next cache keys of another type.
    session.run(
        "ALTER TABLE c ALTER key TYPE bigint USING key::bigint;
         SELECT cache_attach('c');
         INSERT INTO source VALUES ('no number'); TRUNCATE source;
         INSERT INTO parted VALUES ('no number')",
    );
}

#[test]
fn a_key_of_another_type_is_refused_and_not_shown() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE n (key bigint PRIMARY KEY, value text);
         CREATE TABLE u (key uuid PRIMARY KEY, value text);
         SELECT cache_attach('n'), cache_attach('u')",
    );
    for (cache, key, code) in [
        ("n", "secret", "22P02"),
        ("n", "98765432109876543210", "22003"),
        ("u", "secret", "22P02"),
    ] {
        for call in [
            format!("SELECT cache_get('{key}', '{cache}')"),
            format!("SELECT cache_set('{key}', 'v', cache => '{cache}')"),
            format!("SELECT cache_get_many(ARRAY['{key}'], '{cache}')"),
            format!("SELECT cache_delete('{key}', '{cache}')"),
            format!("SELECT cache_scan(after => '{key}', cache => '{cache}')"),
        ] {
            let refusal = session.try_lines(&call);
            let text = format!("{refusal:?}");
            assert!(!text.contains(key), "{call}: {text}");
            refused(refusal, code);
        }
    }
}

#[test]
fn another_session_serves_no_copy_of_a_detached_table() {
    let database = Cluster::shared().database();
    let (mut session, mut other) = (database.connect(), database.connect());
    session.run("CREATE TABLE c (key text PRIMARY KEY, value text)");
    session.run("SELECT cache_attach('c'), cache_set('k', 'v', cache => 'c')");
    for _ in 0..3 {
        assert_eq!(other.lines("SELECT cache_get('k', 'c')"), ["v"]);
    }
    session.run("SELECT cache_detach('c')");
    refused(other.try_lines("SELECT cache_get('k', 'c')"), "42809");
    session.run("UPDATE c SET value = 'w'; SELECT cache_attach('c')");
    assert_eq!(other.lines("SELECT cache_get('k', 'c')"), ["w"]);
}

#[test]
fn a_former_default_that_its_owner_made_up_is_nobody_elses_code() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    let owner = Cluster::shared().role();
    session.run(&format!(
        "GRANT CREATE ON SCHEMA public TO {owner}; SET ROLE {owner};
         CREATE TABLE who (name text);
         CREATE FUNCTION evil() RETURNS text LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO public.who VALUES (current_user); RETURN 'x'; END $$;
         CREATE TABLE c (key text PRIMARY KEY, value text, expires_at timestamptz, other text);
         INSERT INTO c VALUES ('k', 'v');
         SELECT cache_attach('c', '1 hour');
         CREATE OR REPLACE TRIGGER pgcache_columns BEFORE UPDATE OF key, value, expires_at ON c FOR EACH STATEMENT
             EXECUTE FUNCTION pgcache.columns('default=now(), ALTER COLUMN other TYPE text USING public.evil()');
         RESET ROLE;"
    ));
    let _ = session.try_lines("SELECT cache_detach('c')");
    assert_eq!(
        session.lines("SELECT name FROM who WHERE name = 'postgres'"),
        [""; 0]
    );
    assert!(
        session
            .lines("SELECT name FROM who")
            .iter()
            .all(|name| *name == owner)
    );
}

/// With TRIGGER on the table somebody says what the former default was, where the library is not loaded.
#[test]
fn a_former_default_that_somebody_else_made_up_is_not_the_owners_code() {
    let cluster = Cluster::shared();
    let database = cluster.database();
    let mut session = database.connect();
    let (owner, other) = (cluster.role(), cluster.role());
    session.run(&format!(
        "GRANT CREATE ON SCHEMA public TO {owner}, {other}; SET ROLE {owner};
         CREATE TABLE c (key text PRIMARY KEY, value text, expires_at timestamptz DEFAULT 'infinity');
         SELECT cache_attach('c', '1 hour'); GRANT TRIGGER ON c TO {other}; RESET ROLE;"
    ));
    let mut app = database.connect_as(&other);
    app.run(
        "CREATE TABLE who (name text); GRANT INSERT ON who TO PUBLIC;
         CREATE FUNCTION evil() RETURNS text LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO public.who VALUES (current_user); RETURN 'x'; END $$;
         CREATE DOMAIN trap AS text CHECK (public.evil() IS NOT NULL)",
    );
    for default in [
        "now(), ADD COLUMN other text DEFAULT public.evil()",
        "CASE WHEN ''{x}''::public.trap[] IS NULL THEN now() END",
    ] {
        let _ = app.try_lines(&format!(
            "CREATE OR REPLACE TRIGGER pgcache_columns BEFORE UPDATE OF key, value, expires_at ON c
                 FOR EACH STATEMENT EXECUTE FUNCTION pgcache.columns('default={default}')"
        ));
        session.run(&format!(
            "SET ROLE {owner}; SELECT cache_alter('c', cache_forever())"
        ));
        session.run("SELECT cache_alter('c', '1 hour'); RESET ROLE");
    }
    session.run("SELECT cache_detach('c')");
    assert_eq!(session.lines("SELECT name FROM who"), [""; 0]);
}

/// A removal may be refused; who writes where nothing has expired does not hear of it.
#[test]
fn a_write_where_nothing_has_expired_is_not_refused_for_a_trigger_of_somebody_elses() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    let other = Cluster::shared().role();
    session.run(&format!(
        "CREATE TABLE c (key text PRIMARY KEY, value json, expires_at timestamptz);
         SELECT cache_attach('c');
         GRANT TRIGGER ON c TO {other}; GRANT CREATE ON SCHEMA public TO {other}; SET ROLE {other};
         CREATE FUNCTION theirs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$;
         CREATE TRIGGER theirs BEFORE DELETE ON c FOR EACH ROW EXECUTE FUNCTION theirs();
         RESET ROLE"
    ));
    session.run("INSERT INTO c VALUES ('live', '1', NULL), ('old', '1', '-infinity')");
    let sessions = "ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    session.run(&format!("INSERT INTO c VALUES ('live', '2') {sessions}"));
    assert_eq!(session.lines("SELECT value FROM c"), ["2"]);
    let old = session.try_lines(&format!("INSERT INTO c VALUES ('old', '2') {sessions}"));
    refused(old, "42501");
}

#[test]
fn columns_are_followed_when_they_are_renamed_and_held_when_dropped() {
    let database = Cluster::shared().database();
    let (mut session, mut other) = (database.connect(), database.connect());
    session.run(
        "CREATE TABLE c (k varchar(20) PRIMARY KEY, v jsonb, e bigint NOT NULL DEFAULT 0);
         SELECT cache_attach('c', key_column => 'k', value_column => 'v', expires_column => 'e', expires_unit => 's');
         SELECT cache_set('a', '1', '1 hour', 'c');",
    );
    assert_eq!(other.lines("SELECT cache_get('a', 'c')"), ["1"]);
    session.run(
        "ALTER TABLE c RENAME k TO v2; ALTER TABLE c RENAME v TO k; ALTER TABLE c RENAME e TO \"E e\";
         ALTER TABLE c RENAME TO d;",
    );
    for path in ["auto", "plan"] {
        for session in [&mut session, &mut other] {
            session.run(&format!("SET pgcache.table_path = {path}"));
            assert_eq!(session.lines("SELECT cache_get('a', 'd')"), ["1"]);
            session
                .run("SELECT cache_set('b', '2', '1 hour', 'd'), cache_incr('b', 1, cache => 'd')");
            assert_eq!(session.lines("SELECT k FROM d WHERE v2 = 'b'"), ["3"]);
        }
    }
    for column in ["v2", "k", "\"E e\""] {
        refused(
            session.try_lines(&format!("ALTER TABLE d DROP {column}")),
            "2BP01",
        );
        let change = format!("ALTER TABLE d ALTER {column} TYPE text USING 'x'");
        refused(session.try_lines(&change), "0A000");
    }
    session.run("ALTER TABLE d DROP k CASCADE");
    refused(session.try_lines("SELECT cache_get('a', 'd')"), "42809");
    refused(
        other.try_lines("SELECT cache_set('a', '1', cache => 'd')"),
        "42809",
    );
    session.run("INSERT INTO d VALUES ('plain', 0)");
}

fn restored(original: &Database, options: &[&str]) -> Database<'static> {
    let file = original
        .cluster
        .folder
        .join(format!("{}.sql", original.name));
    let mut dump = original.cluster.program("pg_dump");
    succeed(dump.args(options).arg("-f").arg(&file).arg(&original.name));
    let copy = match options.contains(&"-t") {
        true => Cluster::shared().database(),
        false => Cluster::shared().empty_database(""),
    };
    let mut psql = original.cluster.program("psql");
    psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &copy.name, "-f"]);
    succeed(psql.arg(&file));
    copy
}

#[test]
fn an_attached_table_comes_back_from_a_dump() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE c (gone int, \"K k\" uuid PRIMARY KEY, v json, e int DEFAULT 5 * 10);
         ALTER TABLE c DROP gone;
         SELECT cache_attach('c', '1 hour', 'K k', 'v', 'e', max_entries => 100, expires_unit => 's');
         SELECT cache_set('a0eebc999c0b4ef8bb6d6bb9bd380a11', '{\"a\": 1}', cache => 'c');",
    );
    for options in [&[][..], &["-t", "c"], &["--inserts"]] {
        let copy = restored(&database, options);
        let mut session = copy.connect();
        let get = "SELECT cache_get('A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'c'), cache_ttl('a0eebc999c0b4ef8bb6d6bb9bd380a11', 'c') > '58 minutes'";
        assert_eq!(session.lines(get), ["{\"a\": 1}|t"], "{options:?}");
        let settings = "SELECT ttl, max_entries FROM pgcache.caches WHERE cache = 'c'::regclass";
        assert_eq!(session.lines(settings), ["01:00:00|100"]);
        session.run("SELECT cache_detach('c'); INSERT INTO c (\"K k\") VALUES (gen_random_uuid())");
        assert_eq!(session.number("SELECT e FROM c WHERE v IS NULL"), 50);
    }
}

#[test]
fn generated_deadlines_are_read_and_swept_and_nothing_is_written() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE c (key text PRIMARY KEY, value text, made int NOT NULL, life int,
             e int GENERATED ALWAYS AS (made + life) STORED);
         SELECT cache_attach('c', expires_column => 'e', expires_unit => 's');
         INSERT INTO c VALUES ('live', '1', extract(epoch FROM now()), 100), ('never', '2', 5, NULL), ('dead', '3', 5, 5);",
    );
    for path in ["auto", "plan"] {
        session.run(&format!("SET pgcache.table_path = {path}"));
        let get = "SELECT cache_get('live', 'c'), cache_get('never', 'c'), cache_get('dead', 'c')";
        assert_eq!(session.lines(get), ["1|2|"]);
        for call in [
            "cache_set('k', '1', cache => 'c')",
            "cache_set_many('{k}', '{1}', cache => 'c')",
            "cache_add('k', '1', cache => 'c')",
            "cache_replace('live', '1', cache => 'c')",
            "cache_cas('live', '1', '1', cache => 'c')",
            "cache_incr('live', 1, cache => 'c')",
            "cache_touch('live', '1 hour', 'c')",
            "cache_persist('live', 'c')",
            "cache_fetch('k', 'SELECT 1', cache => 'c')",
            "cache_rate_limit('k', 1, '1 hour', 'c')",
            "cache_alter('c', '1 hour')",
        ] {
            refused(session.try_lines(&format!("SELECT {call}")), "0A000");
        }
    }
    refused(
        session.try_lines("CREATE TABLE d (LIKE c INCLUDING ALL); SELECT cache_attach('d', '1 hour', expires_column => 'e', expires_unit => 's')"),
        "0A000",
    );
    assert_eq!(session.number("SELECT cache_expire('c')"), 1);
    assert_eq!(
        session.lines("SELECT cache_delete('live', 'c'), cache_take('never', 'c')"),
        ["t|2"]
    );
}

#[test]
fn a_value_that_must_not_be_null_is_returned_and_not_stored() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE c (key text PRIMARY KEY, value text NOT NULL); SELECT cache_attach('c')",
    );
    for path in ["auto", "plan"] {
        session.run(&format!("SET pgcache.table_path = {path}"));
        refused(
            session.try_lines("SELECT cache_set('k', NULL, cache => 'c')"),
            "23502",
        );
        refused(
            session.try_lines("SELECT cache_add('k', NULL, cache => 'c')"),
            "23502",
        );
        session.run("SELECT cache_set('there', '1', cache => 'c')");
        refused(
            session.try_lines("SELECT cache_replace('there', NULL, cache => 'c')"),
            "23502",
        );
        let fetch = "SELECT cache_fetch('k', 'SELECT NULL::text', cache => 'c') IS NULL, cache_exists('k', 'c')";
        assert_eq!(session.lines(fetch), ["t|f"]);
        let fetch = "SELECT cache_fetch('k', 'SELECT 1 WHERE false', cache => 'c') IS NULL, cache_exists('k', 'c')";
        assert_eq!(session.lines(fetch), ["t|f"]);
    }
}

#[test]
fn sweeps_see_all_rows_under_forced_row_level_security() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    let owner = Cluster::shared().role();
    session.run(&format!(
        "GRANT CREATE ON SCHEMA public TO {owner}; SET ROLE {owner};
         CREATE TABLE c (key text PRIMARY KEY, value text, expires_at timestamptz, who text DEFAULT 'nobody');
         ALTER TABLE c ENABLE ROW LEVEL SECURITY; ALTER TABLE c FORCE ROW LEVEL SECURITY;
         CREATE POLICY p ON c USING (who = current_user) WITH CHECK (true);
         SELECT cache_attach('c');
         INSERT INTO c SELECT g, 'v', now() - interval '1 hour' FROM generate_series(1, 10) AS g;
         RESET ROLE;"
    ));
    assert_eq!(session.number("SELECT cache_expire()"), 10);
}

/// While a loader runs the table changes under the call: whatever comes of it is a value or an error.
#[test]
fn a_datum_never_reaches_a_column_of_another_type() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "CREATE FUNCTION change(sql text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN EXECUTE sql; RETURN '7'; END $$",
    );
    let mut changed = 0;
    for path in ["auto", "plan"] {
        session.run(&format!("SET pgcache.table_path = {path}"));
        for (made, changes) in [
            (
                "(key text PRIMARY KEY, value text, e int)",
                &[
                    "ALTER value TYPE bytea USING NULL",
                    "ALTER value TYPE json USING NULL",
                    "ALTER value TYPE jsonb USING NULL",
                    "ALTER value TYPE varchar(1)",
                    "ALTER value TYPE bigint USING NULL",
                    "ALTER e TYPE bigint",
                    "ALTER e TYPE timestamptz USING NULL",
                    "ALTER e SET NOT NULL",
                    "ALTER key TYPE varchar(5)",
                    "ALTER key TYPE uuid USING 'a0eebc999c0b4ef8bb6d6bb9bd380a11'",
                    "ALTER key TYPE bigint USING 5",
                    "RENAME value TO val",
                    "DROP e",
                ][..],
            ),
            (
                "(key bigint PRIMARY KEY, value jsonb, e bigint)",
                &[
                    "ALTER key TYPE text",
                    "ALTER key TYPE uuid USING 'a0eebc999c0b4ef8bb6d6bb9bd380a11'",
                    "ALTER e TYPE int",
                    "ALTER e TYPE timestamptz USING NULL",
                    "ALTER value TYPE text",
                ],
            ),
        ] {
            for change in changes {
                session.run(&format!(
                    "CREATE TABLE c {made}; SELECT cache_attach('c', expires_column => 'e', expires_unit => 's');
                     SELECT cache_set('123456', '1', cache => 'c')"
                ));
                // A type changes only of a plain table.
                let unit = if change.contains("timestamptz") {
                    "NULL"
                } else {
                    "'s'"
                };
                let changes = format!(
                    "SELECT cache_detach('c'); ALTER TABLE c {change}; \
                     SELECT cache_attach('c', expires_column => 'e', expires_unit => {unit})"
                );
                let call = format!(
                    "SELECT cache_fetch('1234567', $$SELECT change('{}')$$, '1 hour', 'c')",
                    changes.replace('\'', "''")
                );
                let stored = session.try_lines(&call).map_err(|error| {
                    assert!(
                        error.as_db_error().is_some(),
                        "{change}: the session broke: {error:?}"
                    );
                });
                changed += u32::from(stored.is_ok());
                let all = session.lines("SELECT * FROM c");
                assert!(all.len() <= 2, "{change}: {all:?}");
                let _ = session
                    .try_lines("SELECT * FROM cache_scan(cache => 'c')")
                    .map_err(|error| {
                        assert!(
                            error.as_db_error().is_some(),
                            "{change}: the session broke: {error:?}"
                        );
                    });
                session.run("DROP TABLE c");
            }
        }
    }
    assert!(
        changed >= 20,
        "only {changed} loaders have changed the table under the call"
    );
}

#[test]
fn savepoints_truncate_and_copies_are_as_for_our_own() {
    let database = Cluster::shared().database();
    let (mut session, mut other) = (database.connect(), database.connect());
    session.run(
        "CREATE TABLE c (id bigint PRIMARY KEY, v text, e bigint);
         SELECT cache_attach('c', key_column => 'id', value_column => 'v', expires_column => 'e', expires_unit => 'ms');
         SELECT cache_set('1', 'a', cache => 'c');",
    );
    let get = "SELECT cache_get('1', 'c')";
    for _ in 0..2 {
        assert_eq!(other.lines(get), ["a"]);
    }
    session
        .run("BEGIN; UPDATE c SET v = 'b'; SAVEPOINT s; SELECT cache_set('1', 'c', cache => 'c')");
    assert_eq!(
        (session.lines(get), other.lines(get)),
        (vec!["c".into()], vec!["a".into()])
    );
    session.run("ROLLBACK TO s");
    assert_eq!(session.lines(get), ["b"]);
    session.run("COMMIT");
    assert_eq!(other.lines(get), ["b"]);
    session.run("UPDATE c SET id = 2");
    assert_eq!(
        other.lines("SELECT cache_get('1', 'c'), cache_get('2', 'c')"),
        ["|b"]
    );
    session.run("TRUNCATE c");
    assert_eq!(
        other.lines("SELECT cache_get('1', 'c'), cache_get('2', 'c')"),
        ["|"]
    );
    session.run("COPY (SELECT 3, 'x', 0) TO PROGRAM 'cat > /dev/null'");
    session.run("INSERT INTO c VALUES (3, 'x', 0) ON CONFLICT (id) DO UPDATE SET v = 'y'");
    assert_eq!(other.lines("SELECT cache_get('03', 'c')"), ["x"]);
    session.run("INSERT INTO c VALUES (3, 'x', 0) ON CONFLICT (id) DO UPDATE SET v = 'y'");
    assert_eq!(other.lines("SELECT cache_get('03', 'c')"), ["y"]);
    assert_eq!(session.lines("SELECT * FROM pgcache.verify('c')"), [""; 0]);
}

/// Laravel's `cache`: Unix seconds, and a key with the application's prefix.
#[test]
fn laravels_cache_store() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE cache (key varchar(255) NOT NULL, value text NOT NULL, expiration integer NOT NULL);
         ALTER TABLE cache ADD PRIMARY KEY (key);
         SELECT cache_attach('cache', expires_column => 'expiration', expires_unit => 's');",
    );
    let put = |session: &mut Client, key: &str, value: &str, seconds: i32| {
        session.run(&format!(
            "INSERT INTO cache (expiration, key, value)
             VALUES (extract(epoch FROM now())::int + {seconds}, 'app_{key}', '{value}')
             ON CONFLICT (key) DO UPDATE SET expiration = excluded.expiration, key = excluded.key, value = excluded.value"
        ));
    };
    put(&mut session, "a", "s:1:\"x\";", 60);
    put(&mut session, "forever", "i:1;", 315_360_000);
    let get = "SELECT cache_get('app_a', 'cache'), cache_ttl('app_a', 'cache') > '50 seconds'";
    assert_eq!(session.lines(get), ["s:1:\"x\";|t"]);
    put(&mut session, "a", "i:2;", 60);
    assert_eq!(session.lines(get), ["i:2;|t"]);
    session.run("SELECT cache_set('app_b', 'i:5;', '1 hour', 'cache')");
    let many = "SELECT key, value FROM cache WHERE key IN ('app_a', 'app_b') AND expiration > extract(epoch FROM now()) ORDER BY key";
    assert_eq!(session.lines(many), ["app_a|i:2;", "app_b|i:5;"]);
    // increment: a locked read, then the value alone
    session.run(
        "BEGIN; SELECT * FROM cache WHERE key = 'app_b' LIMIT 1 FOR UPDATE;
         UPDATE cache SET value = 'i:6;' WHERE key = 'app_b'; COMMIT",
    );
    assert_eq!(
        session.lines("SELECT cache_get('app_b', 'cache')"),
        ["i:6;"]
    );
    // add: insertOrIgnore
    let add =
        "WITH i AS (INSERT INTO cache (key, value, expiration) VALUES ('app_b', 'i:0;', 2000000000)
               ON CONFLICT DO NOTHING RETURNING 1) SELECT count(*) FROM i";
    assert_eq!(session.number(add), 0);
    put(&mut session, "a", "old", -1);
    assert_eq!(
        session.lines("SELECT cache_exists('app_a', 'cache')"),
        ["f"]
    );
    session.run(
        "DELETE FROM cache WHERE key IN ('app_a') AND expiration <= extract(epoch FROM now())",
    );
    put(&mut session, "a", "old", -1);
    assert_eq!(session.number("SELECT cache_expire('cache')"), 1);
    session.run("DELETE FROM cache"); // flush
    assert_eq!(
        session.lines("SELECT cache_exists('app_forever', 'cache')"),
        ["f"]
    );
}

/// Symfony's PdoAdapter has a time and a lifetime: a generated column makes a deadline of them.
#[test]
fn symfonys_pdo_adapter() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE cache_items (item_id VARCHAR(255) NOT NULL PRIMARY KEY, item_data BYTEA NOT NULL,
             item_lifetime INTEGER, item_time INTEGER NOT NULL);
         ALTER TABLE cache_items ADD expires_at integer GENERATED ALWAYS AS (item_time + item_lifetime) STORED;
         SELECT cache_attach('cache_items', NULL, 'item_id', 'item_data', expires_unit => 's');",
    );
    let save = |session: &mut Client, id: &str, data: &str, lifetime: &str, age: i32| {
        session.run(&format!(
            "INSERT INTO cache_items (item_id, item_data, item_lifetime, item_time)
             VALUES ('{id}', '{data}', {lifetime}, extract(epoch FROM now())::int - {age})
             ON CONFLICT (item_id) DO UPDATE SET (item_data, item_lifetime, item_time) =
                 (EXCLUDED.item_data, EXCLUDED.item_lifetime, EXCLUDED.item_time)"
        ));
    };
    save(&mut session, "one", "s:3:\"one\"", "60", 0);
    save(&mut session, "always", "s:3:\"two\"", "NULL", 100_000);
    save(&mut session, "dead", "x", "60", 61);
    let get = "SELECT cache_get('one', 'cache_items'), cache_get('always', 'cache_items'), cache_get('dead', 'cache_items')";
    assert_eq!(session.lines(get), ["s:3:\"one\"|s:3:\"two\"|"]);
    save(&mut session, "one", "new", "60", 0);
    assert!(session.lines(get)[0].starts_with("new|"));
    refused(
        session.try_lines("SELECT cache_set('one', 'x', cache => 'cache_items')"),
        "0A000",
    );
    assert_eq!(session.number("SELECT cache_expire('cache_items')"), 1);
    assert_eq!(session.number("SELECT count(*) FROM cache_items"), 2);
    session.run("DELETE FROM cache_items WHERE item_id IN ('one')");
    assert_eq!(session.lines(get), ["|s:3:\"two\"|"]);
    session.run("DELETE FROM cache_items WHERE item_id LIKE 'alw%'; TRUNCATE TABLE cache_items");
    assert_eq!(session.lines(get), ["||"]);
}

/// Solid Cache finds entries by a hash that is no primary key, and has no deadlines: its rows are swept by age.
#[test]
fn solid_caches_entries_are_swept() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE solid_cache_entries (id bigserial PRIMARY KEY, key bytea NOT NULL, value bytea NOT NULL,
             created_at timestamp(6) NOT NULL, key_hash bigint NOT NULL, byte_size integer NOT NULL);
         CREATE INDEX ON solid_cache_entries (byte_size);
         CREATE UNIQUE INDEX ON solid_cache_entries (key_hash);
         ALTER TABLE solid_cache_entries ADD expires_at timestamptz
             GENERATED ALWAYS AS ((created_at + interval '14 days') AT TIME ZONE 'UTC') STORED;",
    );
    refused(
        session.try_lines("SELECT cache_attach('solid_cache_entries', key_column => 'key_hash')"),
        "42804",
    );
    session
        .run("SELECT cache_attach('solid_cache_entries', key_column => 'id', max_entries => 1000)");
    let write = |session: &mut Client, hash: i64, age: &str| {
        session.run(&format!(
            "INSERT INTO solid_cache_entries (key, value, key_hash, byte_size, created_at)
             VALUES ('k{hash}', 'v', {hash}, 142, now() AT TIME ZONE 'UTC' - interval '{age}')
             ON CONFLICT (key_hash) DO UPDATE SET key = excluded.key, value = excluded.value, byte_size = excluded.byte_size
             RETURNING id"
        ));
    };
    write(&mut session, 1, "1 hour");
    write(&mut session, -2, "15 days");
    write(&mut session, 1, "1 hour");
    assert_eq!(
        session.number("SELECT cache_expire('solid_cache_entries')"),
        1
    );
    let read = "SELECT key, value FROM solid_cache_entries WHERE key_hash IN (1, -2)";
    assert_eq!(session.lines(read), ["\\x6b31|\\x76"]);
    let id = session.text("SELECT id FROM solid_cache_entries");
    assert_eq!(
        session.lines(&format!("SELECT cache_get('{id}', 'solid_cache_entries')")),
        ["v"]
    );
    refused(
        session.try_lines("SELECT cache_set('7', 'x', cache => 'solid_cache_entries')"),
        "0A000",
    );
    session.run("INSERT INTO solid_cache_entries (key, value, key_hash, byte_size, created_at) \
                 SELECT 'k', 'v', g, 142, now() AT TIME ZONE 'UTC' FROM generate_series(10, 4000) AS g");
    session.run("SELECT cache_expire('solid_cache_entries')");
    assert!(session.number("SELECT count(*) FROM solid_cache_entries") <= 2000);
}

#[test]
fn a_unix_time_is_never_before_the_deadline_that_was_asked_for() {
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(
        "CREATE TABLE c (key text PRIMARY KEY, value text, e bigint);
         SELECT cache_attach('c', expires_column => 'e', expires_unit => 's')",
    );
    for path in ["auto", "plan"] {
        session.run(&format!("SET pgcache.table_path = {path}"));
        for number in 0..5 {
            let from = session.text("SELECT clock_timestamp()");
            session.run(&format!(
                "SELECT cache_set('{number}', 'v', '1500 milliseconds', 'c')"
            ));
            let after = format!(
                "SELECT to_timestamp(e) BETWEEN '{from}'::timestamptz + '1.5 s' AND clock_timestamp() + '2.5 s' \
                   FROM c WHERE key = '{number}'"
            );
            assert!(session.holds(&after), "{path}");
        }
    }
}
