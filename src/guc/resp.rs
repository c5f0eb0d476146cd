//! The settings `pgcache.resp_*` of the Redis protocol: names, ranges, defaults and the reason for each default.

use std::ffi::{CStr, CString};
use std::time::Duration;

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting, PostgresGucEnum};

use crate::pg::resp::socket_mode;

type Text = GucSetting<Option<CString>>;

/// 0 by default: the protocol is off unless the configuration names a port.
static PORT: GucSetting<i32> = GucSetting::<i32>::new(0);
/// The default of the server's listen_addresses: no other machine can connect.
static LISTEN_ADDRESSES: Text = GucSetting::<Option<CString>>::new(Some(c"localhost"));
/// Empty by default: no socket.
static SOCKET: Text = GucSetting::<Option<CString>>::new(Some(c""));
/// Empty by default: the group of the server.
static SOCKET_GROUP: Text = GucSetting::<Option<CString>>::new(Some(c""));
/// One by default, because one network process answers more requests than most networks carry.
static WORKERS: GucSetting<i32> = GucSetting::<i32>::new(1);
/// The largest number of network processes. The work queue and the client registry have room for this many.
const MOST_WORKERS: i32 = 16;
/// Two by default: one executor that never waits for a lock, and one that may wait.
static EXECUTORS: GucSetting<i32> = GucSetting::<i32>::new(DEFAULT_EXECUTORS);
const DEFAULT_EXECUTORS: i32 = 2;
/// The number of executors, under the name that the setting had before version 0.5.0; 0 if it is not set.
static BACKS: GucSetting<i32> = GucSetting::<i32>::new(0);
const MOST_EXECUTORS: i32 = 16;
/// By default the database that every server has.
static DATABASE: Text = GucSetting::<Option<CString>>::new(Some(c"postgres"));
/// By default a cache named for this purpose. No role has privileges on it until they are granted.
static CACHES: Text = GucSetting::<Option<CString>>::new(Some(c"pgcache.resp"));
/// Empty by default: a client must name its role.
static DEFAULT_ROLE: Text = GucSetting::<Option<CString>>::new(Some(c""));
/// Off by default, because TLS needs a certificate, which the administrator must provide.
static TLS: GucSetting<TlsMode> = GucSetting::<TlsMode>::new(TlsMode::Off);
/// Off by default, so that no password crosses a network in clear text.
static CLEARTEXT: GucSetting<bool> = GucSetting::<bool>::new(false);
/// The default of Redis.
static MAX_CLIENTS: GucSetting<i32> = GucSetting::<i32>::new(10_000);
/// In kilobytes. By default longer than any value that the tier holds.
static MAX_REQUEST: GucSetting<i32> = GucSetting::<i32>::new(16 * 1024);
/// In kilobytes. The default has room for a reply to MGET with many long values; a client that does not read is
/// disconnected before it takes more.
static MAX_OUTPUT: GucSetting<i32> = GucSetting::<i32>::new(64 * 1024);
/// In kilobytes. No ordinary load comes near the default, and a server with little memory survives it.
static MAX_CLIENTS_MEMORY: GucSetting<i32> = GucSetting::<i32>::new(1024 * 1024);
/// Keys of ordinary length take about ten megabytes by default.
static TRACKING_KEYS: GucSetting<i32> = GucSetting::<i32>::new(100_000);
/// In microseconds. The default of Redis.
static SLOWER_THAN: GucSetting<i32> = GucSetting::<i32>::new(10_000);
/// In seconds. The default of Redis, no limit, because connection pools keep idle connections for a long time.
static IDLE_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(0);
/// In seconds. The default of the server's authentication_timeout.
static AUTHENTICATION_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(60);
/// In seconds. The default of Redis. It finds clients that vanished without closing their connection.
static KEEPALIVE: GucSetting<i32> = GucSetting::<i32>::new(300);

/// Whether TCP connections are encrypted.
#[derive(Clone, Copy, PartialEq, Eq, PostgresGucEnum)]
pub enum TlsMode {
    #[name = c"off"]
    Off,
    /// Encrypts a connection if the client begins with TLS.
    #[name = c"on"]
    On,
    /// Rejects connections without TLS.
    #[name = c"required"]
    Required,
}

