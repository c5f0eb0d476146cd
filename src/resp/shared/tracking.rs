//! Connects key tracking with the turns of clients: notes the keys that clients read, and notifies the clients of
//! changes. `resp::tracking` holds the table of read keys, the messages, and the rules for the order of steps.

use pgcache_resp::{Kind, Parsed, Writer};

use crate::cache::memory::raw::{self, Entries};
use crate::cache::model::key::MAX_BYTES;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::session::clock::Timestamp;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::{self, clock};
use crate::pg::shmem::ring::{self, Change};
use crate::pg::shmem::tier::{self, Tier};
use crate::resp::ipc::permission_cache::Permission;
use crate::resp::session::connection::Connection;
use crate::resp::session::progress::Progress;
use crate::resp::session::tracked::{Mode, Tracked};
use crate::resp::session::{Session, Waits};
use crate::resp::shared::Core;
use crate::resp::shared::client_permissions;
use crate::resp::tracking::tracking_clients::{Everybody, Invalidation, followed_slot, standing};

/// The number of keys that are noted between two replies. It is bounded because no other client is served while keys
/// are noted. A client that reads more keys is notified at once that everything has changed.
const NOTED: usize = 4096;

/// Runs `note` for each key that a command only reads. GETEX without an option counts as a read here. Redis counts it
/// as a write, so a Redis client that caches the reply never receives a later change.
fn each_key<'a>(command: &Parsed<'a>, note: impl FnMut(&'a [u8])) {
    if command.kind() == Kind::Read {
        command.entry.keys(command.args).for_each(note);
    }
}

/// Notes, before a command on entries runs, the keys that it reads, if the client tracks them.
#[inline]
pub fn note_reads(
    core: &mut Core,
    session: &mut Session,
    permission: &Permission,
    command: &Parsed<'_>,
) {
    if let Some(tracked) = &mut session.tracking {
        note_reads_of(core, session.id, tracked, permission, command);
    }
}

#[cold]
fn note_reads_of(
    core: &mut Core,
    client: u64,
    tracked: &mut Tracked,
    permission: &Permission,
    command: &Parsed<'_>,
) {
    let target = &permission.target;
    if !target.privileges.has(Privileges::READ) {
        return;
    }
    let is_table = target.is_table();
    let slot = tier::tier().and_then(|tier| target.cache.slot(tier));
    let sees_every_change = !is_table
        || permission.may_be_hot && slot.is_some_and(sees_every_change)
        || fault::on(Fault::UnfollowedNotOwed);
    if !tracked.takes_reads() {
        // A client with prefixes caches the values that it reads. So a change between the read and the reply is sent
        // before the reply, and again after it.
        if tracked.mode == Mode::Broadcast && !fault::on(Fault::BroadcastReadNotNoted) {
            each_key(command, |_| {
                tracked.reading = true;
                tracked.fresh = true;
                // The read of a cache that the client does not follow yet, or leaves before it is settled.
                let is_followed = tracked.slot == slot || fault::on(Fault::UnfollowedReadNotOwed);
                tracked.owed |= !sees_every_change || !is_followed;
            });
        }
        return;
    }
    raw::take_soonest();
    let entries = Entries::of(&target.cache, clock::now());
    each_key(command, |key| {
        tracked.reading = true;
        tracked.owed |= !sees_every_change;
        let (Some(_), Some(slot)) = (&entries, slot) else {
            tracked.owed = true; // a cache without a slot reports no changes
            return;
        };
        if key.is_empty() || key.len() > MAX_BYTES {
            return; // such a key can have no entry
        }
        if fault::on(Fault::ReadNotNoted) {
            return;
        }
        tracked.fresh = true;
        tracked.noted += 1;
        if tracked.noted > NOTED {
            tracked.owed = true;
            return;
        }
        core.tracking.follow(slot);
        let deadline = || {
            // The deadline of a row is noted only after the read (`has_read`), because the row's copy may be evicted or
            // filled before the read.
            let entries = entries.as_ref().filter(|_| !is_table)?;
            let seen = entries.look(&entries.key(key))?;
            raw::has_deadline(&seen).then_some(seen.deadline)
        };
        let most = core.tracking.most;
        let evicted = core.tracking.table.add(slot, key, client, most, deadline);
        core.tracking.evicted.extend(evicted);
        if is_table {
            tracked.rows.push((slot, key.into()));
        }
    });
}

