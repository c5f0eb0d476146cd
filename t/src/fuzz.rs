//! Makes random calls of every SQL function of the extension, with arguments of the right type from ordinary to absurd,
//! in transactions of all kinds. The same seed gives the same calls.
//!
//! The functions come from the catalog, so a function that is added to the extension is called without a change here.

use postgres::Client;

use crate::ask::Ask;
use crate::fuzz_arguments::argument;
use crate::rng::Rng;

/// A function as the catalog describes it.
pub struct Function {
    pub name: String,
    /// Name and type of each argument that a call can pass.
    arguments: Vec<(String, String)>,
    /// The number of arguments that a call must pass.
    required: usize,
    /// Whether the function returns rows whose columns the query must name.
    nameless_rows: bool,
}

/// Returns every function of the extension that SQL can call. The list includes trigger functions, which must refuse
/// the call.
pub fn functions(session: &mut Client) -> Vec<Function> {
    let rows = session.lines(
        "SELECT p.pronamespace::regnamespace::text || '.' || quote_ident(p.proname), p.pronargdefaults, \
         p.proretset AND p.prorettype = 'record'::regtype AND p.proallargtypes IS NULL, \
         (SELECT string_agg(coalesce(p.proargnames[i], '') || ':' || t::regtype, ';' ORDER BY i) \
          FROM unnest(p.proargtypes) WITH ORDINALITY AS a (t, i)) \
         FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid JOIN pg_extension e ON e.oid = d.refobjid \
         WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass \
         AND d.deptype = 'e' AND e.extname = 'pgcache' \
         AND 'internal'::regtype <> ALL (p.proargtypes) ORDER BY 1",
    );
    rows.iter().map(|row| Function::from_line(row)).collect()
}

impl Function {
    fn from_line(line: &str) -> Function {
        let fields: Vec<&str> = line.split('|').collect();
        let arguments: Vec<(String, String)> = fields[3]
            .split(';')
            .filter_map(|argument| argument.split_once(':'))
            .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
            .collect();
        let defaults: usize = fields[1].parse().expect("a count");
        Function {
            name: fields[0].to_owned(),
            required: arguments.len() - defaults,
            arguments,
            nameless_rows: fields[2] == "t",
        }
    }
}

