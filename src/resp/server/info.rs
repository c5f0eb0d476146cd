//! Runs INFO, in Redis' format, with the fields that redis_exporter and the usual dashboards read. The numbers about
//! caches include only caches whose entries the client's role may read.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pgcache_resp::{Args, Writer};
use xxhash_rust::xxh3::xxh3_128;

use crate::cache::catalog::registry::Cache;
use crate::cache::table::entry_count::EntryCount;
use crate::guc::resp as settings;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::resp::client_registry::Counter;
use crate::pg::resp::work_queue;
use crate::pg::session::{self, clock};
use crate::pg::shmem::slot::{self, Slot};
use crate::pg::shmem::tier::tier;
use crate::resp::ipc::answers::EntriesOf;
use crate::resp::ipc::permission_cache::{NotPermitted, Permission};
use crate::resp::session::progress::Progress;
use crate::resp::session::{Session, Waits};
use crate::resp::shared::Core;
use crate::resp::shared::client_permissions;

/// The Redis version whose commands are served.
pub const VERSION: &str = "8.4.0";

/// The maximum time that INFO waits for permissions on caches and for numbers of entries.
const PATIENCE: Duration = Duration::from_millis(100);

/// Runs INFO.
pub fn run(
    core: &mut Core,
    session: &mut Session,
    sections: Args<'_>,
    replies: &mut Writer,
) -> Progress {
    let caches = match visible(core, session) {
        Ok(caches) => caches,
        Err(step) => return step,
    };
    if is_wanted(sections, "keyspace")
        && let Err(step) = count_entries(core, session, &caches)
    {
        return step;
    }
    core.show_figures();
    let text = info(core, &caches, sections);
    replies.text(text.as_bytes());
    Progress::Done
}

/// The databases whose entries the role may read.
type Caches = Vec<(u32, Rc<Permission>)>;

/// Returns the caches that the role may read. Within an EXEC, and after [`PATIENCE`], omits caches whose permission is
/// still unknown, because a cache may be locked for a long time.
fn visible(core: &mut Core, session: &mut Session) -> Result<Caches, Progress> {
    let waited = |since: Instant| since.elapsed() >= PATIENCE;
    let waits = !session.in_exec && !session.activity.under_way.is_some_and(waited);
    let mut caches = Vec::new();
    for database in 0..core.catalog.permissions.databases() as u32 {
        let mut nowhere = Writer::new(session.protocol, 0);
        match client_permissions::permission_in(core, session, database, &mut nowhere) {
            Ok(permission) if permission.target.privileges.has(Privileges::SELECT) => {
                caches.push((database, permission))
            }
            Err(step @ (Progress::Wait | Progress::Starve)) if waits => return Err(step),
            _ => {}
        }
    }
    session.waits = Waits::Nothing;
    Ok(caches)
}

/// Requests the numbers of entries of the tables. After [`PATIENCE`], INFO shows the numbers that have arrived.
fn count_entries(core: &mut Core, session: &mut Session, caches: &Caches) -> Result<(), Progress> {
    let waited = |since: Instant| since.elapsed() >= PATIENCE;
    let waits = !session.in_exec && !session.activity.under_way.is_some_and(waited);
    let tables = caches
        .iter()
        .filter(|(_, permission)| permission.target.is_table());
    let mut is_requested = false;
    for (_, permission) in tables {
        let relation = permission.target.cache.relation;
        let known = core.catalog.entries.look_up(
            &core.submitter.work_queue,
            core.number,
            EntriesOf(relation),
            session.id,
        );
        is_requested |= matches!(known, Err(NotPermitted::Asked));
    }
    match is_requested && waits {
        true => {
            session.wait_for(Waits::Permission);
            Err(Progress::Wait)
        }
        false => Ok(()),
    }
}

/// The sections of INFO, in their order.
const SECTIONS: [&str; 9] = [
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "replication",
    "cpu",
    "cluster",
    "keyspace",
];

fn is_wanted(sections: Args<'_>, section: &str) -> bool {
    let named = |option: &[u8]| {
        let mut names = ["all", "default", "everything", section].into_iter();
        names.any(|name| option.eq_ignore_ascii_case(name.as_bytes()))
    };
    sections.is_empty() || sections.iter().any(named)
}

fn info(core: &Core, caches: &Caches, sections: Args<'_>) -> String {
    let mut text = String::new();
    for section in SECTIONS
        .into_iter()
        .filter(|section| is_wanted(sections, section))
    {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let mut name = section.to_owned();
        if let Some(first) = name.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        text.push_str(&format!(
            "# {}\r\n",
            if section == "cpu" { "CPU" } else { &name }
        ));
        for (name, value) in section_of(core, caches, section) {
            text.push_str(&format!("{name}:{value}\r\n"));
        }
    }
    text
}

