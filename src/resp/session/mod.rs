//! What is known of a client.

pub mod clients;
pub mod connection;
pub mod memory_limit;
pub mod pauses;
pub mod progress;
pub mod read_batch;
pub mod tracked;

use std::rc::Rc;
use std::time::Instant;

use pgcache_resp::Protocol;
use pgrx::pg_sys::Oid;

use super::auth::{AuthFailure, Authenticated, Peer};
use super::commands;
use crate::pg::resp::client_registry::Claimed;
use crate::pg::resp::work_queue::Answered;
use crate::resp::ipc::permission_cache::Permission;
use crate::resp::net::certificate::Certificate;
use crate::resp::session::tracked::Tracked;

/// What a client waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    Nothing,
    /// Who it is without having said so.
    Implicit,
    /// The answer to an AUTH, or to a HELLO with one.
    Authentication,
    /// What it may do.
    FoundPermission,
    /// The end of CLIENT PAUSE.
    Pause,
    /// What an executor does with a table.
    Table,
}

/// Who a client is that has not said so.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Implicit {
    Unknown,
    Refused,
}

/// Whether replies are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Replies {
    On,
    Off,
    /// Not that of the next command.
    SkipNext,
    /// Not that of this one.
    Skip,
}

/// Without what would make two fields, or two lines, of a name.
pub fn printable(bytes: &[u8]) -> String {
    let shown = |byte: &u8| match byte {
        b'!'..=b'~' => char::from(*byte),
        _ => '?',
    };
    bytes.iter().map(shown).collect()
}

/// How far a FLUSHALL has come with tables.
#[derive(Debug, Default)]
pub enum Flushing {
    #[default]
    No,
    /// an executor empties the last of these.
    Asked(Vec<u32>),
    /// These are empty.
    Done(Vec<u32>),
    /// Its reply: none of those that it was asked for was emptied.
    Failed(Vec<u8>),
}

/// Bytes of the longest name that CLIENT LIST shows: `cluster|countkeysinslot`.
const LONGEST_NAME: usize = 24;

/// A client.
pub struct Session {
    /// Never used again in this life of the server.
    pub id: u64,
    pub peer: Peer,
    /// What it has shown when TLS began.
    pub certificate: Option<Box<Certificate>>,
    /// Where it connects from, and to, as CLIENT LIST has it.
    pub address: Box<str>,
    pub local_address: Box<str>,
    /// Where others see it; None: it is not shown yet.
    pub place: Option<Claimed>,
    /// What seldom changes has changed since it was shown.
    pub changed: bool,
    /// None: it has not said who it is, or may not be that.
    pub role: Option<Oid>,
    pub is_superuser: bool,
    pub user: Box<[u8]>,
    pub implicit: Implicit,
    pub waits: Waits,
    /// When it began to wait.
    pub waits_since: Instant,
    /// How often it was asked who it is: an answer counts only to the last question.
    pub asked: u16,
    /// What came of its AUTH.
    pub authentication: Option<Result<Result<Authenticated, AuthFailure>, ()>>,
    /// It came by a password, which may cease to count.
    pub by_password: bool,
    pub protocol: Protocol,
    pub database: u32,
    pub permission: Option<Rc<Permission>>,
    /// A long command that has been begun, and what was decided for it.
    pub continued: Option<(commands::Continuation, Rc<Permission>)>,
    /// What is left of a FLUSHALL that has been begun, beside that.
    pub to_clear: Vec<(commands::Continuation, Rc<Permission>)>,
    /// It runs the commands of an EXEC.
    pub in_exec: bool,
    /// What an executor has made of the tables among them.
    pub flushing: Flushing,
    /// The cache was found to be gone, and was asked for anew.
    pub gone: bool,
    pub name: Box<[u8]>,
    pub library: Box<[u8]>,
    pub library_version: Box<[u8]>,
    pub replies: Replies,
    /// The reply is sent whatever CLIENT REPLY says: that of a subscription, and of an EXEC, which obeys by itself.
    pub is_loud: bool,
    pub no_evict: bool,
    pub no_touch: bool,
    pub connected: Instant,
    /// Since when it has time to authenticate.
    pub unknown_since: Instant,
    pub last_heard: Instant,
    /// The beginning of the last command's name, as it was sent, or the name of a command in a command.
    pub last_name: [u8; LONGEST_NAME],
    pub commands: u64,
    /// Bytes that it has sent and received.
    pub net_in: u64,
    pub net_out: u64,
    /// Where its commands are that an executor has.
    pub handed: Option<u32>,
    /// The reply to them has come.
    pub answered: Option<Answered>,
    /// They are a WATCH of these keys.
    pub watching: Option<Box<commands::WatchedRows>>,
    /// It wants none.
    pub mute: bool,
    /// A command that is not done began then, or goes on since.
    pub under_way: Option<Instant>,
    /// The last command may have taken long.
    pub heavy: bool,
    /// MULTI, WATCH, subscriptions.
    pub state: commands::State,
    /// CLIENT TRACKING.
    pub tracking: Option<Box<Tracked>>,
}