/// Creates the relations for fuzzing that are not caches, of all kinds.
pub const ODD_RELATIONS: &str = "
    CREATE TABLE plain (key text PRIMARY KEY, value text);
    CREATE INDEX plain_value ON plain (value);
    CREATE SEQUENCE numbers;
    CREATE VIEW looking AS SELECT * FROM plain;
    CREATE MATERIALIZED VIEW looked AS SELECT * FROM plain;
    CREATE TABLE parts (key text COLLATE \"C\" PRIMARY KEY, value text, expires_at timestamptz) PARTITION BY HASH (key);
    CREATE TABLE part PARTITION OF parts FOR VALUES WITH (MODULUS 1, REMAINDER 0);
    CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON parts FOR EACH ROW EXECUTE FUNCTION pgcache.record();
    CREATE FOREIGN DATA WRAPPER nowhere;
    CREATE SERVER nowhere FOREIGN DATA WRAPPER nowhere;
    CREATE FOREIGN TABLE abroad (key text, value text) SERVER nowhere;
    CREATE TYPE composite AS (key text, value text);
    CREATE TABLE wrong_key (key int PRIMARY KEY, value text, expires_at timestamptz);
    CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON wrong_key FOR EACH ROW EXECUTE FUNCTION pgcache.record('ttl=PT5S');
    CREATE TABLE wrong_settings (key text COLLATE \"C\" PRIMARY KEY, value text, expires_at timestamptz);
    CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON wrong_settings FOR EACH ROW EXECUTE FUNCTION pgcache.record('ttl=P-M', 'what');
    CREATE VIEW wrong_view AS SELECT * FROM pgcache.memory_entries('id=1 oid=2') AS e (key text, value text, expires_at timestamptz);
    CREATE VIEW wrong_words AS SELECT * FROM pgcache.memory_entries(repeat('x', 9)) AS e (key int, value text[]);";

const TABLES: &[(&str, &str)] = &[
    ("c_text", "storage => 'unlogged'"),
    (
        "c_logged",
        "storage => 'logged', ttl => '1 second', grace => '1 day'",
    ),
    ("c_json", "value_type => 'jsonb', ttl => '5 milliseconds'"),
    ("c_bytes", "value_type => 'bytea', max_entries => 10"),
    ("c_rls", "storage => 'unlogged'"),
    ("c_strict", "storage => 'unlogged'"),
];

/// Tables of applications, and the options with which they are attached.
const ATTACHED: &[(&str, &str, &str)] = &[
    (
        "a_words",
        "(more int DEFAULT 1, key varchar(20) PRIMARY KEY, value varchar(50) NOT NULL)",
        "ttl => '1 second'",
    ),
    (
        "a_uuids",
        "(id uuid PRIMARY KEY, value jsonb, e bigint NOT NULL)",
        "key_column => 'id', expires_column => 'e', expires_unit => 'ms'",
    ),
    (
        "a_numbers",
        "(value json, e integer, id bigint PRIMARY KEY)",
        "key_column => 'id', expires_column => 'e', expires_unit => 's', max_entries => 10",
    ),
    (
        "a_generated",
        "(key text PRIMARY KEY, value bytea, made int, e int GENERATED ALWAYS AS (made + 1) STORED)",
        "expires_column => 'e', expires_unit => 's'",
    ),
];

const MEMORY: &[(&str, &str)] = &[
    ("m_text", "ttl => '1 second'"),
    ("m_json", "value_type => 'jsonb'"),
    ("m_bytes", "value_type => 'bytea', max_entries => 10"),
];

/// Creates the caches that do not exist.
pub fn make_caches(session: &mut Client, with_memory: bool) {
    let make = |(name, options): &(&str, &str)| {
        format!("SELECT cache_create('{name}', {options}, if_not_exists => true);")
    };
    let names: Vec<String> = TABLES.iter().map(|(name, _)| format!("'{name}'")).collect();
    let mut all = format!(
        "DO $$ DECLARE detached regclass; BEGIN \
           FOR detached IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relname IN ({}) \
                              AND oid NOT IN (SELECT cache FROM pgcache.all_caches) \
           LOOP EXECUTE 'DROP TABLE ' || detached || ' CASCADE'; END LOOP; END $$;",
        names.join(", ")
    );
    all.extend(TABLES.iter().map(make));
    all.extend(ATTACHED.iter().map(|(name, columns, arguments)| {
        format!(
            "CREATE TABLE IF NOT EXISTS {name} {columns}; \
             SELECT cache_attach('{name}', {arguments}) \
              WHERE '{name}'::regclass NOT IN (SELECT cache FROM pgcache.all_caches);"
        )
    }));
    if with_memory {
        let memory = MEMORY
            .iter()
            .map(|&(name, options)| (name, format!("storage => 'memory', {options}")));
        all.extend(memory.map(|(name, options)| make(&(name, options.as_str()))));
    }
    all += "ALTER TABLE c_rls ENABLE ROW LEVEL SECURITY; ALTER TABLE c_strict DROP CONSTRAINT IF EXISTS small; \
            ALTER TABLE c_strict ADD CONSTRAINT small CHECK (length(value) < 100) NOT VALID;";
    session.run(&all);
}

/// Returns a call as it appears in FROM.
pub fn call(rng: &mut Rng, function: &Function) -> String {
    let extra = function.arguments.len() - function.required;
    let given = function.required + rng.below(extra as u64 + 1) as usize;
    let mut arguments: Vec<String> = function.arguments[..given]
        .iter()
        .map(|(_, kind)| argument(rng, kind))
        .collect();
    // The cache is the last argument. It is passed by name, so that a call with fewer arguments does not always use
    // pgcache.main.
    if let Some((name, kind)) = function.arguments[given..]
        .last()
        .filter(|_| rng.below(5) > 0)
    {
        arguments.push(format!("{name} => {}", argument(rng, kind)));
    }
    let columns = match function.nameless_rows {
        true => *rng.pick(&[
            "AS e (key text, value text, expires_at timestamptz)",
            "AS e (a int, b point, c text[])",
            "AS e (a text)",
            "",
        ]),
        false => "",
    };
    format!("{}({}) {columns}", function.name, arguments.join(", "))
}

/// Returns one batch of statements with a random call in it, in a transaction of a random kind.
pub fn statement(rng: &mut Rng, functions: &[Function]) -> String {
    let function = rng.pick(functions);
    let select = format!("SELECT * FROM {}", call(rng, function));
    let begin = *rng.pick(&[
        "BEGIN",
        "BEGIN ISOLATION LEVEL REPEATABLE READ",
        "BEGIN ISOLATION LEVEL SERIALIZABLE",
        "BEGIN READ ONLY",
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    ]);
    let end = *rng.pick(&["COMMIT", "ROLLBACK"]);
    match rng.below(12) {
        0 => format!("{begin}; {select}; {select}; {end}"),
        1 => format!("{begin}; SAVEPOINT s; {select}; ROLLBACK TO s; {select}; RELEASE s; {end}"),
        2 => {
            let other = rng.pick(functions);
            let other = call(rng, other);
            format!("{begin}; {select}; SELECT * FROM {other}; {end}")
        }
        3 => format!(
            "DO $do$BEGIN BEGIN PERFORM * FROM ({select}) s; EXCEPTION WHEN OTHERS THEN PERFORM 1; END; PERFORM * FROM ({select}) s; END$do$"
        ),
        4 => format!("SELECT count(*) FROM generate_series(1, 20) AS i, LATERAL ({select}) AS s"),
        5 => format!("SELECT ({select} LIMIT 1)"),
        6 => format!("BEGIN; DECLARE c CURSOR FOR {select}; FETCH 1 FROM c; FETCH 1 FROM c; {end}"),
        7 => format!(
            "SET statement_timeout = {}; {select}; RESET statement_timeout",
            1 + rng.below(4)
        ),
        8 => format!("{begin}; SET LOCAL pgcache.hot_tier = off; {select}; {end}"),
        9 => format!("SET ROLE fuzz_user; {select}; RESET ROLE"),
        _ => select,
    }
}
