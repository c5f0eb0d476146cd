//! SQL functions for the Redis protocol: list its clients, read its statistics, disconnect a client, and publish a
//! message to a channel.

use pgcache_resp::known_name;
use pgrx::pg_sys::Oid;
use pgrx::prelude::*;

use super::Answer;
use crate::cache::commit::publish as messages;
use crate::error::Error;
use crate::pg::encoding::printable;
use crate::pg::resp::client_registry::{ClientRegistry, Counter, Shown};
use crate::pg::resp::{login, work_queue};
use crate::pg::session;
use crate::pg::value::datum::Text;
use crate::pg::value::rows::{Row, Rows, Stream};
use crate::pg::value::typed::Typed;

/// Returns the clients that the current user may see: id, pid, role, name, library, address, connected_at,
/// last_request_at, database, protocol, last_command, commands, in_transaction, channels, unread_bytes, unsent_bytes.
#[pg_extern]
fn resp_clients_now() -> Stream<16> {
    Stream::new(|sink| {
        let user = session::user();
        let sees_all = login::has_role(user, login::MONITOR);
        let clients = ClientRegistry::of_server().map(|registry| registry.clients());
        for (pid, shown) in clients.into_iter().flatten() {
            let is_own = shown.role != 0 && login::has_role(user, Oid::from_u32(shown.role));
            if sees_all || is_own {
                sink.row(|| Some(client_row(pid, &shown)));
            }
        }
        Ok(())
    })
}

fn client_row(pid: u32, shown: &Shown) -> Row<16> {
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        Typed::of(Some(printable(text)).filter(|text| !text.is_empty()))
    };
    let small = |number: u32| Typed::of(Some(i32::try_from(number).unwrap_or(i32::MAX)));
    let library = match shown.library_version.is_empty() {
        true => shown.library.clone(),
        false => [&shown.library[..], b" ", &shown.library_version].concat(),
    };
    let last_command = (!shown.last_command.is_empty()).then(|| known_name(&shown.last_command));
    [
        Typed::number(shown.id as i64),
        small(pid),
        match shown.role {
            0 => Typed::NULL,
            role => Typed::oid(Oid::from_u32(role)),
        },
        text(&shown.name),
        text(&library),
        text(&shown.address),
        Typed::moment(Some(shown.connected)),
        Typed::moment(Some(shown.last_received)),
        small(shown.database),
        small(u32::from(shown.protocol)),
        Typed::of(last_command),
        Typed::number(shown.commands as i64),
        Typed::of(Some(shown.in_transaction)),
        small(shown.channels.saturating_add(shown.patterns)),
        Typed::number(i64::from(shown.input) + i64::from(shown.collected)),
        Typed::number(shown.output.into()),
    ]
}

/// Returns the counters of the Redis protocol: clients, connections, rejected, cut_off, killed, commands, batches,
/// largest_batch, hits, misses, bytes_in, bytes_out, failed_authentications, failed_handshakes, questions, queue_depth,
/// queue_full, messages, ring_overflows, tracked_keys, since. Returns no row if no process listens.
#[pg_extern]
fn resp_figures() -> Rows<21> {
    Rows(
        ClientRegistry::of_server()
            .map(figures_row)
            .into_iter()
            .collect(),
    )
}

fn figures_row(registry: ClientRegistry) -> Row<21> {
    let counters = registry.counters();
    let number = |number: u64| Typed::number(number as i64);
    let counted = |counter: Counter| number(counters.get(counter as usize).copied().unwrap_or(0));
    let now = registry.now();
    [
        number(now.clients),
        counted(Counter::Connections),
        counted(Counter::Rejected),
        counted(Counter::CutOff),
        counted(Counter::Killed),
        counted(Counter::Commands),
        counted(Counter::Batches),
        number(now.largest_batch),
        counted(Counter::Hits),
        counted(Counter::Misses),
        counted(Counter::Input),
        counted(Counter::Output),
        counted(Counter::FailedAuthentications),
        counted(Counter::FailedHandshakes),
        counted(Counter::Questions),
        number(work_queue::depth() as u64),
        counted(Counter::QueueFull),
        counted(Counter::Messages),
        counted(Counter::Overflows),
        number(now.tracked_keys),
        Typed::moment(Some(registry.since()).filter(|&since| since != 0)),
    ]
}

/// Returns the memory of Redis clients: client_memory, evicted_clients. Returns no row if no process listens.
#[pg_extern]
fn resp_memory() -> Rows<2> {
    let row = |registry: ClientRegistry| {
        let evicted = registry.counters()[Counter::Evicted as usize];
        [registry.clients_memory() as i64, evicted as i64].map(Typed::number)
    };
    Rows(ClientRegistry::of_server().map(row).into_iter().collect())
}

/// Disconnects a client. Returns false if no client has this id.
#[pg_extern]
fn resp_kill(id: Option<i64>) -> Answer<bool> {
    let id = id.ok_or(Error::NullArgument("id"))?;
    let (Some(registry), Ok(id)) = (ClientRegistry::of_server(), u64::try_from(id)) else {
        return Ok(false);
    };
    let Some((_, shown)) = registry.clients().find(|(_, shown)| shown.id == id) else {
        return Ok(false);
    };
    if !may_end(session::user(), shown.role) {
        return Err(Error::ClientOfAnother.into());
    }
    Ok(registry.end(id))
}

/// Returns whether a user may disconnect a client, by the rule for Postgres sessions: only a superuser may disconnect a
/// superuser's client.
fn may_end(user: Oid, role: u32) -> bool {
    let is_superuser = |role: Oid| login::role(role).is_some_and(|facts| facts.is_superuser);
    if is_superuser(user) {
        return true;
    }
    let signals = login::has_role(user, login::SIGNAL_BACKEND);
    match role {
        0 => signals,
        role => {
            let role = Oid::from_u32(role);
            !is_superuser(role) && (signals || login::has_role(user, role))
        }
    }
}

/// Sends a message to the subscribers of a channel when the transaction commits.
#[pg_extern]
fn publish(channel: Option<Text>, message: Option<Text>) -> Answer<()> {
    let channel = channel.ok_or(Error::NullArgument("channel"))?;
    let message = message.ok_or(Error::NullArgument("message"))?;
    Ok(messages::publish(channel.bytes(), message.bytes())?)
}
