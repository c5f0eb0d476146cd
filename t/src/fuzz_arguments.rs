//! Generates random arguments for the calls in [`crate::fuzz`], by the declared type of each argument. The values are
//! ordinary ones, and ones at and beyond the limits.

use crate::rng::Rng;

const CACHES: &[&str] = &[
    "'c_text'",
    "'c_logged'",
    "'c_json'",
    "'c_bytes'",
    "'c_rls'",
    "'c_strict'",
    "'a_words'",
    "'a_uuids'",
    "'a_numbers'",
    "'a_generated'",
    "'m_text'",
    "'m_json'",
    "'m_bytes'",
    "'pgcache.main'",
];

/// Values for the argument that names a cache, other than caches that work: NULL, relations that do not exist or are
/// not caches, and caches that no longer work.
const OTHERS: &[&str] = &[
    "'plain'",
    "'plain_value'",
    "'numbers'",
    "'looking'",
    "'looked'",
    "'parts'",
    "'part'",
    "'abroad'",
    "'composite'",
    "'wrong_key'",
    "'wrong_settings'",
    "'wrong_view'",
    "'wrong_words'",
    "'pg_class'",
    "'pg_proc_oid_index'",
    "'pg_stat_activity'",
    "'information_schema.tables'",
    "'pgcache.all_caches'",
    "'pgcache.stats'",
    "0::oid::regclass",
    "4294967295::oid::regclass",
    "123456::oid::regclass",
    "(SELECT reltoastrelid FROM pg_class WHERE relname = 'c_text')::regclass",
    "'nothing_of_this_name'",
    "NULL",
];

/// Words that have a meaning in some function: keys, storages, schedules, settings and SQL.
const WORDS: &[&str] = &[
    "k1",
    "k2",
    "k3",
    "k",
    "1",
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "1e5",
    " 7",
    "",
    " ",
    "null",
    "{\"a\": [1, 2]}",
    "[]",
    "{",
    "\\x00ff",
    "a%b_c\\",
    "'quoted'",
    "\"quoted\"",
    "public.x",
    "a.b.c.d",
    "memory",
    "logged",
    "unlogged",
    "10 seconds",
    "* * * * *",
    "5 seconds; SELECT 1",
    "id=1 oid=2",
    "id=",
    "ttl=PT5S",
    "key",
    "SELECT 1",
    "SELECT $1",
    "SELECT NULL",
    "SELECT",
    "SELECT 1, 2",
    "SELECT g FROM generate_series(1, 3) g",
    "SELECT 1/0",
    "DROP TABLE plain",
    "SELECT 1; SELECT 2",
    "COMMIT",
    "NEW.key",
    "key || $1",
    "(SELECT key)",
    "value -> 'a'",
    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "A0EEBC999C0B4EF8BB6D6BB9BD380A11",
    "s",
    "ms",
];

const NAMES: &[&str] = &[
    "NULL",
    "'key'",
    "'value'",
    "'expires_at'",
    "'id'",
    "'e'",
    "'ctid'",
    "'nothing_of_this_name'",
];

const MOMENTS: &[&str] = &[
    "NULL",
    "now()",
    "now() - interval '1 hour'",
    "now() + interval '1 hour'",
    "'infinity'",
    "'-infinity'",
    "'9999-12-31'",
];

const INTERVALS: &[&str] = &[
    "NULL",
    "NULL",
    "'1 hour'",
    "'1 millisecond'",
    "'5 milliseconds'",
    "'0'",
    "'-1 second'",
    "'1 microsecond'",
    "'1 mon -30 days'",
    "'178000000 years'",
    "'-178000000 years'",
    "'2147483647 days'",
    "'1 mon -31 days'",
    "'2147483647 mons 2147483647 days 2562047788 hours'",
    "'999999 years'",
    "'infinity'",
    "'-infinity'",
];

const NUMBERS: &[&str] = &[
    "NULL",
    "0",
    "1",
    "1",
    "3",
    "-1",
    "100",
    "2147483647",
    "-2147483648",
];
const BIG_NUMBERS: &[&str] = &[
    "9223372036854775807",
    "(-9223372036854775807 - 1)",
    "4294967296",
];
const TYPES: &[&str] = &[
    "'text'",
    "'jsonb'",
    "'bytea'",
    "'int'",
    "'json'",
    "'text[]'",
    "'anyelement'",
    "'composite'",
    "0::oid::regtype",
    "NULL",
];

fn text(rng: &mut Rng) -> String {
    match rng.below(12) {
        0 => "NULL".into(),
        1 => format!(
            "repeat('x', {})",
            rng.pick(&[2047, 2048, 2049, 8000, 70_000, 1_200_000])
        ),
        2 => format!("repeat('k1', {})", 1 + rng.below(900)),
        3 => "chr(1) || chr(127)".into(),
        4 => letters(rng),
        5..=7 => format!("'k{}'", rng.below(20)),
        _ => format!("'{}'", rng.pick(WORDS).replace('\'', "''")),
    }
}

