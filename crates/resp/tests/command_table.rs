//! Tests the command table: the key positions, and the agreement of properties that a row states twice.

#![allow(clippy::unwrap_used, reason = "a test says what is wrong by a panic")]

use pgcache_resp::{Kind, Limits, Parsed, Parser, TABLE, find, flag, rule};

#[test]
fn keys_are_where_the_table_says() {
    let keys = |line: &str| {
        let line = format!("{line}\r\n");
        let mut parser = Parser::new(Limits::default());
        let args = parser.next(line.as_bytes()).unwrap().unwrap().args;
        let entry = find(args.get(0).unwrap()).unwrap();
        let keys = entry.keys(args).map(String::from_utf8_lossy);
        keys.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(keys("get a"), "a");
    assert_eq!(keys("mget a b c"), "a b c");
    assert_eq!(keys("mset a 1 b 2"), "a b");
    assert_eq!(keys("rename a b"), "a b");
    assert_eq!(keys("ping"), "");
    assert_eq!(keys("eval script 2 a b c"), "a b");
    assert_eq!(keys("eval script 0 a"), "");
    assert_eq!(keys("eval script 2 a"), "");
    assert_eq!(keys("eval script -1 a"), "");
    assert_eq!(keys("msetex 2 a 1 b 2 ex 9"), "a b");
}

#[test]
fn a_row_says_the_same_by_its_kind_its_rules_and_its_flags() {
    let all = TABLE
        .iter()
        .flat_map(|entry| std::iter::once(entry).chain(entry.subcommands));
    for entry in all {
        let reads = entry.flags & flag::READONLY != 0;
        let writes = entry.flags & flag::WRITE != 0;
        let rules = |one: u16, implies: bool| assert!(!entry.has(one) || implies, "{}", entry.name);
        match entry.kind {
            Kind::Read => assert!(reads, "{}", entry.name),
            Kind::Write => assert!(entry.may_write(), "{}", entry.name),
            Kind::Long => assert!(reads || writes, "{}", entry.name),
            Kind::Watch | Kind::NoEntries => assert!(!reads && !writes, "{}", entry.name),
        }
        let uses_entries = entry.kind != Kind::NoEntries;
        rules(rule::COPIES, entry.kind == Kind::Read);
        rules(rule::LOADS, matches!(entry.kind, Kind::Read | Kind::Write));
        rules(rule::LIGHT, !entry.has(rule::MAY_BE_SLOW | rule::DESCRIBES));
        rules(rule::MAY_BE_SLOW | rule::DESCRIBES, !uses_entries);
        rules(rule::MAY_WRITE, !reads && !writes);
        rules(
            rule::IN_TABLE_EXEC,
            !uses_entries && !entry.has(rule::UNQUEUED),
        );
        let moves = entry.flags & flag::MOVABLEKEYS != 0;
        assert_eq!(moves, entry.keys.counted.is_some(), "{}", entry.name);
    }
}

#[test]
fn options_decide_the_kind_of_scan_and_getex() {
    let kind = |line: &str| {
        let line = format!("{line}\r\n");
        let mut parser = Parser::new(Limits::default());
        let args = parser.next(line.as_bytes()).unwrap().unwrap().args;
        Parsed::read(args).unwrap().kind()
    };
    assert_eq!(kind("scan 0"), Kind::Read);
    assert_eq!(kind("scan 0 count 1000"), Kind::Read);
    assert_eq!(kind("scan 0 count 1001"), Kind::Long);
    assert_eq!(kind("getex a"), Kind::Read);
    assert_eq!(kind("getex a persist"), Kind::Write);
    assert_eq!(kind("getex a ex 9"), Kind::Write);
    assert_eq!(kind("get a"), Kind::Read);
    assert_eq!(kind("ping"), Kind::NoEntries);
}
