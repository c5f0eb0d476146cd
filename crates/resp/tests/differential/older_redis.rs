//! The differences of older versions of Redis. The crate behaves like 8.4. For an older Redis, a row here changes the
//! sent command or the expected reply, so that the test can compare every reply with the machine's Redis.

use super::redis::{Redis, Value};

/// The first two numbers of a version.
pub type Version = (u32, u32);

/// Parses a version as written in INFO and in the table of commands.
pub fn version(text: &str) -> Option<Version> {
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Cursors of SCAN that Redis parses differently since a version, each with a cursor that has the same effect in older
/// versions.
///
/// Until 7.4 Redis read the first character and passed the rest to `strtoul`: a blank was refused, an empty text was
/// 0, and a negative number became a large one.
const CURSORS: [(Version, &str, &str); 4] = [
    ((7, 4), "", "x"),
    ((7, 4), "-1", "x"),
    ((7, 4), " 0", "0"),
    ((7, 4), "\t0", "0"),
];

/// Returns the words that have the same meaning for a Redis of this version as `words` have for 8.4.
pub fn said_to(redis: Version, words: &[String]) -> Vec<String> {
    let mut words = words.to_vec();
    if words[0].eq_ignore_ascii_case("scan") && words.len() > 1 {
        let same = CURSORS
            .into_iter()
            .find(|(since, cursor, _)| redis < *since && words[1] == *cursor);
        if let Some((_, _, older)) = same {
            words[1] = older.into();
        }
    }
    words
}

/// Checks that each row is a difference of the machine's Redis, or does not apply to it. A superfluous row would
/// hide an error.
#[allow(
    dead_code,
    reason = "the table is looked at by one of the tests that are made of it"
)]
pub fn look_at_cursors(redis: &mut Redis) {
    let mut scan = |cursor: &str| {
        redis.send(format!("*2\r\n$4\r\nSCAN\r\n${}\r\n{cursor}\r\n", cursor.len()).as_bytes());
        redis.reply()
    };
    let replies =
        CURSORS.map(|(since, cursor, older)| (since, cursor, scan(cursor) == scan(older)));
    for (since, cursor, is_same) in replies {
        assert_eq!(is_same, redis.version >= since, "{cursor:?}");
    }
}

/// Fields in a command's description (COMMAND INFO): the first version with the present content of a field, and the
/// field's former content.
///
/// Until 7.2 COMMAND GETKEYS accepted no command without arguments, and WAIT was not allowed in scripts. Since 7.2 WAIT
/// is allowed in scripts, because it does not wait there; 7.4 and later report that it may block elsewhere.
const DESCRIPTIONS: [(Version, &str, usize, &[&str]); 6] = [
    ((7, 2), "cluster|slots", 2, &["+stale"]),
    ((7, 2), "cluster|shards", 2, &["+stale"]),
    ((7, 2), "command|getkeys", 1, &[":-4"]),
    ((7, 2), "wait", 2, &["+noscript"]),
    ((7, 4), "wait", 2, &[]),
    ((7, 4), "wait", 6, &["+@connection", "+@slow"]),
];

/// Returns the content of this field of a command in a Redis of this version; None if it equals the content in 8.4.
#[allow(
    dead_code,
    reason = "the table is looked at by one of the tests that are made of it"
)]
pub fn described_by(redis: Version, name: &Value, place: usize) -> Option<Vec<Value>> {
    let (.., older) = DESCRIPTIONS.into_iter().find(|(until, of, at, _)| {
        redis < *until && *name == Value::Bytes(of.as_bytes().to_vec()) && place == *at
    })?;
    let lines = older
        .iter()
        .map(|line| Value::Line(line.as_bytes().to_vec()));
    Some(lines.collect())
}