impl Session {
    pub fn new(id: u64, peer: Peer, address: String, local_address: String) -> Session {
        let now = Instant::now();
        Session {
            id,
            peer,
            certificate: None,
            address: address.into(),
            local_address: local_address.into(),
            place: None,
            changed: true,
            role: None,
            is_superuser: false,
            user: Box::default(),
            implicit: Implicit::Unknown,
            waits: Waits::Nothing,
            waits_since: now,
            asked: 0,
            authentication: None,
            by_password: false,
            protocol: Protocol::Resp2,
            database: 0,
            permission: None,
            continued: None,
            to_clear: Vec::new(),
            in_exec: false,
            flushing: Flushing::No,
            gone: false,
            name: Box::default(),
            library: Box::default(),
            library_version: Box::default(),
            replies: Replies::On,
            is_loud: false,
            no_evict: false,
            no_touch: false,
            connected: now,
            unknown_since: now,
            last_heard: now,
            last_name: [0; LONGEST_NAME],
            commands: 0,
            net_in: 0,
            net_out: 0,
            handed: None,
            answered: None,
            watching: None,
            mute: false,
            under_way: None,
            heavy: false,
            state: commands::State::default(),
            tracking: None,
        }
    }

    /// Bytes of memory beside itself.
    pub fn held(&self) -> usize {
        let texts = [&self.user, &self.name, &self.library, &self.library_version];
        let texts: usize = texts.iter().map(|text| text.len()).sum();
        let tracked = self.tracking.as_ref().map_or(0, |tracked| tracked.held());
        texts + tracked + self.state.held()
    }

    /// Whether CLIENT REPLY keeps the reply to the present command back.
    pub fn is_silent(&self) -> bool {
        matches!(self.replies, Replies::Off | Replies::Skip)
    }

    /// Whether it is not disconnected for the memory of all: CLIENT NO-EVICT of a superuser, because any
    /// other role could lift the bound with it.
    pub fn is_exempt(&self) -> bool {
        self.no_evict && self.is_superuser
    }

    /// What its last question of who it is was asked with.
    pub fn ticket(&self) -> u64 {
        self.id << u16::BITS | u64::from(self.asked)
    }

    /// Whose ticket it is.
    pub fn id_of(ticket: u64) -> u64 {
        ticket >> u16::BITS
    }

    /// Remembers a command's name for CLIENT LIST.
    #[inline]
    pub fn note_name(&mut self, name: &[u8]) {
        let length = name.len().min(self.last_name.len());
        self.last_name = [0; LONGEST_NAME];
        if let (Some(place), Some(name)) = (self.last_name.get_mut(..length), name.get(..length)) {
            place.copy_from_slice(name);
        }
    }

    /// The beginning of the last command's name, as it was sent; of a command in a command both.
    pub fn last_name(&self) -> &[u8] {
        let name = self.last_name.split(|byte| *byte == 0).next();
        name.unwrap_or_default()
    }

    /// As it was when it connected, but for its role (`Core::log_out`).
    pub fn reset(&mut self) {
        self.changed = true;
        self.unknown_since = Instant::now();
        self.user = Box::default();
        self.implicit = Implicit::Unknown;
        self.authentication = None;
        self.by_password = false;
        self.protocol = Protocol::Resp2;
        self.database = 0;
        self.permission = None;
        self.name = Box::default();
        self.replies = Replies::On;
        self.no_evict = false;
        self.no_touch = false;
        self.state = commands::State::default();
        self.tracking = None;
    }
}
