//! Tests the parser with requests that are divided at any byte, announce too much, or are malformed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by a panic"
)]

use pgcache_resp::{Batch, Broken, Command, Failure, Limits, Parser, Protocol, Writer};

/// Parses bytes that arrive in pieces of these lengths, in rotation. Returns the requests, and the error at the end.
fn parsed(bytes: &[u8], pieces: &[usize], limits: Limits) -> (Vec<Vec<Vec<u8>>>, Option<Broken>) {
    let mut parser = Parser::new(limits);
    let (mut buffer, mut requests, mut at) = (Vec::new(), Vec::new(), 0);
    for length in pieces.iter().cycle() {
        let end = (at + length).min(bytes.len());
        buffer.extend_from_slice(&bytes[at..end]);
        let mut used = 0;
        loop {
            match parser.next(&buffer[used..]) {
                Ok(Some(request)) => {
                    requests.push(request.args.iter().map(<[u8]>::to_vec).collect());
                    used += request.used;
                }
                Ok(None) => break,
                Err(broken) => return (requests, Some(broken)),
            }
        }
        buffer.drain(..used);
        at = end;
        if at == bytes.len() {
            break;
        }
    }
    (requests, None)
}

/// Parses bytes in batches, as a connection does, and passes the rest of each batch to the parser. Returns the
/// requests, the error at the end, and the number of requests that the batches contained.
fn batched(bytes: &[u8], limits: Limits) -> (Vec<Vec<Vec<u8>>>, Option<Broken>, usize) {
    let (mut parser, mut batch) = (Parser::new(limits), Batch::default());
    let (mut requests, mut used, mut cut) = (Vec::new(), 0, 0);
    loop {
        let from = used;
        batch.cut(&bytes[from..], &limits);
        let keys: Vec<_> = batch.keys(&bytes[from..]).map(<[u8]>::to_vec).collect();
        let mut met = Vec::new();
        while let Some(request) = batch.next(&bytes[from..]) {
            met.extend(request.args.get(1).map(<[u8]>::to_vec));
            requests.push(request.args.iter().map(<[u8]>::to_vec).collect());
            used += request.used;
            cut += 1;
            assert_eq!(batch.at(), used - from);
        }
        assert_eq!(keys, met, "the keys are those of the requests");
        match parser.next(&bytes[used..]) {
            Ok(Some(request)) => {
                requests.push(request.args.iter().map(<[u8]>::to_vec).collect());
                used += request.used;
            }
            Ok(None) => return (requests, None, cut),
            Err(broken) => return (requests, Some(broken), cut),
        }
        assert!(parser.is_between());
    }
}

