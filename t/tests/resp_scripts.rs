//! Tests the supported scripts, each against a Redis that runs the same script in Lua. The original texts belong to
//! their packages, and the server identifies them by their SHA-1. So this file has its own Lua texts with the same
//! effect.

use pgcache_tests::ask::Ask;
use pgcache_tests::resp::{Client, Door, Reply};

use crate::resp_differential::redis::{Redis, Value, value};

const DELETE_EQUAL: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
const DELETE_EQUAL_EACH: &str = "local n = 0 for _, k in ipairs(KEYS) do \
    if redis.call('GET', k) == ARGV[1] then n = n + redis.call('DEL', k) end end return n";
const EXTEND_EQUAL: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end \
    local left = redis.call('PTTL', KEYS[1]) if left < 0 then return 0 end \
    if ARGV[3] == '0' then left = left + ARGV[2] else left = ARGV[2] end \
    redis.call('PEXPIRE', KEYS[1], left) return 1";
const RENEW_EQUAL: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1";
const EXPIRE_AT_EQUAL: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('PEXPIREAT', KEYS[1], ARGV[2])";
const INCREMENT_EXISTING: &str = "if redis.call('EXISTS', KEYS[1]) == 0 then return false end return redis.call('INCRBY', KEYS[1], ARGV[1])";
const INCREMENT: &str = "return redis.call('INCRBY', KEYS[1], ARGV[1])";
const ADD: &str = "if redis.call('EXISTS', KEYS[1]) == 1 then return false end \
    return redis.call('SETEX', KEYS[1], ARGV[2], ARGV[1])";
const ACQUIRE_ALL: &str = "for _, k in ipairs(KEYS) do if redis.call('EXISTS', k) == 1 then return 0 end end \
    for _, k in ipairs(KEYS) do redis.call('SET', k, ARGV[1], 'PX', ARGV[2]) end return #KEYS";
const EXTEND_ALL: &str = "for _, k in ipairs(KEYS) do if redis.call('GET', k) ~= ARGV[1] then return 0 end end \
    for _, k in ipairs(KEYS) do redis.call('SET', k, ARGV[1], 'PX', ARGV[2]) end return #KEYS";
const ACQUIRE: &str = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])";
const ACQUIRE_UNTIL: &str = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PXAT', ARGV[2])";
const SET_FOR: &str = "return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])";
const SET_UNTIL: &str = "return redis.call('SET', KEYS[1], ARGV[1], 'PXAT', ARGV[2])";
const COUNT: &str = "local n = redis.call('INCR', KEYS[1]) local left = redis.call('PTTL', KEYS[1]) \
    if left <= 0 or ARGV[1] == '1' then left = tonumber(ARGV[2]) redis.call('PEXPIRE', KEYS[1], left) end \
    return {n, left}";
const COUNT_NEW: &str = "local w = tonumber(ARGV[2]) local left = redis.call('PTTL', KEYS[1]) \
    if left <= 0 then redis.call('SET', KEYS[1], 1, 'PX', w) return {1, w} end \
    local n = redis.call('INCR', KEYS[1]) \
    if ARGV[1] == '1' then left = w redis.call('PEXPIRE', KEYS[1], w) end return {n, left}";
const COUNT_FIXED: &str = "local w = tonumber(ARGV[1]) local left = redis.call('PTTL', KEYS[1]) \
    if left <= 0 then redis.call('SET', KEYS[1], 1, 'PX', w) return {1, w} end \
    return {redis.call('INCR', KEYS[1]), left}";
const READ: &str = "return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}";

