//! CLIENT TRACKING: clients hear when what they have read changes, whoever changes it.
//!
//! Guards three orders:
//!
//! - A read is noted before it is done (`turns::note_reads`), so a change after it finds who is to be told.
//! - What has changed before a client's commands were done is told before their replies: the ring of
//!   changes is drained after the commands, before anything is sent (`turn`). So no reply shows
//!   anything that is newer than a change that was not told.
//! - A change that comes while a read is under way is told again after its reply, or the client would
//!   keep the old value for good.
//!
//! What cannot be told key by key (the ring was too short, a cache was cleared) is told as
//! "everything". A key is told once for each time that it was read.

pub mod state;
mod table;
