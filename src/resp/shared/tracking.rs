//! What a network process does in its turns for clients that track: notes what they read, and tells them.

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
use crate::resp::shared::authentication;
use crate::resp::tracking::state::{Everybody, Told, standing};

/// Keys that are noted between two replies. Nobody else is served meanwhile; of what comes beyond the client
/// is told at once that it has changed.
const NOTED: usize = 4096;

/// Runs `note` for each key that a command only reads, as Redis' table of commands has it. Redis counts GETEX without an
/// option as a write, so that a client that keeps the reply would never receive the change.
fn each_key<'a>(command: &Parsed<'a>, note: impl FnMut(&'a [u8])) {
    if command.kind() == Kind::Read {
        command.entry.keys(command.args).for_each(note);
    }
}

/// Before a command on entries is run: what it reads is noted, if the client wants to hear of it.
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
    let hears_all = !is_table
        || permission.may_be_hot && slot.is_some_and(hears_all)
        || fault::on(Fault::UnheardNotOwed);
    if !tracked.takes_reads() {
        // A client with prefixes keeps what it reads: a change between the read and the reply is sent
        // before the reply, and again after it.
        if tracked.mode == Mode::Broadcast && !fault::on(Fault::BroadcastReadNotNoted) {
            each_key(command, |_| {
                tracked.reading = true;
                tracked.fresh = true;
                tracked.owed |= !hears_all;
            });
        }
        return;
    }
    raw::take_soonest();
    let entries = Entries::of(&target.cache, clock::now());
    each_key(command, |key| {
        tracked.reading = true;
        tracked.owed |= !hears_all;
        let (Some(_), Some(slot)) = (&entries, slot) else {
            tracked.owed = true; // of what has no place nobody is told
            return;
        };
        if key.is_empty() || key.len() > MAX_BYTES {
            return; // there is never an entry
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
            // A copy of a row may come and go until it is read: `has_read`.
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

/// Whether each change of a table cache is heard of: while it is not, reads are told at once. A standby
/// hears of none.
fn hears_all(slot: u32) -> bool {
    let hears = |tier: &Tier| tier.slot(slot).hears_all() && !session::in_recovery();
    tier::tier().is_some_and(hears)
}

/// Another piece of a command is to be run.
pub fn reads_on(session: &Session) {
    if session.tracking.is_some() {
        raw::take_soonest();
    }
}

/// A piece of a command was run.
#[inline]
pub fn has_read(core: &mut Core, session: &Session) {
    if let Some(tracked) = &session.tracking
        && !tracked.rows.is_empty()
        && let Some(deadline) = raw::take_soonest()
    {
        note_deadline(core, tracked, deadline);
    }
}

/// What was read of a table ends with the entry of these that ends first.
#[cold]
fn note_deadline(core: &mut Core, tracked: &Tracked, deadline: Timestamp) {
    for (slot, key) in &tracked.rows {
        core.tracking.table.set_deadline(*slot, key, deadline);
    }
}

/// an executor has answered what was handed over: the first entry that it has read ends then.
pub fn reply_came(core: &mut Core, session: &mut Session, soonest: Option<Timestamp>) {
    if let Some(tracked) = &mut session.tracking {
        if let Some(deadline) = soonest {
            note_deadline(core, tracked, deadline);
        }
        tracked.end_read();
    }
}

/// Tells clients what has changed up to now. Inside of a turn's transaction, which has taken in what
/// makes decisions void.
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
                tracking.tell_key(&mut everybody, slot, key, author)
            }
            Change::Cache { slot } => tracking.tell_cache(&mut everybody, slot),
            Change::Lost if fault::on(Fault::LostTellsNothing) => {}
            Change::Lost => tracking.tell_all(&mut everybody),
        }
    }
    if let Some(deadline) = tracking.table.next_deadline()
        && deadline <= clock::now()
    {
        tracking.tell_expired(&mut everybody);
    }
    for node in std::mem::take(&mut tracking.evicted) {
        for id in node.clients {
            everybody.tell(id, Told::Key(&node.key), 0);
        }
    }
    tracking.reader = Some(reader);
    for place in everybody.wakes {
        core.enqueue(place);
    }
}

/// Notifies a client that everything has changed where that is owed to it, or where a client with prefixes has
/// come to another cache. Returns whether it did; Err: the client waits for what its role may read.
pub fn settle(core: &mut Core, client: &mut Connection) -> Result<bool, Progress> {
    let session = &mut client.session;
    let mut slot = None;
    if session.tracking.as_deref().is_some_and(is_broadcast) {
        let mut error = Writer::new(session.protocol, 1 << 10);
        let may_read = match authentication::permission(core, session, &mut error) {
            Ok(permission) if permission.target.privileges.has(Privileges::READ) => {
                // Rows that a policy may hide are never reported by key: reads of them are owed.
                if permission.tells_keys() {
                    slot = tier::tier().and_then(|tier| permission.target.cache.slot(tier));
                }
                true
            }
            Ok(_) | Err(Progress::Done) => false,
            Err(step) => return Err(step),
        };
        slot.into_iter().for_each(|slot| core.tracking.follow(slot));
        // A client that lost the right is notified when it has it again.
        if let Some(tracked) = &mut session.tracking
            && !may_read
        {
            tracked.owed = false;
            tracked.slot = None;
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
    everybody.tell(id, Told::Everything, 0);
    for place in everybody.wakes {
        core.enqueue(place);
    }
    Ok(true)
}

/// Before commands of a client that is told of prefixes: what it is to be told of before their replies, but
/// nobody knows whether it may read it, is found out. Err: they wait for that.
pub fn settle_before(core: &mut Core, client: &mut Connection) -> Result<(), Progress> {
    let is_told = client.session.tracking.as_deref().is_some_and(is_broadcast);
    if !is_told || client.is_amid_reply() {
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

/// Whether a client is to be settled: it is owed something, or what was decided of one that is told of
/// prefixes is void. Of these one that waits is looked at when it goes on.
pub fn is_unsettled(session: &Session) -> bool {
    session.tracking.as_deref().is_some_and(|tracked| {
        match is_broadcast(tracked) {
            // After the reply.
            _ if tracked.reading => false,
            // It is asked what it may read, which has to wait.
            true => {
                session.waits == Waits::Nothing && (tracked.owed || standing(session).is_none())
            }
            false => tracked.owed,
        }
    })
}

/// What a client is sent now, and is to be sent again after its replies: it may be of what was read
/// before it changed.
pub fn again(session: &mut Session, pushed: &[u8], has_replies: bool) -> Vec<u8> {
    let tracked = session.tracking.as_deref_mut();
    tracked.map_or_else(Vec::new, |tracked| tracked.again(pushed, has_replies))
}

/// A command was run.
pub fn command_done(session: &mut Session, command: &Parsed<'_>) {
    if let Some(tracked) = &mut session.tracking {
        tracked.end_read();
        command_handed(session, command);
    }
}

/// A command was run, or handed over: CLIENT CACHING was for it, unless it was one of CLIENT or began a
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

/// What the network process changes from here on is this client's doing.
pub fn set_author(core: &Core, client: u64) {
    if core.tracking.is_on() {
        ring::set_author(client);
    }
}

/// It is nobody's again.
pub fn set_no_author(core: &Core) {
    if core.tracking.is_on() {
        ring::set_author(0);
    }
}
