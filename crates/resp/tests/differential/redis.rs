//! Starts a Redis for a test, in its own folder and with a unix socket, and stops it at the end of the test.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::older_redis::{Version, version};

pub struct Redis {
    pub version: Version,
    server: Child,
    folder: PathBuf,
    stream: UnixStream,
    unread: Vec<u8>,
}

/// A reply as a tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Null,
    Line(Vec<u8>),
    Bytes(Vec<u8>),
    List(Vec<Value>),
}

impl Redis {
    pub fn start(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("pgcache-resp-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("redis.sock");
        let server = Command::new("redis-server")
            .args([
                "--port",
                "0",
                "--save",
                "",
                "--appendonly",
                "no",
                "--unixsocket",
            ])
            .arg(&socket)
            .arg("--dir")
            .arg(&folder)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is needed");
        let stream = (0..500).find_map(|_| {
            std::thread::sleep(Duration::from_millis(20));
            UnixStream::connect(&socket).ok()
        });
        let mut redis = Self {
            version: (0, 0),
            server,
            folder,
            stream: stream.expect("Redis did not start"),
            unread: Vec::new(),
        };
        redis.version = redis.ask_version().expect("INFO names a version");
        redis
    }

    fn ask_version(&mut self) -> Option<Version> {
        self.send(b"INFO server\r\n");
        let reply = String::from_utf8(self.reply()).ok()?;
        let named = |line: &str| version(line.trim_end().strip_prefix("redis_version:")?);
        reply.lines().find_map(named)
    }

    /// Returns the path of the socket, for other clients.
    #[allow(dead_code, reason = "not all tests that are made of this have others")]
    pub fn socket(&self) -> PathBuf {
        self.folder.join("redis.sock")
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Reads the next reply, and returns its bytes.
    pub fn reply(&mut self) -> Vec<u8> {
        loop {
            if let Some((_, length)) = value(&self.unread) {
                return self.unread.drain(..length).collect();
            }
            let mut piece = [0; 1 << 16];
            let count = self.stream.read(&mut piece).unwrap();
            assert!(count > 0, "Redis has closed the connection");
            self.unread.extend_from_slice(&piece[..count]);
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the first reply of `bytes` and its length; None if it is incomplete.
pub fn value(bytes: &[u8]) -> Option<(Value, usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, mut at) = (&bytes[..end], end + 2);
    let length = || {
        std::str::from_utf8(&line[1..])
            .unwrap()
            .parse::<i64>()
            .unwrap()
    };
    let list = match line[0] {
        b'$' | b'=' if length() >= 0 => {
            let end = at + length() as usize;
            return Some((Value::Bytes(bytes.get(at..end)?.to_vec()), end + 2))
                .filter(|_| bytes.len() >= end + 2);
        }
        b'$' | b'_' => return Some((Value::Null, at)),
        b'*' if length() < 0 => return Some((Value::Null, at)),
        b'*' | b'~' | b'>' => length(),
        b'%' => 2 * length(),
        _ => return Some((Value::Line(line.to_vec()), at)),
    };
    let mut values = Vec::new();
    for _ in 0..list {
        let (one, length) = value(&bytes[at..])?;
        values.push(one);
        at += length;
    }
    Some((Value::List(values), at))
}
