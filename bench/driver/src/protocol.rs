//! What a server's wire protocol must offer, so that one loop and one key law serve both servers.

use std::io::Result as IoResult;

use crate::stream::Stream;

#[derive(Clone, Copy)]
pub enum Command {
    Floor,
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
    fn greet(&self, stream: &mut Stream) -> IoResult<()>;

    fn encode(&self, out: &mut Vec<u8>, command: &Command, value: &[u8]);

    /// The whole answer to a set that was stored, for a preload that sends many at once.
    fn stored(&self) -> Option<&'static [u8]>;

    /// The answer to `command`, or None while `input` does not hold all of it. A hit must carry `value`:
    /// a server that answers something else is an error, not a fast server.
    fn decode(&self, input: &[u8], command: &Command, value: &[u8]) -> Result<Option<Reply>, String>;
}
