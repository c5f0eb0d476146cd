//! Tests caches that are existing tables of an application (`cache_attach`). Over a table of any supported shape, the
//! functions return the same answers as over a cache that pgcache created, with direct access and with plans.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::refusal::refused;
use postgres::Client;

/// A table of an application: its column list, the arguments of `cache_attach`, and the keys to use in it.
struct Made {
    table: &'static str,
    attach: &'static str,
    key: fn(u32) -> String,
    /// Whether writes take the direct path, without a plan.
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

/// Every type of key, value and deadline, with and without NOT NULL, in different column orders.
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

/// Calls on a cache `$c` with keys `$1` to `$5`. All values are numbers, which are valid as text, JSON and bytes.
/// Checks of a deadline allow for a second or two, because some tables store whole seconds.
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

/// Returns the answers of the calls. In calls that select keys, a key at the start of a line is replaced by `#` and its
/// number, so that tables with different types of keys have equal answers.
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
fn functions_answer_the_same_over_tables_of_every_shape() {
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
            // A deadline that exceeds a 4-byte count of seconds must be stored as a deadline in the far future.
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
fn all_spellings_of_a_key_name_one_entry() {
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
fn source_values_that_are_not_valid_keys_do_not_block_writers() {
    const UUID: &str = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    let database = Cluster::shared().database();
    let mut session = database.connect();
    session.run(&format!(
        "CREATE TABLE n (key bigint PRIMARY KEY, value text);
         CREATE TABLE u (key uuid PRIMARY KEY, value text);
         CREATE TABLE source (name text);
         SELECT cache_attach('n'), cache_attach('u');
         SELECT cache_depend('source', 'name', 'n'), cache_depend('source', 'name', 'u');
         SELECT cache_set('42', 'v', cache => 'n'), cache_set('{UUID}', 'v', cache => 'u')"
    ));
    let there = format!("SELECT cache_exists('42', 'n'), cache_exists('{UUID}', 'u')");
    session.run(
        "INSERT INTO source VALUES ('abc'), (''), ('{a0eebc99'), ('98765432109876543210'), ('4 2'), (repeat('1', 9000)), (NULL)",
    );
    session.run("BEGIN; SAVEPOINT s; UPDATE source SET name = name || 'x'; ROLLBACK TO s; COMMIT");
    session.run("DELETE FROM source");
    assert_eq!(session.lines(&there), ["t|t"]);
    // A valid key among invalid ones still invalidates its entry.
    session.run(&format!(
        "INSERT INTO source VALUES ('abc'), (' 042 '), ('{}'), ('xyz')",
        UUID.to_uppercase()
    ));
    assert_eq!(session.lines(&there), ["f|f"]);
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

/// A loader changes the table during the call. The result must be a value or an error, never a crash.
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
                let unit = if change.contains("timestamptz") {
                    "NULL"
                } else {
                    "'s'"
                };
                // ALTER TYPE is refused on a cache, so detach the table first.
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
fn savepoints_truncate_and_copies_work_on_attached_tables() {
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

#[test]
fn a_unix_time_is_never_before_the_requested_deadline() {
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