fn text(setting: &Text) -> CString {
    setting.get().unwrap_or_default()
}

fn string(setting: &Text) -> String {
    text(setting).into_string().unwrap_or_default()
}

fn seconds(setting: &GucSetting<i32>) -> Option<Duration> {
    let seconds = u64::try_from(setting.get()).unwrap_or(0);
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

fn kilobytes(setting: &GucSetting<i32>) -> usize {
    usize::try_from(setting.get()).unwrap_or(0) * 1024
}

/// Returns the TCP port; None if the protocol has no port.
pub fn port() -> Option<u16> {
    u16::try_from(PORT.get()).ok().filter(|&port| port > 0)
}

/// Returns the addresses and names to listen on, or `*`.
pub fn listen_addresses() -> Vec<String> {
    string(&LISTEN_ADDRESSES)
        .split(',')
        .map(|address| address.trim().to_owned())
        .filter(|address| !address.is_empty())
        .collect()
}

/// Returns the number of network processes.
pub fn workers() -> usize {
    usize::try_from(WORKERS.get()).unwrap_or(1)
}

/// Returns whether `pgcache.resp_backs`, the former name of the setting, sets the number of executors.
pub fn has_former_name() -> bool {
    BACKS.get() > 0
}

/// Returns the number of executors. `pgcache.resp_backs`, the former name of the setting, counts only while
/// `pgcache.resp_executors` has its default.
pub fn executors() -> usize {
    let count = match (EXECUTORS.get(), BACKS.get()) {
        (DEFAULT_EXECUTORS, former) if former > 0 => former,
        (count, _) => count,
    };
    usize::try_from(count).unwrap_or(1)
}

/// Returns the path of the unix socket; None if the protocol has no socket.
pub fn socket() -> Option<String> {
    Some(string(&SOCKET)).filter(|path| !path.is_empty())
}

/// Returns the permissions of the unix socket.
pub fn socket_mode() -> u32 {
    socket_mode::SETTING.get().unsigned_abs()
}

/// Returns the group of the unix socket; None if no group is named.
pub fn socket_group() -> Option<CString> {
    Some(text(&SOCKET_GROUP)).filter(|group| !group.is_empty())
}

/// Returns whether the protocol listens on a port or a socket.
pub fn is_on() -> bool {
    port().is_some() || socket().is_some()
}

/// Returns the database whose caches are served.
pub fn database() -> CString {
    text(&DATABASE)
}

/// Returns the names of the caches; the index of a name is the number of the database in the protocol. A comma within
/// double quotes belongs to the name.
pub fn caches() -> Vec<CString> {
    let mut quoted = false;
    let names = text(&CACHES);
    if names.to_bytes().trim_ascii().is_empty() {
        return Vec::new();
    }
    names
        .to_bytes()
        .split(move |&byte| {
            quoted ^= byte == b'"';
            byte == b',' && !quoted
        })
        .filter_map(|name| CString::new(name.trim_ascii()).ok())
        .collect()
}

/// Returns the role of a client that names no role; if it is empty, these clients are rejected.
pub fn default_role() -> CString {
    text(&DEFAULT_ROLE)
}

/// Returns whether TCP connections may, or must, be encrypted.
pub fn tls() -> TlsMode {
    TLS.get()
}

/// Returns whether a client on another machine may send a password in clear text.
pub fn cleartext() -> bool {
    CLEARTEXT.get()
}

/// Returns the maximum number of concurrent clients.
pub fn max_clients() -> usize {
    usize::try_from(MAX_CLIENTS.get()).unwrap_or(0)
}

/// Returns the maximum length of a request in bytes.
pub fn max_request() -> usize {
    kilobytes(&MAX_REQUEST)
}

/// Returns how many bytes of replies may wait for a client to read them.
pub fn max_output() -> usize {
    kilobytes(&MAX_OUTPUT)
}

/// Returns how many bytes of memory all clients together may take. None means no limit.
pub fn max_clients_memory() -> Option<usize> {
    Some(kilobytes(&MAX_CLIENTS_MEMORY)).filter(|bytes| *bytes > 0)
}

/// Returns how many keys one network process remembers for clients with CLIENT TRACKING that have read them.
pub fn tracking_keys() -> usize {
    usize::try_from(TRACKING_KEYS.get()).unwrap_or(1)
}

/// Returns the time that a command must take to be logged; None if no command is logged.
pub fn slower_than() -> Option<Duration> {
    let micros = u64::try_from(SLOWER_THAN.get()).ok()?;
    Some(Duration::from_micros(micros))
}

/// Returns how long a client may be idle. None means no limit.
pub fn idle_timeout() -> Option<Duration> {
    seconds(&IDLE_TIMEOUT)
}

/// Returns how long a client may take to authenticate. None means no limit.
pub fn authentication_timeout() -> Option<Duration> {
    seconds(&AUTHENTICATION_TIMEOUT)
}

/// Returns how long a client must be idle before the system checks its connection. None means the system's default.
pub fn keepalive() -> Option<Duration> {
    seconds(&KEEPALIVE)
}

/// Defines the settings of the protocol. [`super::define`] explains `preloading`.
pub(super) fn define(preloading: bool) {
    define_listeners(preloading);
    let text = |name: &'static CStr, short, long, setting, context| {
        GucRegistry::define_string_guc(name, short, long, setting, context, GucFlags::default());
    };
    text(
        c"pgcache.resp_database",
        c"Sets the database whose caches the Redis protocol serves.",
        c"The Redis protocol serves one database of the server.",
        &DATABASE,
        at_start(preloading),
    );
    text(
        c"pgcache.resp_caches",
        c"Lists the caches that the Redis protocol serves.",
        c"Database number n of the protocol is the nth name in the list, counted from 0.",
        &CACHES,
        GucContext::Sighup,
    );
    text(
        c"pgcache.resp_default_role",
        c"Sets the role of a client of the Redis protocol that names no role or the role default.",
        c"pg_hba.conf applies to this role as to any other. If the value is empty, such clients are rejected.",
        &DEFAULT_ROLE,
        GucContext::Sighup,
    );
    GucRegistry::define_bool_guc(
        c"pgcache.resp_cleartext",
        c"Allows clients of the Redis protocol on other machines to send passwords in clear text.",
        c"AUTH sends passwords in clear text. On a unix socket and from the same machine this is always allowed.",
        &CLEARTEXT,
        GucContext::Sighup,
        GucFlags::default(),
    );
    define_limits();
}