fn section_of(core: &Core, caches: &Caches, section: &str) -> Vec<(String, String)> {
    let uptime = Instant::now()
        .saturating_duration_since(core.began)
        .as_secs();
    let counters = core.registry.counters();
    let counted = |counter: Counter| counters.get(counter as usize).copied().unwrap_or(0);
    let printed = |counter: Counter| counted(counter).to_string();
    let lines: Vec<(&str, String)> = match section {
        "server" => vec![
            ("redis_version", VERSION.into()),
            ("pgcache_version", env!("CARGO_PKG_VERSION").into()),
            ("redis_mode", "standalone".into()),
            ("os", std::env::consts::OS.into()),
            ("arch_bits", usize::BITS.to_string()),
            ("process_id", std::process::id().to_string()),
            ("run_id", run_id()),
            ("tcp_port", settings::port().unwrap_or(0).to_string()),
            ("uptime_in_seconds", uptime.to_string()),
            ("uptime_in_days", (uptime / 86_400).to_string()),
        ],
        "clients" => vec![
            // The registry also counts the client that runs INFO, which is taken out of `core.clients` while it is
            // served.
            ("connected_clients", core.registry.now().clients.to_string()),
            ("maxclients", core.limits.clients.to_string()),
            ("blocked_clients", core.registry.now().blocked.to_string()),
            (
                "mem_clients_normal",
                core.registry.clients_memory().to_string(),
            ),
            ("tracking_clients", core.registry.now().tracking.to_string()),
            (
                "total_tracking_keys",
                core.registry.now().tracked_keys.to_string(),
            ),
        ],
        "memory" => vec![
            ("used_memory", used().to_string()),
            ("maxmemory", crate::guc::hot_size().to_string()),
            ("maxmemory_policy", "allkeys-lfu".into()),
        ],
        "persistence" => vec![
            ("loading", "0".into()),
            ("async_loading", "0".into()),
            ("rdb_bgsave_in_progress", "0".into()),
            ("aof_enabled", "0".into()),
        ],
        "stats" => vec![
            ("total_connections_received", printed(Counter::Connections)),
            ("total_commands_processed", printed(Counter::Commands)),
            (
                "instantaneous_ops_per_sec",
                core.rate
                    .per_second(Instant::now(), counted(Counter::Commands))
                    .to_string(),
            ),
            ("total_net_input_bytes", printed(Counter::Input)),
            ("total_net_output_bytes", printed(Counter::Output)),
            ("rejected_connections", printed(Counter::Rejected)),
            ("expired_keys", sum(caches, expired).to_string()),
            ("evicted_keys", sum(caches, evicted).to_string()),
            ("keyspace_hits", printed(Counter::Hits)),
            ("keyspace_misses", printed(Counter::Misses)),
            ("evicted_clients", printed(Counter::Evicted)),
            (
                "client_output_buffer_limit_disconnections",
                printed(Counter::CutOff),
            ),
            ("pgcache_queue_depth", work_queue::depth().to_string()),
            (
                "acl_access_denied_auth",
                printed(Counter::FailedAuthentications),
            ),
        ],
        "replication" => {
            // A proxy that searches for the primary expects Redis' words.
            let role = match session::in_recovery() {
                true => "slave",
                false => "master",
            };
            vec![("role", role.into()), ("connected_slaves", "0".into())]
        }
        "cpu" => {
            let seconds = |counter| format!("{:.6}", counted(counter) as f64 / 1e6);
            vec![
                ("used_cpu_sys", seconds(Counter::CpuSystem)),
                ("used_cpu_user", seconds(Counter::CpuUser)),
            ]
        }
        "cluster" => vec![("cluster_enabled", "0".into())],
        "keyspace" => return keyspace(core, caches),
        _ => Vec::new(),
    };
    lines
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Returns the bytes of the hot tier.
fn used() -> usize {
    tier().map_or(0, |tier| tier.size())
}

/// Returns the lines of the caches that have entries.
fn keyspace(core: &Core, caches: &Caches) -> Vec<(String, String)> {
    let line = |(database, permission): &(u32, Rc<Permission>)| {
        let count = match permission.target.is_table() {
            true => core
                .catalog
                .entries
                .last(EntriesOf(permission.target.cache.relation))?,
            false => counted(slot_of(&permission.target.cache)?),
        };
        let EntryCount {
            entries,
            expiring,
            time_left,
        } = count;
        let line = || format!("keys={entries},expires={expiring},avg_ttl={time_left}");
        (entries > 0).then(|| (format!("db{database}"), line()))
    };
    caches.iter().filter_map(line).collect()
}

/// Returns the number of entries of a memory cache.
fn counted(slot: &Slot) -> EntryCount {
    let (expiring, mean) = slot.expiring();
    let left = mean.saturating_mul(1000) - clock::now() / 1000;
    EntryCount {
        entries: slot.entries.load(Ordering::Relaxed).max(0) as u64,
        expiring,
        time_left: if expiring > 0 { left.max(0) as u64 } else { 0 },
    }
}

fn slot_of(cache: &Cache) -> Option<&'static Slot> {
    let tier = tier()?;
    Some(tier.slot(cache.slot(tier)?))
}

fn expired(_: &Permission, slot: &Slot) -> u64 {
    slot.counter(slot::Counter::Expired)
}

/// Returns the number of evicted entries. An evicted copy of a row does not count, because the row remains.
fn evicted(permission: &Permission, slot: &Slot) -> u64 {
    match permission.target.is_table() {
        true => 0,
        false => slot.evicted(),
    }
}

/// Sums a counter over the caches. A cache that serves several databases counts once.
fn sum(caches: &Caches, counter: impl Fn(&Permission, &Slot) -> u64) -> u64 {
    let mut known = HashSet::new();
    let distinct = caches
        .iter()
        .filter(|(_, permission)| known.insert(permission.target.cache.id));
    let counters = distinct.filter_map(|(_, permission)| {
        slot_of(&permission.target.cache).map(|slot| counter(permission, slot))
    });
    counters.sum()
}

/// Returns 40 hexadecimal digits that identify this run of the server.
fn run_id() -> String {
    let start = clock::server_start().to_le_bytes();
    let hash = xxh3_128(&start);
    format!("{hash:032x}{:08x}", clock::server_start() as u32)
}