/// Returns whether every change of a table is reported. While some changes may go unreported, each client is notified
/// right after its read. A standby reports no changes at all.
fn sees_every_change(slot: u32) -> bool {
    let sees = |tier: &Tier| tier.slot(slot).sees_every_change() && !session::in_recovery();
    tier::tier().is_some_and(sees)
}

/// Prepares for another piece of a command.
pub fn reads_on(session: &Session) {
    if session.tracking.is_some() {
        raw::take_soonest();
    }
}

/// Handles the end of a piece of a command: notes the earliest deadline of the rows that it has read.
#[inline]
pub fn has_read(core: &mut Core, session: &Session) {
    if let Some(tracked) = &session.tracking
        && !tracked.rows.is_empty()
        && let Some(deadline) = raw::take_soonest()
    {
        note_deadline(core, tracked, deadline);
    }
}

/// Notes the earliest deadline of the rows that a command has read from a table, for all keys of the command.
#[cold]
fn note_deadline(core: &mut Core, tracked: &Tracked, deadline: Timestamp) {
    for (slot, key) in &tracked.rows {
        core.tracking.table.set_deadline(*slot, key, deadline);
    }
}

/// Handles an executor's answer to a client's commands. `soonest` is the earliest deadline of the entries that they
/// read.
pub fn reply_came(core: &mut Core, session: &mut Session, soonest: Option<Timestamp>) {
    if let Some(tracked) = &mut session.tracking {
        if let Some(deadline) = soonest {
            note_deadline(core, tracked, deadline);
        }
        tracked.end_read();
    }
}

/// Notifies clients of all changes up to now. Must run within the transaction of a round, which has accepted the
/// invalidation messages that void permissions.
pub fn drain(core: &mut Core, serving: Option<&mut Connection>) {
    let tracking = &mut core.tracking;
    let Some(mut reader) = tracking.reader.take() else {
        return;
    };
    let mut everybody = Everybody {
        clients: &mut core.clients,
        memory: &mut core.memory,
        serving,
        most_output: core.limits.output,
        wakes: Vec::new(),
    };
    let end = reader.end();
    while let Some(change) = reader.next(end) {
        match change {
            Change::Key { slot, key, author } => {
                tracking.invalidate_key(&mut everybody, slot, key, author)
            }
            Change::Cache { slot } => tracking.invalidate_cache(&mut everybody, slot),
            Change::Lost if fault::on(Fault::LostInvalidatesNothing) => {}
            Change::Lost => tracking.invalidate_all(&mut everybody),
        }
    }
    if let Some(deadline) = tracking.table.next_deadline()
        && deadline <= clock::now()
    {
        tracking.invalidate_expired(&mut everybody);
    }
    for node in std::mem::take(&mut tracking.evicted) {
        for id in node.clients {
            everybody.notify(id, Invalidation::Key(&node.key), 0);
        }
    }
    tracking.reader = Some(reader);
    for place in everybody.wakes {
        core.enqueue(place);
    }
}