/// Returns the context of a setting that is read at the start of the server. Without preloading the server has already
/// started.
fn at_start(preloading: bool) -> GucContext {
    match preloading {
        true => GucContext::Postmaster,
        false => GucContext::Sighup,
    }
}

fn define_listeners(preloading: bool) {
    GucRegistry::define_int_guc(
        c"pgcache.resp_port",
        c"Sets the TCP port of the Redis protocol.",
        c"0 means no port. Without a port and a socket the Redis protocol does not run.",
        &PORT,
        0,
        65_535,
        at_start(preloading),
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pgcache.resp_workers",
        c"Sets the number of processes that answer clients of the Redis protocol.",
        c"Each process counts against max_worker_processes.",
        &WORKERS,
        1,
        MOST_WORKERS,
        at_start(preloading),
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pgcache.resp_executors",
        c"Sets the number of processes that work on tables and read catalogs for the Redis protocol.",
        c"One process takes work that does not wait; the others take work that has to wait.",
        &EXECUTORS,
        1,
        MOST_EXECUTORS,
        at_start(preloading),
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pgcache.resp_backs",
        c"Sets pgcache.resp_executors by the name that it had before version 0.5.0.",
        c"0 means not set. It counts only while pgcache.resp_executors has its default, and the next version does not read it.",
        &BACKS,
        0,
        MOST_EXECUTORS,
        at_start(preloading),
        GucFlags::default(),
    );
    let text = |name: &'static CStr, short, long, setting| {
        let context = at_start(preloading);
        GucRegistry::define_string_guc(name, short, long, setting, context, GucFlags::default());
    };
    text(
        c"pgcache.resp_listen_addresses",
        c"Sets the addresses on which the port of the Redis protocol listens.",
        c"The format is that of listen_addresses.",
        &LISTEN_ADDRESSES,
    );
    text(
        c"pgcache.resp_socket",
        c"Sets the path of the unix socket of the Redis protocol.",
        c"An empty value means no socket.",
        &SOCKET,
    );
    text(
        c"pgcache.resp_socket_group",
        c"Sets the group of the unix socket of the Redis protocol.",
        c"The format is that of unix_socket_group.",
        &SOCKET_GROUP,
    );
    socket_mode::define(at_start(preloading));
    GucRegistry::define_enum_guc(
        c"pgcache.resp_tls",
        c"Selects whether connections to the port of the Redis protocol are encrypted.",
        c"on encrypts connections that begin with TLS, and required accepts no others. The certificate, key, CA and revocation list are those of the server.",
        &TLS,
        at_start(preloading),
        GucFlags::default(),
    );
}

