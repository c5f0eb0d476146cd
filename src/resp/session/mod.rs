//! The state of a client: its login, its labels, the command that it runs and the reply that it waits for. The socket
//! and its buffers are in `connection`. A waiting client has exactly one reason to wait ([`Waits`]), and only the end
//! of this wait resumes it; otherwise a reply could be sent before an earlier reply.

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

/// The reason why a client waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    Nothing,
    /// An executor checks whether the client may have the default role without authenticating.
    Implicit,
    /// An executor checks an AUTH, or a HELLO with AUTH.
    Authentication,
    /// An executor reads the client's privileges.
    Permission,
    /// CLIENT PAUSE holds the client's command back.
    Pause,
    /// An executor runs the client's commands on a table.
    Table,
}

/// Whether a client that has not authenticated may have the default role.
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
    /// The reply to the next command is not sent.
    SkipNext,
    /// The reply to the current command is not sent.
    Skip,
}

/// Returns a name in which every character that would split it into two fields or two lines is replaced.
pub fn printable(bytes: &[u8]) -> String {
    let shown = |byte: &u8| match byte {
        b'!'..=b'~' => char::from(*byte),
        _ => '?',
    };
    bytes.iter().map(shown).collect()
}

/// How far a FLUSHALL has cleared the caches that are tables.
#[derive(Debug, Default)]
pub enum Flushing {
    #[default]
    No,
    /// An executor is clearing these caches.
    Requested(Vec<u32>),
    /// An executor has cleared these caches.
    Done(Vec<u32>),
    /// The executor failed and has cleared none of the caches. Holds the error reply.
    Failed(Vec<u8>),
}

/// The maximum length of a command's name in CLIENT LIST. The longest name is `cluster|countkeysinslot`.
const LONGEST_NAME: usize = 24;

/// The addresses and the certificate of a client.
pub struct Origin {
    pub peer: Peer,
    /// The certificate that the client presented in the TLS handshake.
    pub certificate: Option<Box<Certificate>>,
    /// The client's address, in the format of CLIENT LIST.
    pub address: Box<str>,
    /// The server's address, in the format of CLIENT LIST.
    pub local_address: Box<str>,
}

/// The role of a client, and how the client got it.
pub struct Login {
    /// The role's OID; None if the client has not authenticated or its role may no longer log in.
    pub role: Option<Oid>,
    pub is_superuser: bool,
    pub user: Box<[u8]>,
    pub implicit: Implicit,
    /// The number of authentication requests sent to executors. Only the reply to the latest request counts.
    pub requests_sent: u16,
    /// The result of the client's AUTH.
    pub authentication: Option<Result<Result<Authenticated, AuthFailure>, ()>>,
    /// Whether the client authenticated with a password, which may expire.
    pub by_password: bool,
    /// The time at which the client last lost its role, or connected without one. Its time to authenticate begins
    /// there.
    pub unknown_since: Instant,
}

impl Login {
    fn new() -> Login {
        Login {
            role: None,
            is_superuser: false,
            user: Box::default(),
            implicit: Implicit::Unknown,
            requests_sent: 0,
            authentication: None,
            by_password: false,
            unknown_since: Instant::now(),
        }
    }
}

/// The commands of a client that an executor runs.
#[derive(Default)]
pub struct Offloaded {
    /// The place of the commands in the work queue.
    pub handed: Option<u32>,
    /// The reply to the commands, once it has arrived.
    pub answered: Option<Answered>,
    /// The rows to watch, if the command is a WATCH.
    pub watching: Option<Box<commands::WatchedRows>>,
    /// Whether CLIENT REPLY suppresses the reply.
    pub mute: bool,
}

/// A long command that runs in pieces.
#[derive(Default)]
pub struct Unfinished {
    /// The remaining work of the command, and the permission with which it began.
    pub continued: Option<(commands::Continuation, Rc<Permission>)>,
    /// The caches that a FLUSHALL still has to clear.
    pub to_clear: Vec<(commands::Continuation, Rc<Permission>)>,
    /// How far a FLUSHALL has cleared the caches that are tables.
    pub flushing: Flushing,
    /// Whether the cache seems to be dropped, so that an executor looks it up again.
    pub gone: bool,
}

