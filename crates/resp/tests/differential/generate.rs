//! Generates random commands. Most are valid, with arguments from small pools so that they affect the same keys; some
//! are invalid, in every way.

use pgcache_resp::{Entry, TABLE};

/// A random number generator with a repeatable seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % end
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    fn pick(&mut self, from: &[&'static str]) -> String {
        from[self.below(from.len())].to_string()
    }
}

type Words = Vec<String>;

const KEYS: &[&str] = &[
    "a", "b", "c", "d", "ab", "abc", "user:1", "user:2", "[x]", "", "k\r\n", "\0z", "né",
];
const VALUES: &[&str] = &[
    "",
    "1",
    "-1",
    "0",
    "9223372036854775807",
    "-9223372036854775808",
    "abc",
    "1.5",
    " 1",
    "+1",
    "01",
    "-0",
    "a\r\nb",
    "x\0y",
    "some longer text of more than forty-four bytes, which Redis stores otherwise",
];
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "5",
    "-5",
    "100",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "abc",
    "",
    "1.0",
    " 1",
    "1 ",
    "007",
    "-0",
    "2147483648",
    "-2147483649",
    "536870913",
];
const FLOATS: &[&str] = &[
    "0",
    "-0",
    "0.1",
    "10.5",
    "1e3",
    ".5",
    "5.",
    ".",
    "1e",
    "e1",
    "inf",
    "-inf",
    "INFINITY",
    "nan",
    "1e4932",
    "1e4933",
    "1e-4950",
    "1e-4952",
    "1e-5000",
    "0.00000000000000001",
    "0.000000000000000005",
    "3.5e-17",
    "18446744073709551615.5",
    "9007199254740993",
    "1 ",
    " 1",
    "1_0",
    "--1",
    "1e99999999999999999999",
];
/// Durations of entries. The positive durations are so far apart that a difference of a second between the two servers'
/// clocks changes no comparison.
const DURATIONS: &[&str] = &[
    "1000000",
    "5000000",
    "0",
    "-1",
    "-1000",
    "abc",
    "",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775",
    "9223372036854776",
    "-9223372036854776",
];
const FAR: &[&str] = &[
    "4000000000000",
    "5000000000000",
    "6000000000000",
    "0",
    "-7",
    "x",
    "9223372036854775000",
];
const MOMENTS: &[&str] = &[
    "4000000000000",
    "5000000000000",
    "6000000000000",
    "1",
    "0",
    "-7",
    "x",
    "99999999999999999999",
];
const PATTERNS: &[&str] = &[
    "*",
    "a*",
    "?",
    "??",
    "[ab]",
    "[^a]*",
    "user:[0-9]",
    "\\[x\\]",
    "[a-c]*c",
    "",
    "*1",
    "[",
    "[^",
    "a\\",
    "*[*",
    "[]x]",
    "[b-a]",
    "k*\n",
    "**b**",
    "[a-",
    "[\\]x]",
];
const DATABASES: &[&str] = &[
    "0",
    "0",
    "0",
    "1",
    "2",
    "15",
    "16",
    "-1",
    "x",
    "99999999999",
];

/// Generates a text that may be a decimal number, from a pool or from random digits.
fn float(random: &mut Random) -> String {
    if random.one_in(3) {
        return random.pick(FLOATS);
    }
    let digits = |random: &mut Random, most: usize| -> String {
        (0..random.below(most))
            .map(|_| char::from(b'0' + random.below(10) as u8))
            .collect()
    };
    let sign = random.pick(&["", "-", "", "+"]);
    let (whole, places) = (digits(random, 24), digits(random, 24));
    let power = random.pick(&["", "", "", "e1", "e-3", "E+7", "e-17", "e18", "e60", "e-40"]);
    format!("{sign}{whole}.{places}{power}")
}

/// Generates a command and its arguments.
pub fn command(random: &mut Random, in_transaction: bool) -> Words {
    loop {
        let mut words = valid(random);
        // `judge` compares lists of keys and times in a special way, which does not work inside the array that EXEC
        // returns.
        let name = words[0].to_ascii_lowercase();
        if in_transaction && UNORDERED.contains(&name.as_str()) {
            continue;
        }
        if random.one_in(20) {
            words = wrong(random, words);
        }
        if random.one_in(3) {
            words[0] = words[0].to_ascii_uppercase();
        }
        return words;
    }
}