fn define_limits() {
    let number = |name: &'static CStr, short, long, setting, least, most, unit| {
        let context = GucContext::Sighup;
        GucRegistry::define_int_guc(name, short, long, setting, least, most, context, unit);
    };
    const DAY: i32 = 24 * 60 * 60;
    number(
        c"pgcache.resp_max_clients",
        c"Sets the maximum number of concurrent clients of the Redis protocol.",
        c"Each client takes a file descriptor of one process.",
        &MAX_CLIENTS,
        1,
        1_000_000,
        GucFlags::default(),
    );
    number(
        c"pgcache.resp_max_request",
        c"Sets the maximum size of a request of the Redis protocol.",
        c"Before a client is authenticated, the maximum is 4 kB.",
        &MAX_REQUEST,
        16,
        1024 * 1024,
        GucFlags::UNIT_KB,
    );
    number(
        c"pgcache.resp_max_output",
        c"Sets the maximum size of the replies that wait for a client of the Redis protocol to read them.",
        c"A client that exceeds it is disconnected.",
        &MAX_OUTPUT,
        64,
        1024 * 1024,
        GucFlags::UNIT_KB,
    );
    number(
        c"pgcache.resp_max_clients_memory",
        c"Sets the maximum memory that all clients of the Redis protocol use together.",
        c"If they use more, the client that uses most is disconnected first. 0 means no limit.",
        &MAX_CLIENTS_MEMORY,
        0,
        1024 * 1024 * 1024,
        GucFlags::UNIT_KB,
    );
    number(
        c"pgcache.resp_tracking_keys",
        c"Sets how many keys a process of the Redis protocol remembers that clients with CLIENT TRACKING have read.",
        c"For each further key the process forgets one, and notifies its clients that the forgotten key has changed.",
        &TRACKING_KEYS,
        1,
        10_000_000,
        GucFlags::default(),
    );
    number(
        c"pgcache.resp_slowlog_slower_than",
        c"Sets the time in microseconds from which SLOWLOG shows a command of the Redis protocol.",
        c"0 shows all commands, and -1 shows none.",
        &SLOWER_THAN,
        -1,
        100_000_000,
        GucFlags::default(),
    );
    number(
        c"pgcache.resp_idle_timeout",
        c"Sets how long a client of the Redis protocol may be idle.",
        c"0 means no limit.",
        &IDLE_TIMEOUT,
        0,
        DAY,
        GucFlags::UNIT_S,
    );
    number(
        c"pgcache.resp_authentication_timeout",
        c"Sets how long a client of the Redis protocol may take to authenticate.",
        c"0 means no limit.",
        &AUTHENTICATION_TIMEOUT,
        0,
        DAY,
        GucFlags::UNIT_S,
    );
    number(
        c"pgcache.resp_keepalive",
        c"Sets the idle time after which the system checks whether a client of the Redis protocol is still connected.",
        c"0 means the default of the system.",
        &KEEPALIVE,
        0,
        DAY,
        GucFlags::UNIT_S,
    );
}
