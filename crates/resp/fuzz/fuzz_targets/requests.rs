//! Feeds arbitrary bytes to the parser, as a client might send them. The first byte chooses the length of the pieces.
//!
//! Whatever the bytes are, no code may panic, the division into pieces must not change the result, no reply may contain
//! a line break from the client, and pattern matching must end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pgcache_resp::{Batch, Broken, Command, Limits, Parser, Protocol, Writer, matches};

type Requests = (Vec<Vec<Vec<u8>>>, Option<Broken>);

fn parsed(bytes: &[u8], piece: usize) -> Requests {
    let mut parser = Parser::new(Limits::new(4096));
    let (mut buffer, mut requests) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        buffer.extend_from_slice(piece);
        let mut used = 0;
        loop {
            match parser.next(&buffer[used..]) {
                Ok(None) => break,
                Err(broken) => return (requests, Some(broken)),
                Ok(Some(request)) => {
                    if !request.args.is_empty() {
                        answered(request.args);
                    }
                    requests.push(request.args.iter().map(<[u8]>::to_vec).collect());
                    assert!(request.used > 0);
                    used += request.used;
                }
            }
        }
        buffer.drain(..used);
    }
    (requests, None)
}

/// Parses the bytes in batches, and passes the rest of each batch to the parser.
fn batched(bytes: &[u8]) -> Requests {
    let limits = Limits::new(4096);
    let (mut parser, mut batch) = (Parser::new(limits), Batch::default());
    let (mut requests, mut used) = (Vec::new(), 0);
    loop {
        let from = used;
        batch.cut(&bytes[from..], &limits);
        while let Some(request) = batch.next(&bytes[from..]) {
            requests.push(request.args.iter().map(<[u8]>::to_vec).collect());
            used += request.used;
        }
        match parser.next(&bytes[used..]) {
            Ok(None) => return (requests, None),
            Err(broken) => return (requests, Some(broken)),
            Ok(Some(request)) => {
                requests.push(request.args.iter().map(<[u8]>::to_vec).collect());
                used += request.used;
            }
        }
    }
}

fn answered(args: pgcache_resp::Args<'_>) {
    let mut replies = Writer::new(Protocol::Resp3, 1 << 16);
    match Command::read(args) {
        Err(failure) => {
            failure.write(&mut replies);
            let reply = replies.as_bytes();
            assert!(reply.starts_with(b"-") && reply.ends_with(b"\r\n"));
            assert!(!reply[..reply.len() - 2].iter().any(|byte| matches!(byte, b'\r' | b'\n')));
        }
        Ok(Command::Keys { pattern }) => {
            let _ = matches(pattern, b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
        }
        Ok(Command::Set(set)) => {
            if let pgcache_resp::Expiry::At(lifetime) = set.expiry {
                let _ = lifetime.deadline(i64::MAX / 2, "set");
            }
        }
        Ok(Command::Expire { lifetime, .. }) => {
            let _ = lifetime.any_deadline(i64::MAX / 2, "expire");
        }
        Ok(_) => {
            if let Ok(entry) = Command::check(args) {
                assert!(entry.key_places(args).all(|place| args.get(place).is_some()));
            }
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let whole = parsed(rest, rest.len().max(1));
    let cut = parsed(rest, usize::from(*first).max(1));
    assert_eq!(whole, cut);
    assert_eq!(whole, batched(rest));
});
