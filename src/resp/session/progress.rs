//! How far a command, or a client's turn, has come.

use crate::resp::ipc::pending_batch::PendingBatch;

/// How far a command has come; of a turn: what is to become of its client.
pub enum Progress {
    /// A command is answered. A client rests until something comes of its socket.
    Done,
    /// A piece of a long command is done, and its request stays. A client has more to do.
    More,
    /// It continues when an executor has answered; the request stays.
    Wait,
    /// The queue to the executors has no room; the request stays, and the client tries again.
    Starve,
    /// An executor runs the command. More of the client's pipeline may join it.
    Offload(Box<PendingBatch>),
    /// The connection ends after this reply.
    Close,
}
