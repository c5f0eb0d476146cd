//! The preload of Redis and memcached: every existing key of the law, many sets on the wire at once.

use std::io::{BufReader, Read, Result as IoResult, Write};
use std::ops::Range;

use crate::law::Law;
use crate::protocol::{Command, Protocol};
use crate::stream::Stream;

const BATCH: u64 = 1000;

pub fn load(protocol: &dyn Protocol, address: &str, law: Law, value: &[u8]) -> Result<(), String> {
    let stored = protocol.stored().ok_or("this protocol has no preload")?;
    let mut stream = Stream::connect(address).map_err(|e| e.to_string())?;
    let mut answers = BufReader::new(stream.try_clone().map_err(|e| e.to_string())?);
    let mut first = 0;
    while first < law.entries {
        let end = (first + BATCH).min(law.entries);
        send(protocol, &mut stream, law, first..end, value).map_err(|e| e.to_string())?;
        check(&mut answers, (end - first) as usize, stored)?;
        first = end;
    }
    Ok(())
}

fn send(
    protocol: &dyn Protocol,
    stream: &mut Stream,
    law: Law,
    range: Range<u64>,
    value: &[u8],
) -> IoResult<()> {
    let mut out = Vec::new();
    for i in range {
        protocol.encode(&mut out, &Command::Set(law.existing(i)), value);
    }
    stream.write_all(&out)
}

fn check(answers: &mut impl Read, count: usize, stored: &[u8]) -> Result<(), String> {
    let mut got = vec![0; count * stored.len()];
    answers.read_exact(&mut got).map_err(|e| e.to_string())?;
    match got.chunks(stored.len()).all(|reply| reply == stored) {
        true => Ok(()),
        false => Err("a set of the preload failed".into()),
    }
}
