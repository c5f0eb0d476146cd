//! What an older Redis does otherwise. Ours are the replies of 8.4; a Redis before a version below is asked, or
//! expected, as the row says, so that everything is compared with whatever Redis there is.

use super::redis::{Redis, Value};

/// The first two numbers of a version.
pub type Version = (u32, u32);

/// As INFO and the table of commands write it.
pub fn version(text: &str) -> Option<Version> {
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Cursors of SCAN that are read otherwise since a version; and one that says the same before it, too.
///
/// Until 7.4 the first character was looked at and the rest left to `strtoul`: a blank was refused, nothing was 0, and
/// a negative number a large one.
const CURSORS: [(Version, &str, &str); 4] = [
    ((7, 4), "", "x"),
    ((7, 4), "-1", "x"),
    ((7, 4), " 0", "0"),
    ((7, 4), "\t0", "0"),
];

/// What says to a Redis of this version what `words` say to one of 8.4.
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

/// Each row is a difference of the Redis that is there, or none any more: a row too many would hide something.
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

/// Places of a command's description (COMMAND INFO): until which version it was otherwise, and what it was.
///
/// Until 7.2 COMMAND GETKEYS took no command without an argument, and WAIT was no command for scripts. It may be one
/// since, for it does not wait there; that it can wait elsewhere is said since 7.4.
const DESCRIPTIONS: [(Version, &str, usize, &[&str]); 6] = [
    ((7, 2), "cluster|slots", 2, &["+stale"]),
    ((7, 2), "cluster|shards", 2, &["+stale"]),
    ((7, 2), "command|getkeys", 1, &[":-4"]),
    ((7, 2), "wait", 2, &["+noscript"]),
    ((7, 4), "wait", 2, &[]),
    ((7, 4), "wait", 6, &["+@connection", "+@slow"]),
];

/// What a Redis of this version says of a command in this place; None: what one of 8.4 says.
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
