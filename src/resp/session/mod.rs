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
    Permission,
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

/// Where a client connects from, and to.
pub struct Origin {
    pub peer: Peer,
    /// The certificate that the client showed when TLS began.
    pub certificate: Option<Box<Certificate>>,
    /// The two addresses, as CLIENT LIST has them.
    pub address: Box<str>,
    pub local_address: Box<str>,
}

/// Who a client is.
pub struct Login {
    /// None: the client has not authenticated, or its role may not log in.
    pub role: Option<Oid>,
    pub is_superuser: bool,
    pub user: Box<[u8]>,
    pub implicit: Implicit,
    /// How often an executor was asked who the client is: only the answer to the last question counts.
    pub asked: u16,
    /// The result of the client's AUTH.
    pub authentication: Option<Result<Result<Authenticated, AuthFailure>, ()>>,
    /// The client came by a password, which may expire.
    pub by_password: bool,
    /// Since when the client has time to authenticate.
    pub unknown_since: Instant,
}

impl Login {
    fn new() -> Login {
        Login {
            role: None,
            is_superuser: false,
            user: Box::default(),
            implicit: Implicit::Unknown,
            asked: 0,
            authentication: None,
            by_password: false,
            unknown_since: Instant::now(),
        }
    }
}

/// A client's commands that an executor has.
#[derive(Default)]
pub struct Offloaded {
    /// Their place in the work queue.
    pub handed: Option<u32>,
    /// The reply to them has come.
    pub answered: Option<Answered>,
    /// They are a WATCH of these keys.
    pub watching: Option<Box<commands::WatchedRows>>,
    /// CLIENT REPLY keeps the reply back.
    pub mute: bool,
}

/// A long command that has begun.
#[derive(Default)]
pub struct Long {
    /// What is left of it, and the permission by which it began.
    pub continued: Option<(commands::Continuation, Rc<Permission>)>,
    /// What else is left of a FLUSHALL.
    pub to_clear: Vec<(commands::Continuation, Rc<Permission>)>,
    /// How far a FLUSHALL has come with tables.
    pub flushing: Flushing,
    /// The cache was found to be gone, and an executor was asked for it again.
    pub gone: bool,
}

/// What a client was called by CLIENT SETNAME and SETINFO.
#[derive(Default)]
pub struct Labels {
    pub name: Box<[u8]>,
    pub library: Box<[u8]>,
    pub library_version: Box<[u8]>,
}

/// What a client has done, for CLIENT LIST and SLOWLOG.
pub struct Activity {
    pub connected: Instant,
    pub last_heard: Instant,
    /// The beginning of the last command's name, as it was sent, or the name of a command in a command.
    last_name: [u8; LONGEST_NAME],
    pub commands: u64,
    /// Bytes that the client has sent and received.
    pub net_in: u64,
    pub net_out: u64,
    /// When the command began that is not done.
    pub under_way: Option<Instant>,
    /// The last command may have taken long.
    pub heavy: bool,
}

impl Activity {
    fn new() -> Activity {
        let now = Instant::now();
        Activity {
            connected: now,
            last_heard: now,
            last_name: [0; LONGEST_NAME],
            commands: 0,
            net_in: 0,
            net_out: 0,
            under_way: None,
            heavy: false,
        }
    }
}

/// A client.
pub struct Session {
    /// Never used again in this life of the server.
    pub id: u64,
    pub origin: Origin,
    pub login: Login,
    pub labels: Labels,
    pub activity: Activity,
    pub offloaded: Offloaded,
    pub long: Long,
    /// The client's place in the client registry; None: it is not shown yet.
    pub place: Option<Claimed>,
    /// A property that seldom changes has changed since the client was last shown.
    pub changed: bool,
    pub waits: Waits,
    waits_since: Instant,
    pub protocol: Protocol,
    pub database: u32,
    pub permission: Option<Rc<Permission>>,
    /// It runs the commands of an EXEC.
    pub in_exec: bool,
    pub replies: Replies,
    /// The reply is sent whatever CLIENT REPLY says: that of a subscription, and of an EXEC, which obeys by itself.
    pub is_loud: bool,
    pub no_evict: bool,
    pub no_touch: bool,
    /// MULTI, WATCH, subscriptions.
    pub state: commands::State,
    /// CLIENT TRACKING.
    pub tracking: Option<Box<Tracked>>,
}

impl Session {
    pub fn new(id: u64, peer: Peer, address: String, local_address: String) -> Session {
        Session {
            id,
            origin: Origin {
                peer,
                certificate: None,
                address: address.into(),
                local_address: local_address.into(),
            },
            login: Login::new(),
            labels: Labels::default(),
            activity: Activity::new(),
            offloaded: Offloaded::default(),
            long: Long::default(),
            place: None,
            changed: true,
            waits: Waits::Nothing,
            waits_since: Instant::now(),
            protocol: Protocol::Resp2,
            database: 0,
            permission: None,
            in_exec: false,
            replies: Replies::On,
            is_loud: false,
            no_evict: false,
            no_touch: false,
            state: commands::State::default(),
            tracking: None,
        }
    }

    /// Since when the client waits.
    pub fn waits_since(&self) -> Instant {
        self.waits_since
    }

    /// Waits for something from now on.
    pub fn wait_for(&mut self, awaited: Waits) {
        self.waits = awaited;
        self.waits_since = Instant::now();
    }

    /// Bytes of memory beside itself.
    pub fn held(&self) -> usize {
        let texts = [
            &self.login.user,
            &self.labels.name,
            &self.labels.library,
            &self.labels.library_version,
        ];
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
        self.no_evict && self.login.is_superuser
    }

    /// What its last question of who it is was asked with.
    pub fn ticket(&self) -> u64 {
        self.id << u16::BITS | u64::from(self.login.asked)
    }

    /// Whose ticket it is.
    pub fn id_of(ticket: u64) -> u64 {
        ticket >> u16::BITS
    }

    /// Remembers a command's name for CLIENT LIST.
    #[inline]
    pub fn note_name(&mut self, name: &[u8]) {
        let length = name.len().min(self.activity.last_name.len());
        self.activity.last_name = [0; LONGEST_NAME];
        if let (Some(place), Some(name)) = (
            self.activity.last_name.get_mut(..length),
            name.get(..length),
        ) {
            place.copy_from_slice(name);
        }
    }

    /// The beginning of the last command's name, as it was sent; of a command in a command both.
    pub fn last_name(&self) -> &[u8] {
        let name = self.activity.last_name.split(|byte| *byte == 0).next();
        name.unwrap_or_default()
    }

    /// As it was when it connected, but for its role (`Core::log_out`).
    pub fn reset(&mut self) {
        self.changed = true;
        self.login.unknown_since = Instant::now();
        self.login.user = Box::default();
        self.login.implicit = Implicit::Unknown;
        self.login.authentication = None;
        self.login.by_password = false;
        self.protocol = Protocol::Resp2;
        self.database = 0;
        self.permission = None;
        self.labels.name = Box::default();
        self.replies = Replies::On;
        self.no_evict = false;
        self.no_touch = false;
        self.state = commands::State::default();
        self.tracking = None;
    }
}