/// The names that a client set with CLIENT SETNAME and CLIENT SETINFO.
#[derive(Default)]
pub struct Labels {
    pub name: Box<[u8]>,
    pub library: Box<[u8]>,
    pub library_version: Box<[u8]>,
}

/// The activity of a client, for CLIENT LIST and SLOWLOG.
pub struct Activity {
    pub connected: Instant,
    pub last_received: Instant,
    /// The beginning of the last command's name as it was sent. For a subcommand, the beginning of the container
    /// command's name and the subcommand's name.
    last_name: [u8; LONGEST_NAME],
    pub commands: u64,
    /// Bytes received from the client.
    pub net_in: u64,
    /// Bytes sent to the client.
    pub net_out: u64,
    /// The start of the command that is not yet finished.
    pub under_way: Option<Instant>,
    /// Whether the last command may have taken long.
    pub heavy: bool,
}

impl Activity {
    fn new() -> Activity {
        let now = Instant::now();
        Activity {
            connected: now,
            last_received: now,
            last_name: [0; LONGEST_NAME],
            commands: 0,
            net_in: 0,
            net_out: 0,
            under_way: None,
            heavy: false,
        }
    }
}

/// A Redis client's session.
pub struct Session {
    /// The client's id, which is not reused until the server restarts.
    pub id: u64,
    pub origin: Origin,
    pub login: Login,
    pub labels: Labels,
    pub activity: Activity,
    pub offloaded: Offloaded,
    pub unfinished: Unfinished,
    /// The client's place in the client registry; None before the client is shown there.
    pub place: Option<Claimed>,
    /// Whether a property that changes rarely has changed since the client was last written to the registry.
    pub changed: bool,
    pub waits: Waits,
    waits_since: Instant,
    pub protocol: Protocol,
    pub database: u32,
    pub permission: Option<Rc<Permission>>,
    /// Whether the client runs the commands of an EXEC.
    pub in_exec: bool,
    pub replies: Replies,
    /// Whether the reply is sent regardless of CLIENT REPLY. Set for the reply to a subscription, and to an EXEC, which
    /// applies CLIENT REPLY itself.
    pub is_loud: bool,
    pub no_evict: bool,
    pub no_touch: bool,
    /// The state of MULTI, WATCH and subscriptions.
    pub state: commands::State,
    /// The state of CLIENT TRACKING.
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
            unfinished: Unfinished::default(),
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

    /// Returns the time at which the client began to wait.
    pub fn waits_since(&self) -> Instant {
        self.waits_since
    }

    /// Makes the client wait, beginning now.
    pub fn wait_for(&mut self, awaited: Waits) {
        self.waits = awaited;
        self.waits_since = Instant::now();
    }

    /// Returns the bytes of memory that the session holds besides the struct itself.
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

    /// Returns whether CLIENT REPLY suppresses the reply to the current command.
    pub fn is_silent(&self) -> bool {
        matches!(self.replies, Replies::Off | Replies::Skip)
    }

    /// Returns whether the client is never disconnected to free memory. Only a superuser's client that has set CLIENT
    /// NO-EVICT is exempt, because otherwise any role could circumvent the limit.
    pub fn is_exempt(&self) -> bool {
        self.no_evict && self.login.is_superuser
    }

    /// Returns the ticket of the latest authentication request: the client's id and the request's number.
    pub fn ticket(&self) -> u64 {
        self.id << u16::BITS | u64::from(self.login.requests_sent)
    }

    /// Returns the id of the client to which a ticket belongs.
    pub fn id_of(ticket: u64) -> u64 {
        ticket >> u16::BITS
    }

    /// Stores a command's name for CLIENT LIST.
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

    /// Returns the beginning of the last command's name as it was sent. For a subcommand, returns the names of the
    /// container command and the subcommand.
    pub fn last_name(&self) -> &[u8] {
        let name = self.activity.last_name.split(|byte| *byte == 0).next();
        name.unwrap_or_default()
    }

    /// Resets the session to the state of a new connection, except for its role (see `Core::log_out`).
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
