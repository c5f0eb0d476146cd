//! Tests the commands and options that Redis added after 7.0, with a table of commands and expected results, because a
//! comparison with an installed Redis 7.0 cannot test them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what is wrong by a panic"
)]

use pgcache_resp::{Command, Condition, Expiry, Limits, Parser, Protocol, Writer};

/// Returns the result of parsing a line: the command in a short notation, or the error.
fn read(line: &str) -> String {
    let line = format!("{line}\r\n");
    let mut parser = Parser::new(Limits::default());
    let args = parser.next(line.as_bytes()).unwrap().unwrap().args;
    match Command::read(args) {
        Ok(Command::Set(set)) => format!("set {} {}", condition(set.condition), expiry(set.expiry)),
        Ok(Command::SetManyExpire {
            pairs,
            condition: when,
            expiry: until,
        }) => {
            let pairs: Vec<_> = pairs
                .pairs()
                .map(|(key, value)| format!("{}={}", text(key), text(value)))
                .collect();
            format!(
                "msetex {} {} {}",
                pairs.join(","),
                condition(when),
                expiry(until)
            )
        }
        Ok(Command::DeleteIf {
            key,
            condition: when,
        }) => format!("delex {} {}", text(key), condition(when)),
        Ok(Command::Digest { key }) => format!("digest {}", text(key)),
        Ok(other) => panic!("{other:?}"),
        Err(failure) => {
            let mut replies = Writer::new(Protocol::Resp2, 1 << 10);
            failure.write(&mut replies);
            text(replies.as_bytes()).trim_end().to_string()
        }
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn condition(condition: Condition<'_>) -> String {
    match condition {
        Condition::Always => "always".into(),
        Condition::Absent => "absent".into(),
        Condition::Present => "present".into(),
        Condition::Equal(with) => format!("=={}", text(with)),
        Condition::NotEqual(with) => format!("!={}", text(with)),
        Condition::DigestEqual(with) => format!("d=={}", text(with)),
        Condition::DigestNotEqual(with) => format!("d!={}", text(with)),
        Condition::Invalid => "invalid".into(),
    }
}

fn expiry(expiry: Expiry<'_>) -> String {
    match expiry {
        Expiry::Unsaid => "unsaid".into(),
        Expiry::Keep => "keep".into(),
        Expiry::Remove => "remove".into(),
        Expiry::At(lifetime) => format!(
            "{:?} {} {}",
            lifetime.unit,
            lifetime.absolute,
            text(lifetime.amount)
        ),
    }
}

#[test]
fn commands_after_7_0_are_read() {
    let digest = "0123456789abcdef";
    let cases = [
        ("set k v ifeq x ex 10", "set ==x Seconds false 10"),
        ("set k v IFNE x", "set !=x unsaid"),
        (
            &format!("set k v ifdeq {digest}"),
            "set d==0123456789abcdef unsaid",
        ),
        ("set k v ifdeq abc", "set d==abc unsaid"),
        ("set k v ifeq x ifeq y", "set ==y unsaid"),
        ("set k v ifeq x ifne y", "-ERR syntax error"),
        ("set k v ifeq x nx", "-ERR syntax error"),
        ("set k v nx ifeq x", "-ERR syntax error"),
        ("set k v ifeq", "-ERR syntax error"),
        ("getex k ifeq x", "-ERR syntax error"),
        (
            "msetex 2 a 1 b 2 nx pxat 9",
            "msetex a=1,b=2 absent Milliseconds true 9",
        ),
        ("msetex 1 a 1 keepttl xx", "msetex a=1 present keep"),
        ("msetex 2 a 1 b", "-ERR wrong number of key-value pairs"),
        ("msetex 0 a 1", "-ERR invalid numkeys value"),
        ("msetex x a 1", "-ERR invalid numkeys value"),
        (
            "msetex 9223372036854775807 a 1",
            "-ERR invalid numkeys value",
        ),
        ("msetex 1 a 1 get", "-ERR syntax error"),
        ("delex k", "delex k always"),
        ("delex k ifne x", "delex k !=x"),
        ("delex k nx x", "delex k invalid"),
        ("delifeq k x", "delex k ==x"),
        (
            "delifeq k",
            "-ERR wrong number of arguments for 'delifeq' command",
        ),
        (
            "delex k ifeq",
            "-ERR wrong number of arguments for 'delex' command",
        ),
        ("digest k", "digest k"),
    ];
    for (line, expected) in cases {
        assert_eq!(read(line), expected, "{line}");
    }
}