/// The SHA-1 of a script, a Lua text with the same effect, the largest number of keys, and arguments.
type Script = (
    &'static str,
    &'static str,
    usize,
    &'static [&'static [&'static str]],
);

const TOKENS: &[&str] = &["1", "2", "token"];
const TIMES: &[&str] = &["1000000", "3000000"];
const MOMENTS: &[&str] = &["4000000000000", "5000000000000"];
const FLAGS: &[&str] = &["0", "1"];

const SCRIPTS: &[Script] = &[
    (
        "c3f8721cbb97f72bc19e972846bd7aaf91901658",
        DELETE_EQUAL,
        1,
        &[TOKENS],
    ),
    (
        "a4e8783852e6b949f9ef3a97212805108459a890",
        EXTEND_EQUAL,
        1,
        &[TOKENS, TIMES, FLAGS],
    ),
    (
        "1cac51482acf5858da00f6d685d68f886cd6b6b2",
        RENEW_EQUAL,
        1,
        &[TOKENS, TIMES],
    ),
    (
        "f4a7da3e5d8ea3b46642af08427151cae0190400",
        INCREMENT_EXISTING,
        1,
        &[&["1", "-5"]],
    ),
    (
        "4d15273b16b10c15e1d9202cbe93c959ab7d250b",
        INCREMENT,
        1,
        &[&["1", "-5"]],
    ),
    (
        "a08c9c69b7c07ae2485190873b90d128a23e502d",
        ADD,
        1,
        &[TOKENS, &["1000", "3000"]],
    ),
    (
        "647c65a442733a1aa440f99908d249d13b4d6c4a",
        DELETE_EQUAL,
        1,
        &[TOKENS],
    ),
    (
        "e5a322e2634ef59a516e8ea150cb085afafee684",
        ACQUIRE_ALL,
        3,
        &[TOKENS, TIMES],
    ),
    (
        "0f0f23b9048b36752b5be114f357ba083449f908",
        DELETE_EQUAL_EACH,
        3,
        &[TOKENS],
    ),
    (
        "ce46f80993d5dac20dd066eb301a4e37994bdbed",
        EXTEND_ALL,
        3,
        &[TOKENS, TIMES],
    ),
    (
        "96da70f7716f27d278a5218544df37fd8b0a5e4c",
        ACQUIRE_ALL,
        3,
        &[TOKENS, TIMES],
    ),
    (
        "e4612211c9f8f51c257e26e056b0a654b3187242",
        DELETE_EQUAL_EACH,
        3,
        &[TOKENS],
    ),
    (
        "aed6f382e410db8ba7926d4e5e9aab410bf2a78a",
        EXTEND_ALL,
        3,
        &[TOKENS, TIMES],
    ),
    (
        "7726c7be95e2a0ed082ec1da1e26b562f5c8903f",
        DELETE_EQUAL,
        1,
        &[TOKENS],
    ),
    (
        "8c2dd3ce05f3aace5fa1002a403139a7fbab3226",
        EXPIRE_AT_EQUAL,
        1,
        &[TOKENS, MOMENTS],
    ),
    (
        "9eb62214c9af87ae5f9a9f12bb4520281c0d2ae1",
        DELETE_EQUAL,
        1,
        &[TOKENS],
    ),
    (
        "852ba6ec6104340ced36643283c856d4698569e4",
        EXPIRE_AT_EQUAL,
        1,
        &[TOKENS, MOMENTS],
    ),
    (
        "fa3d1aaa7e4145457755016a3d5daf72fa7a11bf",
        ACQUIRE,
        1,
        &[TOKENS, TIMES],
    ),
    (
        "3875d208d9e377969d2022550302cc83ad17b584",
        ACQUIRE_UNTIL,
        1,
        &[TOKENS, MOMENTS],
    ),
    (
        "4384ed08baff4dd7071b6c78c516a2fded4ee3e7",
        SET_FOR,
        1,
        &[TOKENS, TIMES],
    ),
    (
        "c10e8119872659b926e8e28002d9b7fccbf15617",
        SET_UNTIL,
        1,
        &[TOKENS, MOMENTS],
    ),
    (
        "3f424a504987d231baa2e19159bb5def8ad32f87",
        COUNT,
        1,
        &[FLAGS, TIMES],
    ),
    (
        "81dbecea94d2d10514719b20ed51faf711529d9d",
        COUNT_NEW,
        1,
        &[FLAGS, TIMES],
    ),
    (
        "895b92e1712734e1b464999be23953485475357b",
        COUNT_FIXED,
        1,
        &[TIMES],
    ),
    ("6aeb97ed6086dcdeafdc6fda3999a0d0e38ec96a", READ, 1, &[]),
];

const KEYS: [&str; 3] = ["a", "b", "c"];

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % end
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from[self.below(from.len())]
    }
}

/// Sends the same request to both servers and compares the replies. A remaining time may differ by ten seconds.
fn ask_both(client: &mut Client, redis: &mut Redis, ours: &[&str], theirs: &[&str]) {
    let words: Vec<&[u8]> = theirs.iter().map(|word| word.as_bytes()).collect();
    redis.send(&Client::request(&words));
    let (ours_reply, theirs_reply) = (client.ask(ours), redis.reply());
    let Some((reply, _)) = value(&theirs_reply) else {
        panic!("a whole reply");
    };
    assert!(
        same(&ours_reply, &reply),
        "{ours:?}: {ours_reply:?}, Redis: {reply:?}"
    );
}

fn same(ours: &Reply, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Reply::Integer(ours), Value::Line(line)) => {
            let number = String::from_utf8_lossy(&line[1..]).parse::<i64>();
            number.is_ok_and(|theirs| {
                *ours == theirs || theirs > 100_000 && (theirs - ours).abs() < 10_000
            })
        }
        (Reply::Status(ours), Value::Line(line)) => line[1..] == *ours.as_bytes(),
        // Redis appends the name of the script to an error.
        (Reply::Error(ours), Value::Line(line)) => line[1..].starts_with(ours.as_bytes()),
        (Reply::Bulk(ours), Value::Bytes(theirs)) => ours == theirs,
        (Reply::Null, Value::Null) => true,
        (Reply::Array(ours), Value::List(theirs)) => {
            ours.len() == theirs.len()
                && ours
                    .iter()
                    .zip(theirs)
                    .all(|(ours, theirs)| same(ours, theirs))
        }
        _ => false,
    }
}

