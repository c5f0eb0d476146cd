//! Tests channels of the Redis protocol: SUBSCRIBE, PUBLISH, PUBSUB.

use pgcache_tests::resp::{Client, Door, Reply};

fn push(parts: &[&str]) -> Vec<Reply> {
    parts.iter().map(Reply::bulk).collect()
}

fn confirmation(word: &str, name: &str, count: i64) -> Vec<Reply> {
    [push(&[word, name]), vec![Reply::Integer(count)]].concat()
}

fn next(client: &mut Client) -> Vec<Reply> {
    match client.reply() {
        Some(Reply::Array(parts) | Reply::Push(parts)) => parts,
        other => panic!("expected a message, got {other:?}"),
    }
}

#[test]
fn messages_reach_subscribers() {
    let door = Door::start(&[]);
    let (mut reader, mut other, mut writer) = (door.client(), door.tcp(), door.client());
    assert_eq!(
        reader.ask(&["SUBSCRIBE", "news", "sport"]),
        Reply::Array(confirmation("subscribe", "news", 1))
    );
    assert_eq!(next(&mut reader), confirmation("subscribe", "sport", 2));
    assert_eq!(
        other.ask(&["PSUBSCRIBE", "n*"]),
        Reply::Array(confirmation("psubscribe", "n*", 1))
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
    // In protocol version 2, a client that has subscribed may run few other commands.
    assert!(
        reader
            .ask(&["GET", "k"])
            .error()
            .starts_with("ERR Can't execute 'get': only (P|S)SUBSCRIBE")
    );
    assert_eq!(reader.ask(&["PING"]), Reply::Array(push(&["pong", ""])));
    assert_eq!(
        reader.ask(&["UNSUBSCRIBE", "news"]),
        Reply::Array(confirmation("unsubscribe", "news", 1))
    );
    assert_eq!(writer.ask(&["PUBLISH", "news", "again"]), Reply::Integer(1));
    assert_eq!(
        reader.ask(&["UNSUBSCRIBE"]),
        Reply::Array(confirmation("unsubscribe", "sport", 0))
    );
    assert_eq!(reader.ask(&["PING"]), Reply::status("PONG"));
    // A client that has disconnected receives nothing.
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
fn in_version_3_messages_are_pushes_and_commands_continue() {
    let door = Door::start(&[]);
    let (mut reader, mut writer) = (door.client(), door.client());
    reader.ask(&["HELLO", "3"]);
    assert_eq!(
        reader.ask(&["SUBSCRIBE", "a"]),
        Reply::Push(confirmation("subscribe", "a", 1))
    );
    assert_eq!(reader.ask(&["SET", "k", "v"]), Reply::status("OK"));
    // A client's message to itself comes after the reply, as with Redis since 7.2.
    assert_eq!(reader.ask(&["PUBLISH", "a", "own"]), Reply::Integer(1));
    assert_eq!(
        reader.reply(),
        Some(Reply::Push(push(&["message", "a", "own"])))
    );
    // Within a transaction, the message is sent at EXEC.
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

/// A command of a client, and the bytes that Redis 8.0 sends in reply.
type Sent = (&'static [&'static str], &'static str);

const SUBSCRIBED: &str = "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";

/// Subscriptions in a transaction take effect for the later commands in it, and their confirmations are elements of the
/// reply. A client's message to itself follows the whole reply. CLIENT REPLY takes effect from command to command, and
/// does not suppress messages.
#[test]
fn subscriptions_and_client_reply_inside_transactions_are_those_of_redis() {
    let door = Door::start(&[]);
    let mut wrong = Vec::new();
    let check = |wrong: &mut Vec<String>, steps: &[Sent]| {
        let mut client = door.client();
        for (words, expected) in steps {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            assert!(client.send(&Client::request(&words)));
            let sent = client.bytes_that_come(expected.len(), std::time::Duration::from_millis(30));
            if sent != *expected {
                wrong.push(format!(
                    "{steps:?}\n  {:?}: {sent:?}",
                    String::from_utf8_lossy(words[0])
                ));
                break;
            }
        }
    };
    let multi: Sent = (&["MULTI"], "+OK\r\n");
    let subscribe: Sent = (&["SUBSCRIBE", "c"], "+QUEUED\r\n");
    let get: Sent = (&["GET", "k"], "+QUEUED\r\n");
    let reply_on: Sent = (&["CLIENT", "REPLY", "ON"], "+OK\r\n");
    let ping: Sent = (&["PING"], "+PONG\r\n");
    let nothing: Sent = (&["PING"], "");
    let off: Sent = (&["CLIENT", "REPLY", "OFF"], "");
    let exec = |expected: &'static str| -> Sent { (&["EXEC"], expected) };
    let queued = |words: &'static [&'static str]| -> Sent { (words, "+QUEUED\r\n") };
    let element = "*2\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n$-1\r\n";
    check(
        &mut wrong,
        &[
            multi,
            subscribe,
            get,
            exec(element),
            (&["PING"], "*2\r\n$4\r\npong\r\n$0\r\n\r\n"),
        ],
    );
    let pong = "*2\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n*2\r\n$4\r\npong\r\n$0\r\n\r\n";
    check(
        &mut wrong,
        &[multi, subscribe, queued(&["PING"]), exec(pong)],
    );
    let published = "*3\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n:1\r\n$-1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n";
    check(
        &mut wrong,
        &[
            multi,
            subscribe,
            queued(&["PUBLISH", "c", "m"]),
            get,
            exec(published),
        ],
    );
    let both = "*3\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n$-1\r\n";
    check(
        &mut wrong,
        &[
            multi,
            subscribe,
            queued(&["UNSUBSCRIBE", "c"]),
            get,
            exec(both),
            ping,
        ],
    );
    // A client of protocol version 2 that has subscribed is refused.
    let only = "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context\r\n";
    let refused: [&'static str; 2] = [
        Box::leak(
            format!("-EXECABORT Transaction discarded because of: Can't execute 'exec': {only}")
                .into(),
        ),
        Box::leak(format!("-ERR Can't execute 'client|reply': {only}").into()),
    ];
    check(
        &mut wrong,
        &[
            (&["SUBSCRIBE", "c"], SUBSCRIBED),
            (&["EXEC"], refused[0]),
            (&["CLIENT", "REPLY", "OFF"], refused[1]),
        ],
    );
    // CLIENT REPLY works inside a transaction.
    let reply = |word: &'static str| -> Sent {
        match word {
            "OFF" => queued(&["CLIENT", "REPLY", "OFF"]),
            "SKIP" => queued(&["CLIENT", "REPLY", "SKIP"]),
            _ => queued(&["CLIENT", "REPLY", "ON"]),
        }
    };
    check(
        &mut wrong,
        &[
            multi,
            reply("OFF"),
            get,
            exec("*2\r\n"),
            nothing,
            reply_on,
            ping,
        ],
    );
    check(
        &mut wrong,
        &[
            multi,
            get,
            reply("OFF"),
            get,
            exec("*3\r\n$-1\r\n"),
            nothing,
            reply_on,
            ping,
        ],
    );
    check(
        &mut wrong,
        &[
            multi,
            reply("OFF"),
            get,
            reply("ON"),
            get,
            exec("*4\r\n+OK\r\n$-1\r\n"),
            ping,
        ],
    );
    check(
        &mut wrong,
        &[
            multi,
            reply("SKIP"),
            get,
            get,
            exec("*3\r\n$-1\r\n$-1\r\n"),
            nothing,
            ping,
        ],
    );
    check(
        &mut wrong,
        &[
            multi,
            get,
            reply("SKIP"),
            exec("*2\r\n$-1\r\n"),
            nothing,
            ping,
        ],
    );
    // CLIENT REPLY suppresses no message.
    let unsubscribed: Sent = (
        &["UNSUBSCRIBE"],
        "*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n",
    );
    check(
        &mut wrong,
        &[
            off,
            (&["SUBSCRIBE", "c"], SUBSCRIBED),
            nothing,
            unsubscribed,
            nothing,
            reply_on,
        ],
    );
    check(
        &mut wrong,
        &[
            (&["CLIENT", "REPLY", "SKIP"], ""),
            (&["SUBSCRIBE", "c"], SUBSCRIBED),
        ],
    );
    check(
        &mut wrong,
        &[
            off,
            (&["MULTI"], ""),
            (&["SUBSCRIBE", "c"], ""),
            exec(SUBSCRIBED),
            unsubscribed,
            reply_on,
            ping,
        ],
    );
    let message = ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n";
    check(
        &mut wrong,
        &[
            off,
            (&["HELLO", "3"], ""),
            (
                &["SUBSCRIBE", "c"],
                ">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n",
            ),
            (&["PUBLISH", "c", "m"], message),
            nothing,
        ],
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