pub const UNORDERED: &[&str] = &[
    "keys",
    "scan",
    "randomkey",
    "ttl",
    "pttl",
    "expiretime",
    "pexpiretime",
];

fn words(words: &[&str]) -> Words {
    words.iter().map(|word| word.to_string()).collect()
}

fn valid(random: &mut Random) -> Words {
    let mut made = Words::new();
    let mut add = |word: String| made.push(word);
    match random.below(48) {
        0..3 => {
            add(random.pick(&[
                "get", "strlen", "getdel", "incr", "decr", "type", "persist", "ttl",
            ]));
            add(random.pick(KEYS));
        }
        3..9 => {
            add("set".into());
            add(random.pick(KEYS));
            add(random.pick(VALUES));
            options(random, &mut made);
        }
        9 => {
            add(random.pick(&["setnx", "getset", "append"]));
            add(random.pick(KEYS));
            add(random.pick(VALUES));
        }
        10 => {
            add(random.pick(&["setex", "psetex"]));
            add(random.pick(KEYS));
            add(random.pick(DURATIONS));
            add(random.pick(VALUES));
        }
        11..13 => {
            add("getex".into());
            add(random.pick(KEYS));
            options(random, &mut made);
        }
        13..16 => {
            add(random.pick(&["mget", "del", "unlink", "exists", "touch", "watch"]));
            (0..=random.below(4)).for_each(|_| add(random.pick(KEYS)));
        }
        16..18 => {
            add(random.pick(&["mset", "msetnx"]));
            for _ in 0..=random.below(3) {
                add(random.pick(KEYS));
                add(random.pick(VALUES));
            }
        }
        18..20 => {
            add(random.pick(&["getrange", "substr"]));
            add(random.pick(KEYS));
            add(random.pick(NUMBERS));
            add(random.pick(NUMBERS));
        }
        20 => {
            add("setrange".into());
            add(random.pick(KEYS));
            add(random.pick(NUMBERS));
            add(random.pick(VALUES));
        }
        21..24 => {
            add(random.pick(&["incrby", "decrby"]));
            add(random.pick(KEYS));
            add(random.pick(NUMBERS));
        }
        24..26 => {
            add(random.pick(&["expire", "pexpire"]));
            add(random.pick(KEYS));
            add(random.pick(DURATIONS));
            for _ in 0..random.below(3).saturating_sub(1) {
                add(random.pick(&["nx", "XX", "bogus"]));
            }
            if random.one_in(8) {
                made.extend(words(&["nx", "gt"]));
            }
        }
        26..30 => {
            add(random.pick(&["expireat", "pexpireat"]));
            add(random.pick(KEYS));
            add(random.pick(MOMENTS));
            for _ in 0..random.below(3) {
                add(random.pick(&["nx", "XX", "gt", "LT", "gt", "lt", "bogus"]));
            }
        }
        30..32 => {
            add(random.pick(&["pttl", "expiretime", "pexpiretime", "ttl"]));
            add(random.pick(KEYS));
        }
        32..34 => {
            add(random.pick(&["rename", "renamenx"]));
            add(random.pick(KEYS));
            add(random.pick(KEYS));
        }
        34..36 => {
            add("copy".into());
            add(random.pick(KEYS));
            add(random.pick(KEYS));
            for _ in 0..random.below(3) {
                match random.below(5) {
                    0..2 => made.push("replace".into()),
                    2..4 => made.extend([String::from("DB"), random.pick(DATABASES)]),
                    _ => made.push(random.pick(&["bogus", "db"])),
                }
            }
        }
        36 => add(random.pick(&["randomkey", "dbsize"])),
        37..39 => {
            add("keys".into());
            add(random.pick(PATTERNS));
        }
        39..41 => return scan(random),
        41 if random.one_in(4) => {
            add(random.pick(&["flushdb", "flushall"]));
            if random.one_in(2) {
                add(random.pick(&["async", "SYNC", "bogus"]));
            }
        }
        41..43 => add(random.pick(&["multi", "exec", "exec", "discard", "unwatch", "multi"])),
        43 => {
            add("select".into());
            add(random.pick(DATABASES));
        }
        44 => add(random.pick(&["ping", "multi", "exec"])),
        45..47 => {
            add("incrbyfloat".into());
            add(random.pick(KEYS));
            add(float(random));
        }
        _ => {
            add(random.pick(&["echo", "ping"]));
            add(random.pick(VALUES));
        }
    }
    made
}