#[test]
fn scripts_have_the_same_effects_as_in_redis() {
    if std::process::Command::new("redis-server")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("there is no redis-server: nothing was compared");
        return;
    }
    let door = Door::start(&["pgcache.resp_caches = 'public.door, public.tab'"]);
    let mut session = door.cluster.connect("postgres");
    session.run("SELECT cache_create('tab', value_type => 'bytea')");
    compare(&door, "0");
    compare(&door, "1");
}

/// Compares all scripts on the cache of this database.
fn compare(door: &Door, database: &str) {
    let (mut client, mut redis) = (door.client(), Redis::start("scripts"));
    client.ask(&["SELECT", database]);
    let mut random = Random(17);
    for (digest, lua, most_keys, arguments) in SCRIPTS {
        for _ in 0..60 {
            for key in KEYS {
                let token = random.pick(TOKENS);
                let words: &[&str] = match random.below(4) {
                    0 => &["DEL", key],
                    1 => &["SET", key, token],
                    2 => &["SET", key, token, "PX", "2000000"],
                    _ => continue,
                };
                ask_both(&mut client, &mut redis, words, words);
            }
            let count = 1 + random.below(*most_keys);
            let number = count.to_string();
            let keys: Vec<&str> = (0..count).map(|_| random.pick(&KEYS)).collect();
            let arguments: Vec<&str> = arguments.iter().map(|pool| random.pick(pool)).collect();
            let request = |first: [&'static str; 2]| {
                [&first[..], &[number.as_str()], &keys, &arguments].concat()
            };
            ask_both(
                &mut client,
                &mut redis,
                &request(["EVALSHA", digest]),
                &request(["EVAL", lua]),
            );
            for key in KEYS {
                for words in [["GET", key], ["PTTL", key]] {
                    ask_both(&mut client, &mut redis, &words, &words);
                }
            }
        }
    }
}

#[test]
fn every_script_of_the_table_is_compared_and_on_the_page() {
    let file = |path: &str| {
        let path = format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let table = file("src/resp/commands/script_table.rs");
    let page = file("docs/door.md");
    let digests: Vec<&str> = table
        .lines()
        .filter_map(|line| line.trim().strip_prefix("script(\"")?.split('"').next())
        .collect();
    assert_eq!(
        digests,
        SCRIPTS.iter().map(|script| script.0).collect::<Vec<_>>()
    );
    for digest in digests {
        assert!(page.contains(digest), "{digest} is not in docs/door.md");
    }
}

#[test]
fn other_scripts_are_refused_in_words_that_help() {
    let door = Door::start(&["pgcache.resp_caches = 'public.door, public.tab'"]);
    let mut session = door.cluster.connect("postgres");
    session.run("SELECT cache_create('tab', value_type => 'bytea')");
    for database in ["0", "1"] {
        let mut client = door.client();
        client.ask(&["SELECT", database]);
        refuses_other_scripts(&mut client);
    }
}

fn refuses_other_scripts(client: &mut Client) {
    let unknown = "0123456789012345678901234567890123456789";
    assert_eq!(
        client.ask(&["EVALSHA", unknown, "0"]).error(),
        "NOSCRIPT No matching script. Please use EVAL."
    );
    for words in [
        &["EVAL", "return 1", "0"][..],
        &["SCRIPT", "LOAD", "return 1"],
    ] {
        assert!(
            client.ask(words).error().contains("docs/door.md"),
            "{words:?}"
        );
    }
    let known = SCRIPTS[0].0;
    assert_eq!(
        client.ask(&["SCRIPT", "EXISTS", unknown, known, &known.to_uppercase()]),
        Reply::Array(vec![
            Reply::Integer(0),
            Reply::Integer(1),
            Reply::Integer(1)
        ])
    );
    assert_eq!(client.ask(&["SCRIPT", "FLUSH"]), Reply::status("OK"));
    assert_eq!(
        client.ask(&["SCRIPT", "FLUSH", "ASYNC"]),
        Reply::status("OK")
    );
    assert!(
        client
            .ask(&["SCRIPT", "FLUSH", "now"])
            .error()
            .contains("SYNC|ASYNC")
    );
    for (words, part) in [
        (&["EVALSHA", known, "x"][..], "not an integer"),
        (&["EVALSHA", known, "-1"], "negative"),
        (&["EVALSHA", known, "2", "a"], "greater"),
        (&["EVALSHA", known, "0", "a"], "wrong number"),
        (&["EVALSHA", known, "1", "a"], "wrong number"),
    ] {
        let error = client.ask(words).error();
        assert!(
            error.starts_with("ERR ") && error.contains(part),
            "{words:?}: {error}"
        );
    }
}
