//! Channels of the door.

use pgcache_tests::resp::{Client, Door, Reply};

fn push(parts: &[&str]) -> Vec<Reply> {
    parts.iter().map(Reply::bulk).collect()
}

fn told(word: &str, name: &str, count: i64) -> Vec<Reply> {
    [push(&[word, name]), vec![Reply::Integer(count)]].concat()
}

fn next(client: &mut Client) -> Vec<Reply> {
    match client.reply() {
        Some(Reply::Array(parts) | Reply::Push(parts)) => parts,
        other => panic!("a message was to come, not {other:?}"),
    }
}

#[test]
fn messages_reach_who_has_subscribed() {
    let door = Door::start(&[]);
    let (mut reader, mut other, mut writer) = (door.client(), door.tcp(), door.client());
    assert_eq!(
        reader.ask(&["SUBSCRIBE", "news", "sport"]),
        Reply::Array(told("subscribe", "news", 1))
    );
    assert_eq!(next(&mut reader), told("subscribe", "sport", 2));
    assert_eq!(
        other.ask(&["PSUBSCRIBE", "n*"]),
        Reply::Array(told("psubscribe", "n*", 1))
    );
    assert_eq!(writer.ask(&["PUBLISH", "news", "hello"]), Reply::Integer(2));
    assert_eq!(writer.ask(&["PUBLISH", "sport", "one"]), Reply::Integer(1));
    assert_eq!(
        writer.ask(&["PUBLISH", "nobody"]).error(),
        "ERR wrong number of arguments for 'publish' command"
    );
    assert_eq!(writer.ask(&["PUBLISH", "silence", "x"]), Reply::Integer(0));
    assert_eq!(next(&mut reader), push(&["message", "news", "hello"]));
    assert_eq!(next(&mut reader), push(&["message", "sport", "one"]));
    assert_eq!(next(&mut other), push(&["pmessage", "n*", "news", "hello"]));
    assert_eq!(
        writer.ask(&["PUBSUB", "NUMSUB", "news", "none"]),
        Reply::Array(vec![
            Reply::bulk("news"),
            Reply::Integer(1),
            Reply::bulk("none"),
            Reply::Integer(0)
        ])
    );
    assert_eq!(
        writer.ask(&["PUBSUB", "CHANNELS", "s*"]),
        Reply::Array(push(&["sport"]))
    );
    assert_eq!(writer.ask(&["PUBSUB", "NUMPAT"]), Reply::Integer(1));
    // In version 2 a reader may do little else.
    assert!(
        reader
            .ask(&["GET", "k"])
            .error()
            .starts_with("ERR Can't execute 'get': only (P|S)SUBSCRIBE")
    );
    assert_eq!(reader.ask(&["PING"]), Reply::Array(push(&["pong", ""])));
    assert_eq!(
        reader.ask(&["UNSUBSCRIBE", "news"]),
        Reply::Array(told("unsubscribe", "news", 1))
    );
    assert_eq!(writer.ask(&["PUBLISH", "news", "again"]), Reply::Integer(1));
    assert_eq!(
        reader.ask(&["UNSUBSCRIBE"]),
        Reply::Array(told("unsubscribe", "sport", 0))
    );
    assert_eq!(reader.ask(&["PING"]), Reply::status("PONG"));
    // Who is gone reads nothing.
    drop(other);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while writer.ask(&["PUBSUB", "NUMPAT"]) != Reply::Integer(0) {
        assert!(
            std::time::Instant::now() < deadline,
            "a connection that is gone is still a reader"
        );
    }
    assert_eq!(writer.ask(&["PUBLISH", "news", "x"]), Reply::Integer(0));
}

#[test]
fn in_version_3_messages_are_pushes_and_commands_go_on() {
    let door = Door::start(&[]);
    let (mut reader, mut writer) = (door.client(), door.client());
    reader.ask(&["HELLO", "3"]);
    assert_eq!(
        reader.ask(&["SUBSCRIBE", "a"]),
        Reply::Push(told("subscribe", "a", 1))
    );
    assert_eq!(reader.ask(&["SET", "k", "v"]), Reply::status("OK"));
    // Its own message comes before the reply.
    assert_eq!(
        reader.ask(&["PUBLISH", "a", "own"]),
        Reply::Push(push(&["message", "a", "own"]))
    );
    assert_eq!(reader.reply(), Some(Reply::Integer(1)));
    // Within a transaction a message waits for its EXEC.
    writer.ask(&["MULTI"]);
    writer.ask(&["PUBLISH", "a", "first"]);
    writer.ask(&["PUBLISH", "a", "second"]);
    assert_eq!(
        writer.ask(&["EXEC"]),
        Reply::Array(vec![Reply::Integer(1), Reply::Integer(1)])
    );
    assert_eq!(next(&mut reader), push(&["message", "a", "first"]));
    assert_eq!(next(&mut reader), push(&["message", "a", "second"]));
    assert_eq!(reader.ask(&["RESET"]), Reply::status("RESET"));
    assert_eq!(writer.ask(&["PUBLISH", "a", "x"]), Reply::Integer(0));
}