/// Returns SQL for repeated text in the current database's encoding, usually with non-ASCII characters.
fn letters(rng: &mut Rng) -> String {
    let bytes = match rng.below(4) {
        0 => {
            "CASE getdatabaseencoding() WHEN 'UTF8' THEN '\\xc3a9' WHEN 'EUC_JP' THEN '\\xa4a2' ELSE '\\xe9' END"
        }
        1 => {
            "CASE getdatabaseencoding() WHEN 'UTF8' THEN '\\xf09f98806b' WHEN 'EUC_JP' THEN '\\x8fb0a1' ELSE '\\xff80' END"
        }
        2 => {
            "CASE getdatabaseencoding() WHEN 'UTF8' THEN '\\xefbfbf' WHEN 'EUC_JP' THEN '\\x8ea76b' ELSE '\\xc3a9' END"
        }
        _ => "'\\x6b31'",
    };
    let times = rng.pick(&[1, 1, 1, 500, 1024, 3000]);
    format!("repeat(convert_from(({bytes})::bytea, getdatabaseencoding()), {times})")
}

fn jsonb(rng: &mut Rng) -> String {
    match rng.below(8) {
        0 => "NULL".into(),
        1 => "'null'".into(),
        2 => "to_jsonb(repeat('x', 100000))".into(),
        3 => "(repeat('[', 500) || repeat(']', 500))::jsonb".into(),
        4 => "jsonb_build_object('a', array_fill(1, ARRAY[1000]))".into(),
        _ => format!(
            "'{}'",
            rng.pick(&[
                "1",
                "{\"a\": [1, 2, null]}",
                "[]",
                "\"text\"",
                "1e400",
                "true"
            ])
        ),
    }
}

fn bytea(rng: &mut Rng) -> String {
    match rng.below(8) {
        0 => "NULL".into(),
        1 => "''".into(),
        2 => format!(
            "decode(repeat('00ff', {}), 'hex')",
            rng.pick(&[10, 4000, 600_000])
        ),
        3 => "'\\xff80fe'".into(),
        4 => "'\\x7b7d'".into(),
        _ => "'\\x31'".into(),
    }
}

fn array(rng: &mut Rng, of: &str, element: fn(&mut Rng) -> String) -> String {
    match rng.below(10) {
        0 => "NULL".into(),
        1 => format!("'{{}}'::{of}[]"),
        2 => format!("ARRAY[[{0}], [{0}]]::{of}[]", element(rng)),
        3 => {
            let element = element(rng);
            // Postgres makes no array of more than a gigabyte, so the call would not reach the extension.
            let most = if element.contains("repeat(") {
                100
            } else {
                5000
            };
            let many = most.min(*rng.pick(&[3, 100, 5000]));
            format!("array_fill({element}::{of}, ARRAY[{many}])")
        }
        4 => format!("array_fill('k'::{of}, ARRAY[2], ARRAY[-5])"),
        5 => format!(
            "(SELECT array_agg(('k' || i)::{of}) FROM generate_series(1, {}) i)",
            rng.pick(&[3, 200, 11_000])
        ),
        _ => {
            let elements: Vec<String> = (0..1 + rng.below(4)).map(|_| element(rng)).collect();
            format!("ARRAY[{}]::{of}[]", elements.join(", "))
        }
    }
}

/// Returns an argument of this type, as SQL.
pub(crate) fn argument(rng: &mut Rng, kind: &str) -> String {
    let value = match kind {
        "text" => text(rng),
        "jsonb" => jsonb(rng),
        "bytea" => bytea(rng),
        "text[]" => array(rng, "text", text),
        "bytea[]" => array(rng, "bytea", bytea),
        "interval" => (*rng.pick(INTERVALS)).into(),
        "regclass" if rng.below(4) > 0 => (*rng.pick(CACHES)).into(),
        "regclass" => (*rng.pick(OTHERS)).into(),
        "name" => (*rng.pick(NAMES)).into(),
        "timestamp with time zone" => (*rng.pick(MOMENTS)).into(),
        "regtype" => (*rng.pick(TYPES)).into(),
        "double precision" => {
            (*rng.pick(&["NULL", "0", "0.5", "1", "-1", "2", "'NaN'", "'infinity'"])).into()
        }
        "boolean" => (*rng.pick(&["true", "false", "NULL"])).into(),
        "bigint" if rng.below(4) == 0 => (*rng.pick(BIG_NUMBERS)).into(),
        "record" => format!("ROW({})", rng.pick(NUMBERS)),
        "bigint" | "integer" | "oid" => (*rng.pick(NUMBERS)).into(),
        _ => (*rng.pick(&["NULL", "'1'", "'k'"])).into(),
    };
    format!("({value})::{kind}")
}
