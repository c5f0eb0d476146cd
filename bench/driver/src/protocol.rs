//! The trait of a server's wire protocol. It lets the same loop and the same key distribution measure all servers.
//!
//! The messages of Redis, memcached and Postgres are encoded by hand, because the epoll loop needs messages without a
//! connection, and the client crates manage their own connections. HTTP and etcd use hyper and tonic.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::Result;

/// A connected unix or TCP socket. One type suffices, because a connected TCP socket accepts the same calls as a unix
/// socket.
pub type Stream = UnixStream;

/// Connects to a path, or to host:port. Sets TCP_NODELAY, because a request is one small write, and the client writes
/// nothing more until the reply arrives.
pub fn connect(address: &str) -> io::Result<Stream> {
    if address.contains('/') {
        return UnixStream::connect(address);
    }
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(OwnedFd::from(stream).into())
}

#[derive(Clone, Copy)]
pub enum Command {
    Baseline,
    Get(u64),
    Set(u64),
}

#[derive(PartialEq, Debug)]
pub enum Reply {
    Hit,
    Miss,
    Done,
    /// The server had no room for the value, which is allowed for a cache.
    Refused,
}

pub trait Protocol: Sync {
    /// Sends the messages that must precede the first request. Blocks until the server has answered them.
    fn greet(&self, _stream: &mut Stream) -> Result<()> {
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>, command: &Command, value: &[u8]);

    /// Returns the exact reply to a set, for a preload that sends many sets at once. Returns None if the entries are
    /// loaded through SQL instead.
    fn stored(&self) -> Option<&'static [u8]> {
        None
    }

    /// Returns the reply to `command`, or None while `input` does not contain all of it. A hit must return `value`; any
    /// other value is an error, so that a server with wrong answers cannot seem fast.
    fn decode(&self, input: &[u8], command: &Command, value: &[u8]) -> Result<Option<Reply>>;
}
