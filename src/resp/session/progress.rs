//! The progress of a command or of a client's turn: whether it is finished and, if not, what it needs to continue.

use crate::resp::ipc::pending_batch::PendingBatch;

/// The progress of a command, or the next step of a client at the end of its turn.
pub enum Progress {
    /// The command is answered. The client is idle until its socket has an event.
    Done,
    /// A piece of a long command is done, and its request stays in the input. The client needs another turn.
    More,
    /// The command continues when an executor has answered. The request stays in the input.
    Wait,
    /// The queue to the executors has no room. The request stays in the input, and the client tries again.
    Starve,
    /// An executor runs the command. More of the client's pipeline may join it.
    Offload(Box<PendingBatch>),
    /// The connection ends after this reply.
    Close,
}