/// Options of SET and GETEX, in any order and number.
fn options(random: &mut Random, made: &mut Words) {
    for _ in 0..random.below(4) {
        let option = random.pick(&[
            "nx", "XX", "get", "ex", "PX", "exat", "PXAT", "keepttl", "persist", "bogus",
        ]);
        let amounts = match option.to_ascii_lowercase().as_str() {
            "ex" | "px" => Some(DURATIONS),
            "exat" | "pxat" => Some(FAR),
            _ => None,
        };
        made.push(option);
        if let Some(amounts) = amounts
            && !random.one_in(12)
        {
            made.push(random.pick(amounts));
        }
    }
}

/// Generates a SCAN of the whole database, because only such a scan has a single correct result, or an invalid SCAN.
fn scan(random: &mut Random) -> Words {
    let mut made = words(&["scan", "0", "COUNT", "100000"]);
    for _ in 0..random.below(3) {
        match random.below(2) {
            0 => made.extend([String::from("match"), random.pick(PATTERNS)]),
            _ => made.extend([
                String::from("TYPE"),
                random.pick(&["string", "STRING", "hash", "list"]),
            ]),
        }
    }
    match random.below(6) {
        0 => made[1] = random.pick(&["x", "18446744073709551616", "", "-1", "-", "0x", "0 "]),
        1 => made.extend([String::from("count"), random.pick(&["0", "-1", "x", "1.5"])]),
        2 => made.push(random.pick(&["match", "bogus", "count"])),
        3 => made[1] = random.pick(&[" 0", "\t0", "00", "-0", "+0", "0\0x"]),
        _ => {}
    }
    made
}

/// Makes a command invalid: with too many arguments, with too few, with an unknown name, or with an unknown subcommand.
fn wrong(random: &mut Random, mut made: Words) -> Words {
    let name = |entry: &Entry| entry.name.to_string();
    match random.below(6) {
        0 => {
            made.truncate(1 + random.below(made.len()));
            if made[0] == "scan" && made.len() > 1 {
                words(&["scan"])
            } else {
                made
            }
        }
        1 if made[0] != "scan" => {
            made.extend([random.pick(VALUES), random.pick(KEYS), random.pick(VALUES)]);
            made
        }
        2 => {
            made[0] = random.pick(&["nosuch", "", "g\r\nt", "GETT", "x\0y"]);
            made
        }
        3 => {
            let fixed: Vec<_> = TABLE.iter().filter(|entry| entry.since < "7.2").collect();
            let entry = fixed[random.below(fixed.len())];
            let few = usize::from(entry.arity.unsigned_abs()) - 1;
            let mut made = vec![name(entry)];
            made.extend((1..few).map(|_| "1".to_string()));
            if few == 0 { words(&["get"]) } else { made }
        }
        4 => {
            let containers: Vec<_> = TABLE
                .iter()
                .filter(|entry| !entry.subcommands.is_empty())
                .collect();
            vec![
                name(containers[random.below(containers.len())]),
                random.pick(&["bogus", "", "x\r\ny"]),
            ]
        }
        _ => {
            let inner: Vec<_> = TABLE
                .iter()
                .flat_map(|entry| entry.subcommands.iter().map(move |inner| (entry, inner)))
                .filter(|(_, inner)| inner.since < "7.2" && inner.arity > 0)
                .collect();
            let (outer, inner) = inner[random.below(inner.len())];
            let mut made = vec![name(outer), inner.last_name().to_string()];
            made.extend((0..usize::from(inner.arity.unsigned_abs())).map(|_| "1".to_string()));
            made
        }
    }
}
