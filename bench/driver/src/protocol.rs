//! The interface of a server's wire protocol, so that one loop and one distribution of keys serve all servers.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::Result;

/// Once connected, a TCP socket takes the same calls as a unix one: one type serves whatever the server listens on.
pub type Stream = UnixStream;

/// To a path, or to host:port. Without delay: a request is one small write, and nothing follows it.
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
    /// The server had no room for a value; a cache may say so.
    Refused,
}

pub trait Protocol: Sync {
    /// Blocking; what has to be said before the first request.
    fn greet(&self, _stream: &mut Stream) -> Result<()> {
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>, command: &Command, value: &[u8]);

    /// The whole answer to a set that was stored, for a preload that sends many at once. SQL loads its entries itself.
    fn stored(&self) -> Option<&'static [u8]> {
        None
    }

    /// The answer to `command`, or None while `input` does not hold all of it. A hit must carry `value`:
    /// a server that answers something else is an error, not a fast server.
    fn decode(&self, input: &[u8], command: &Command, value: &[u8]) -> Result<Option<Reply>>;
}