#[test]
fn a_batch_cuts_requests_as_the_parser_does() {
    let value = "v".repeat(1_000);
    let pipeline = |count: usize| {
        let each = |at| {
            format!(
                "*3\r\n$3\r\nSET\r\n$5\r\nk{at:04}\r\n$1000\r\n{value}\r\n*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n"
            )
        };
        (0..count).map(each).collect::<String>().into_bytes()
    };
    let long = format!(
        "*2\r\n$4\r\nECHO\r\n$10000\r\n{}\r\n*1\r\n$4\r\nPING\r\n",
        "x".repeat(10_000)
    );
    let many = format!(
        "*65\r\n$3\r\nDEL\r\n{}*1\r\n$4\r\nPING\r\n",
        "$1\r\nk\r\n".repeat(64)
    );
    let cases: [(&[u8], usize); 11] = [
        (&pipeline(1), 3),
        (&pipeline(40), 117), // after each full batch of 32, the parser parses one request
        (b"PING\r\n*1\r\n$4\r\nPING\r\n", 1),
        (b"*0\r\n*1\r\n$4\r\nPING\r\n", 1),
        (b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPIN", 1),
        (b"*1\r\n$04\r\nPING\r\n", 0),
        (b"*1\r\n$4\rxPINGxx*1\r\n$4\r\nPING\r\n", 2),
        (b"*1\r\n$-1\r\n", 0),
        (b"*2\r\n$4\r\nECHO\r\n$9999\r\nabc\r\n", 0),
        (long.as_bytes(), 1),
        (many.as_bytes(), 1),
    ];
    for (number, (bytes, cuts)) in cases.iter().enumerate() {
        assert_eq!(batched(bytes, Limits::default()).2, *cuts, "case {number}");
        for limits in [
            Limits::default(),
            Limits::new(1_010),
            Limits::unauthenticated(4_096),
        ] {
            let (requests, end, _) = batched(bytes, limits);
            assert_eq!(
                (requests, end),
                parsed(bytes, &[bytes.len()], limits),
                "case {number}"
            );
        }
    }
}

#[test]
fn requests_that_are_appended_are_those_of_the_parser() {
    let long = format!("*2\r\n$4\r\nECHO\r\n$10000\r\n{}\r\n", "x".repeat(10_000));
    let many = format!("*66\r\n$3\r\nDEL\r\n{}", "$1\r\nk\r\n".repeat(65));
    let ping = "*1\r\n$4\r\nPING\r\n";
    let cases = [
        ping.repeat(100),
        format!("{ping}{long}{ping}{many}{ping}{many}{long}"),
        format!("*0\r\n{ping}\r\n{ping}"),
        format!("{ping}*1\r\n$04\r\nPING\r\n*-1\r\n{ping}"),
        format!("{ping}{long}*1\r\n$4\r\nPIN"),
    ];
    let mut batch = Batch::default();
    let (mut buffer, mut all) = (Vec::new(), Vec::new());
    for (number, bytes) in cases.iter().enumerate() {
        let from = buffer.len();
        buffer.extend_from_slice(bytes.as_bytes());
        let cuts = batch.append(&buffer, from);
        let met: Vec<Vec<Vec<u8>>> = cuts
            .map(|number| batch.args(number, &buffer).expect("it was cut"))
            .map(|args| args.iter().map(<[u8]>::to_vec).collect())
            .collect();
        let (mut requests, _) = parsed(bytes.as_bytes(), &[bytes.len()], Limits::new(usize::MAX));
        requests.retain(|request| !request.is_empty());
        assert_eq!(met, requests, "case {number}");
        all.extend(met);
    }
    let kept = batch
        .all(&buffer)
        .map(|args| args.len())
        .collect::<Vec<_>>();
    assert_eq!(kept.len(), all.len(), "earlier requests stay");
}

#[test]
fn a_request_that_is_written_as_a_line_ends_the_batch() {
    let bytes = b"*1\r\n$4\r\nPING\r\nPING\r\n*1\r\n$4\r\nPING\r\n";
    assert_eq!(Batch::default().append(bytes, 0), 0..1);
}

#[test]
fn a_line_is_encoded_as_programs_send_it() {
    let mut parser = Parser::new(Limits::default());
    let line = parser.next(b"SET k \"a b\"\r\n").expect("it is a request");
    let mut encoded = b"x".to_vec();
    line.expect("it is complete").args.encode(&mut encoded);
    assert_eq!(encoded, b"x*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\na b\r\n");
}

fn broken(bytes: &[u8], limits: Limits) -> Option<Broken> {
    let whole = parsed(bytes, &[bytes.len().max(1)], limits);
    let piece = if cfg!(miri) { 9_999 } else { 1 };
    assert_eq!(
        whole.1,
        parsed(bytes, &[piece], limits).1,
        "as a whole, and in pieces"
    );
    whole.1
}

#[test]
fn a_request_is_the_same_wherever_it_is_cut() {
    let bytes = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\na\r\n\0b\r\n\r\n  get \"a\\x20b\" \r\n*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\nPING\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n";
    let (whole, end) = parsed(bytes, &[bytes.len()], Limits::default());
    assert_eq!(end, None);
    let expected: [&[&[u8]]; 8] = [
        &[b"SET", b"k", b"a\r\n\0b"],
        &[],
        &[b"get", b"a b"],
        &[],
        &[],
        &[b"PING"],
        &[b"PING"],
        &[b"GET", b""],
    ];
    assert_eq!(whole, expected);
    for cut in (1..bytes.len()).step_by(if cfg!(miri) { 7 } else { 1 }) {
        assert_eq!(
            parsed(bytes, &[cut, bytes.len()], Limits::default()).0,
            whole,
            "cut at {cut}"
        );
        assert_eq!(
            parsed(bytes, &[cut], Limits::default()).0,
            whole,
            "pieces of {cut}"
        );
    }
}

#[test]
fn malformed_requests_end_the_connection_with_the_errors_of_redis() {
    let long = [&b"*"[..], &[b'1'; 70_000]].concat();
    let line = vec![b'a'; 70_000];
    let cases: [(&[u8], Broken, &str); 12] = [
        (b"*a\r\n", Broken::InvalidCount, "invalid multibulk length"),
        (
            b"*2147483648\r\n",
            Broken::InvalidCount,
            "invalid multibulk length",
        ),
        (b"*1 \r\n", Broken::InvalidCount, "invalid multibulk length"),
        (
            b"*1\r\n$-1\r\n",
            Broken::InvalidLength,
            "invalid bulk length",
        ),
        (
            b"*1\r\n$x\r\n",
            Broken::InvalidLength,
            "invalid bulk length",
        ),
        (
            b"*1\r\n$16777216\r\n",
            Broken::InvalidLength,
            "invalid bulk length",
        ),
        (
            b"*1\r\n:1\r\n",
            Broken::NoLength(b':'),
            "expected '$', got ':'",
        ),
        (
            b"*1\r\n\r\n",
            Broken::NoLength(b'\r'),
            "expected '$', got ' '",
        ),
        (
            b"get \"a\r\n",
            Broken::UnbalancedQuotes,
            "unbalanced quotes in request",
        ),
        (&long, Broken::TooBigCount, "too big mbulk count string"),
        (&line, Broken::TooBigLine, "too big inline request"),
        (
            b"*1\r\n$9999999999999999999999\r\n",
            Broken::InvalidLength,
            "invalid bulk length",
        ),
    ];
    for (bytes, expected, words) in cases {
        assert_eq!(broken(bytes, Limits::default()), Some(expected));
        let mut replies = Writer::new(Protocol::Resp2, 1 << 10);
        expected.write(&mut replies);
        assert_eq!(
            replies.as_bytes(),
            format!("-ERR Protocol error: {words}\r\n").as_bytes()
        );
    }
}

#[test]
fn clients_that_have_not_authenticated_may_send_little() {
    let limits = Limits::unauthenticated(4096);
    assert_eq!(broken(b"*10\r\n", limits), None);
    assert_eq!(
        broken(b"*11\r\n", limits),
        Some(Broken::UnauthenticatedCount)
    );
    assert_eq!(broken(b"*1\r\n$4000\r\n", limits), None);
    assert_eq!(
        broken(b"*1\r\n$4096\r\n", limits),
        Some(Broken::UnauthenticatedLength)
    );
}

#[test]
fn a_request_may_be_as_long_as_its_limit_and_no_byte_longer() {
    // The request has 4 bytes of count and 4 bytes of length before the argument.
    let request = |length: usize| {
        [
            format!("*1\r\n${length}\r\n").as_bytes(),
            &vec![b'x'; length],
            b"\r\n",
        ]
        .concat()
    };
    let limit = request(100).len() - 2;
    assert_eq!(broken(&request(100), Limits::new(limit)), None);
    assert_eq!(
        broken(&request(101), Limits::new(limit)),
        Some(Broken::InvalidLength)
    );
    // The limit also applies to many short arguments.
    let many = [&b"*2147483647\r\n"[..], &b"$1\r\na\r\n".repeat(1000)].concat();
    assert_eq!(
        broken(&many, Limits::new(5_000)),
        Some(Broken::InvalidLength)
    );
}

#[test]
fn announced_bytes_take_no_memory_until_they_arrive() {
    let mut parser = Parser::new(Limits::new(1 << 30));
    let announced = b"*2147483647\r\n$1000000000\r\nab";
    assert!(parser.next(announced).unwrap().is_none());
    assert!(
        parser.held() < 100,
        "{} bytes for what has not come",
        parser.held()
    );
    assert_eq!(parser.needed(), 13 + 13 + 1_000_000_000 + 2);
}

#[test]
fn a_long_request_leaves_nothing_behind() {
    let mut parser = Parser::new(Limits::default());
    let long = [&b"*1000\r\n"[..], &b"$1\r\na\r\n".repeat(1000)].concat();
    assert_eq!(parser.next(&long).unwrap().unwrap().args.len(), 1000);
    let typed = [&b"echo "[..], &[b'a'; 10_000], b"\n"].concat();
    assert_eq!(parser.next(&typed).unwrap().unwrap().args.len(), 2);
    assert!(parser.next(b"").unwrap().is_none());
    assert!(parser.held() < 1000, "{} bytes at rest", parser.held());
}

#[test]
fn an_error_shows_as_much_as_in_redis_and_its_code_nothing() {
    let error = |request: &[u8]| {
        let mut parser = Parser::new(Limits::default());
        let request = parser.next(request).unwrap().unwrap();
        let failure = Command::read(request.args).unwrap_err();
        let mut replies = Writer::new(Protocol::Resp2, 1 << 10);
        failure.write(&mut replies);
        assert_eq!(failure.code(), "ERR");
        String::from_utf8(replies.as_bytes().to_vec()).unwrap()
    };
    assert_eq!(
        error(b"get\r\n"),
        "-ERR wrong number of arguments for 'get' command\r\n"
    );
    assert_eq!(
        error(b"foo a 'b c'\r\n"),
        "-ERR unknown command 'foo', with args beginning with: 'a' 'b c' \r\n"
    );
    assert_eq!(
        error(b"lpush a b\r\n"),
        "-ERR unknown command 'lpush', with args beginning with: 'a' 'b' ; this server stores only string values, \
         no lists, hashes, sets or streams: see docs/door.md\r\n"
    );
    assert_eq!(
        error(b"client x\r\n"),
        "-ERR unknown subcommand 'x'. Try CLIENT HELP.\r\n"
    );
    assert_eq!(
        error(b"client id x\r\n"),
        "-ERR wrong number of arguments for 'client|id' command\r\n"
    );
    assert_eq!(
        error(b"\"a\\r\\n+OK\"\r\n"),
        "-ERR unknown command 'a  +OK', with args beginning with: \r\n"
    );
}

#[test]
fn a_deadline_that_overflows_is_an_error_and_no_moment() {
    let mut parser = Parser::new(Limits::default());
    let request = parser
        .next(b"set k v ex 9223372036854775807\r\n")
        .unwrap()
        .unwrap();
    let Ok(Command::Set(set)) = Command::read(request.args) else {
        panic!("no SET")
    };
    let pgcache_resp::Expiry::At(lifetime) = set.expiry else {
        panic!("no lifetime")
    };
    assert!(matches!(
        lifetime.deadline(0, "set"),
        Err(Failure::ExpireTime("set"))
    ));
}

#[test]
fn a_request_is_handed_out_again_until_it_is_done() {
    let bytes = b"*3\r\n$6\r\nEXISTS\r\n$1\r\na\r\n$1\r\nb\r\n*1\r\n$4\r\nPING\r\nget a\r\n";
    let mut parser = Parser::new(Limits::default());
    let mut at = 0;
    for expected in [
        &[&b"EXISTS"[..], b"a", b"b"][..],
        &[b"PING"],
        &[b"get", b"a"],
    ] {
        let rest = &bytes[at..];
        for _ in 0..3 {
            let request = parser.next(rest).unwrap().unwrap();
            assert_eq!(request.args.iter().collect::<Vec<_>>(), expected);
            parser.again();
        }
        // The buffer was moved and has more bytes now, but still begins with the request.
        let moved = [rest, b"*1\r\n"].concat();
        let request = parser.next(&moved).unwrap().unwrap();
        assert_eq!(request.args.iter().collect::<Vec<_>>(), expected);
        at += request.used;
    }
    assert_eq!(at, bytes.len());
    // An incomplete request is not returned again.
    let mut parser = Parser::new(Limits::default());
    assert!(parser.next(b"*1\r\n$4\r\nPI").unwrap().is_none());
    parser.again();
    let whole = b"*1\r\n$4\r\nPING\r\n";
    assert_eq!(parser.next(whole).unwrap().unwrap().used, whole.len());
}

#[test]
fn a_request_that_is_handed_out_again_is_not_read_again() {
    let keys = if cfg!(miri) { 200 } else { 200_000 };
    let mut request = format!("*{}\r\n$6\r\nEXISTS\r\n", keys + 1).into_bytes();
    request.extend_from_slice(&b"$1\r\na\r\n".repeat(keys));
    let mut parser = Parser::new(Limits::default());
    assert!(parser.next(&request).unwrap().is_some());
    parser.again();
    // If the parser parsed the bytes again, it would find other arguments.
    let other = vec![b'x'; request.len()];
    let again = parser.next(&other).unwrap().unwrap();
    assert_eq!((again.args.len(), again.used), (keys + 1, request.len()));
    assert_eq!(again.args.get(1), Some(&b"x"[..]));
}
