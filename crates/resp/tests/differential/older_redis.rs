//! The differences between Redis 8.4, which the crate follows, and older versions. For an older Redis, a row here
//! changes the command that is sent or the reply that is expected, so that the test can compare every reply with the
//! installed Redis.

use super::redis::{Redis, Value};

/// The first two numbers of a version.
pub type Version = (u32, u32);

/// Parses a version as written in INFO and in the table of commands.
pub fn version(text: &str) -> Option<Version> {
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Cursors of SCAN that Redis parses differently from this version on, each with a cursor that has the same effect in
/// older versions.
///
/// Until 7.4 Redis read the first character and passed the rest to `strtoul`: a blank was refused, an empty text was
/// 0, and a negative number became a large one.
const CURSORS: [(Version, &str, &str); 4] = [
    ((7, 4), "", "x"),
    ((7, 4), "-1", "x"),
    ((7, 4), " 0", "0"),
    ((7, 4), "\t0", "0"),
];

/// Returns the words that mean for a Redis of this version what `words` mean for 8.4.
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

/// Checks that each row describes a real difference of the installed Redis, or does not apply to it. Otherwise a
/// superfluous row could hide an error.
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

/// Fields in the output of COMMAND INFO that have changed: the first version with the current content, and the former
/// content.
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