/// Settles a client: notifies it that everything has changed, if this message is pending or if a client with prefixes
/// has moved to another cache. Returns whether the client was notified, or an error if it must wait for its permission.
pub fn settle(core: &mut Core, client: &mut Connection) -> Result<bool, Progress> {
    let session = &mut client.session;
    let mut slot = None;
    if session.tracking.as_deref().is_some_and(is_broadcast) {
        let mut error = Writer::new(session.protocol, 1 << 10);
        let may_read = match client_permissions::permission(core, session, &mut error) {
            Ok(permission) if permission.target.privileges.has(Privileges::READ) => {
                // Changes of rows that a policy may hide are never reported by key. After a read of such rows,
                // everything is reported as changed.
                slot = followed_slot(&permission);
                true
            }
            Ok(_) | Err(Progress::Done) => false,
            Err(step) => return Err(step),
        };
        slot.into_iter().for_each(|slot| core.tracking.follow(slot));
        // A client without the privilege to read is not notified now. It is notified when it has the privilege again.
        if let Some(tracked) = &mut session.tracking
            && !may_read
        {
            tracked.owed |= tracked.slot.take().is_some();
            return Ok(false);
        }
    }
    let Some(tracked) = session.tracking.as_deref_mut() else {
        return Ok(false);
    };
    let is_same = std::mem::replace(&mut tracked.slot, slot) == slot;
    if !std::mem::take(&mut tracked.owed) && is_same {
        return Ok(false);
    }
    let (id, most_output) = (client.session.id, core.limits.output);
    let mut everybody = Everybody {
        clients: &mut core.clients,
        memory: &mut core.memory,
        serving: Some(client),
        most_output,
        wakes: Vec::new(),
    };
    everybody.notify(id, Invalidation::Everything, 0);
    for place in everybody.wakes {
        core.enqueue(place);
    }
    Ok(true)
}

/// Settles a client with prefixes before its commands run, because it must be notified of changes before the replies.
/// Returns an error if its permission is unknown; the commands then wait for it.
pub fn settle_before(core: &mut Core, client: &mut Connection) -> Result<(), Progress> {
    let is_notified = client.session.tracking.as_deref().is_some_and(is_broadcast);
    if !is_notified || client.is_amid_reply() {
        return Ok(());
    }
    drain(core, Some(client));
    let is_owed = |tracked: &Tracked| tracked.owed && !tracked.reading;
    match client.session.tracking.as_deref().is_some_and(is_owed) {
        true => settle(core, client).map(|_| ()),
        false => Ok(()),
    }
}

fn is_broadcast(tracked: &Tracked) -> bool {
    tracked.mode == Mode::Broadcast
}

/// Returns whether a client must be settled, because a message that everything has changed is pending, or because the
/// client has prefixes and its permission is no longer valid or is for another cache than the cache that it follows. A
/// waiting client with prefixes is settled when it resumes.
pub fn is_unsettled(session: &Session) -> bool {
    session.tracking.as_deref().is_some_and(|tracked| {
        match is_broadcast(tracked) {
            // A client that is reading is settled after the reply.
            _ if tracked.reading => false,
            // A waiting client cannot be settled, because it may have to wait for its permission.
            true => {
                let has_moved = |permission| followed_slot(permission) != tracked.slot;
                session.waits == Waits::Nothing
                    && (tracked.owed
                        || standing(session).is_none_or(has_moved)
                            && !fault::on(Fault::MovedNotSettled))
            }
            false => tracked.owed,
        }
    })
}

/// Returns the messages of `pushed` that must be sent again after the replies, because the replies may show values from
/// before the change.
pub fn again(session: &mut Session, pushed: &[u8], has_replies: bool) -> Vec<u8> {
    let tracked = session.tracking.as_deref_mut();
    tracked.map_or_else(Vec::new, |tracked| tracked.again(pushed, has_replies))
}

/// Handles the end of a command that was run.
pub fn command_done(session: &mut Session, command: &Parsed<'_>) {
    if let Some(tracked) = &mut session.tracking {
        tracked.end_read();
        command_handed(session, command);
    }
}

/// Ends the effect of CLIENT CACHING after a command was run or offloaded, unless it was a CLIENT command or began a
/// transaction.
pub fn command_handed(session: &mut Session, command: &Parsed<'_>) {
    if let Some(tracked) = &mut session.tracking
        && tracked.caching
        && !session.state.in_transaction()
        && !command.entry.is_of("client")
    {
        tracked.caching = false;
    }
}

/// Makes this client the author of the changes that the network process makes, until `set_no_author`.
pub fn set_author(core: &Core, client: u64) {
    if core.tracking.is_on() {
        ring::set_author(client);
    }
}

/// Ends the effect of `set_author`.
pub fn set_no_author(core: &Core) {
    if core.tracking.is_on() {
        ring::set_author(0);
    }
}
