//! Publishes clients to other processes: writes each client's state to its place in the client registry, which the SQL
//! view and CLIENT LIST read. Also formats a line of CLIENT LIST.

use std::time::Instant;

use pgcache_resp::{Protocol, known_name};

use crate::pg::resp::client_registry::Shown;
use crate::pg::session::clock::Timestamp;
use crate::resp::session::connection::Connection;
use crate::resp::session::tracked::Mode;
use crate::resp::session::{Session, printable};
use crate::resp::shared::Core;

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Core {
    /// Converts a time of this process's monotonic clock to a timestamp.
    pub fn moment(&self, instant: Instant) -> Timestamp {
        let micros = instant.saturating_duration_since(self.began).as_micros();
        self.began_at
            .saturating_add(i64::try_from(micros).unwrap_or(i64::MAX))
    }

    /// Publishes the current state of a client. Runs after each of the client's turns, so it must allocate no memory
    /// and read no clock.
    pub fn show(&self, client: &mut Connection) {
        let unsent = client.unsent();
        let held = client.held().saturating_sub(unsent);
        self.show_session(&mut client.session, held, unsent);
    }

    /// Publishes the state of a client in the middle of its turn, when only the session is available.
    pub fn show_session(&self, session: &mut Session, input: usize, output: usize) {
        let Some(place) = &session.place else {
            return;
        };
        let (channels, patterns, watched) = session.state.counts();
        let tracked = session.tracking.as_deref();
        let shown = Shown {
            id: session.id,
            role: session.login.role.map_or(0, |role| role.to_u32()),
            is_superuser: session.login.is_superuser,
            database: session.database,
            protocol: match session.protocol {
                Protocol::Resp2 => 2,
                Protocol::Resp3 => 3,
            },
            in_transaction: session.state.in_transaction(),
            connected: self.moment(session.activity.connected),
            last_received: self.moment(session.activity.last_received),
            commands: session.activity.commands,
            net_in: session.activity.net_in,
            net_out: session.activity.net_out,
            input: count(input),
            output: count(output),
            channels: count(channels),
            patterns: count(patterns),
            watched: count(watched),
            collected: count(session.state.held()),
            no_evict: session.no_evict,
            tracks: tracked.is_some(),
            broadcasts: tracked.is_some_and(|tracked| tracked.mode == Mode::Broadcast),
            redirect_broken: tracked.is_some_and(|tracked| tracked.broken),
            redirect: tracked.and_then(|tracked| tracked.redirect).unwrap_or(0),
            last_command: session.last_name(),
            user: &session.login.user,
            name: &session.labels.name,
            library: &session.labels.library,
            library_version: &session.labels.library_version,
            address: session.origin.address.as_bytes(),
            local_address: session.origin.local_address.as_bytes(),
        };
        self.registry.show(place, &shown, session.changed);
        session.changed = false;
    }
}

/// Formats a client as a line of CLIENT LIST.
pub fn line(shown: &Shown, now: Timestamp) -> String {
    let since = |moment: Timestamp| now.saturating_sub(moment).max(0) / 1_000_000;
    let multi = if shown.in_transaction { 0 } else { -1 };
    let mut flags = String::new();
    let mut flag = |is: bool, letter| {
        if is {
            flags.push(letter);
        }
    };
    flag(shown.channels + shown.patterns > 0, 'P');
    flag(shown.in_transaction, 'x');
    flag(shown.tracks, 't');
    flag(shown.redirect_broken, 'R');
    flag(shown.broadcasts, 'B');
    flag(shown.no_evict, 'e');
    if flags.is_empty() {
        flags.push('N');
    }
    // The same number as CLIENT GETREDIR returns.
    let redirect = match shown.tracks {
        true => i64::try_from(shown.redirect).unwrap_or(i64::MAX),
        false => -1,
    };
    let (input, output, collected) = (shown.input, shown.output, shown.collected);
    let buffers = [input, output, collected].map(|bytes| bytes as usize);
    format!(
        "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags={flags} db={} sub={} psub={} ssub=0 multi={multi} \
         watch={} qbuf={input} qbuf-free=0 argv-mem=0 multi-mem={collected} rbs=0 rbp=0 obl={output} oll=0 omem={output} \
         tot-mem={} events=r cmd={} user={} redir={redirect} resp={} lib-name={} lib-ver={} io-thread=0 \
         tot-net-in={} tot-net-out={} tot-cmds={}",
        shown.id,
        printable(&shown.address),
        printable(&shown.local_address),
        printable(&shown.name),
        since(shown.connected),
        since(shown.last_received),
        shown.database,
        shown.channels,
        shown.patterns,
        shown.watched,
        size_of::<Connection>() + buffers.iter().sum::<usize>(),
        known_name(&shown.last_command),
        printable(&shown.user),
        shown.protocol,
        printable(&shown.library),
        printable(&shown.library_version),
        shown.net_in,
        shown.net_out,
        shown.commands,
    )
}
