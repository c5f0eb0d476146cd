//! The interface of a server's wire protocol, so that one loop and one distribution of keys serve all servers.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::Result;

/// A unix stream also for TCP: once connected, a TCP socket takes the same calls, so one type serves both.
pub type Stream = UnixStream;

/// Connects to a path, or to host:port. Without delay: a request is one small write, and nothing follows it.
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
    /// The server had no room for a value, which a cache may report.
    Refused,
}

pub trait Protocol: Sync {
    /// Sends the messages that come before the first request. Blocks.
    fn greet(&self, _stream: &mut Stream) -> Result<()> {
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>, command: &Command, value: &[u8]);

    /// Returns the whole answer to a stored set, for a preload that sends many at once. SQL loads its entries itself.
    fn stored(&self) -> Option<&'static [u8]> {
        None
    }

    /// Returns the answer to `command`, or None while `input` does not hold all of it. A hit must carry `value`: a
    /// server with another answer is an error, not a fast server.
    fn decode(&self, input: &[u8], command: &Command, value: &[u8]) -> Result<Option<Reply>>;
}
