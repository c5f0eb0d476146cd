//! Reads the settings of roles that apply in the transactions of their commands. Postgres itself applies a role's
//! settings only when the role connects.

use std::collections::HashMap;
use std::ffi::CString;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pgrx::pg_sys::{self, Oid};

use crate::pg::resp::standby_waits;
use crate::pg::session::failure::Failure;
use crate::pg::spi::output::Output;
use crate::pg::spi::plan::query_once;
use crate::pg::value::typed::Typed;
use crate::pg::worker::{as_role, background};

/// The names of the settings that apply. All other settings matter only in SQL sessions.
const NAMES: [&str; 5] = [
    "synchronous_commit",
    "statement_timeout",
    "lock_timeout",
    "search_path",
    "row_security",
];
/// The time for which settings are kept. It is short because no message announces a change of a role's settings.
const FRESH: Duration = Duration::from_secs(1);
/// The maximum number of roles whose settings are kept. When it is reached, all are dropped together.
const MOST: usize = 1000;

pub type Settings = Rc<[(CString, CString)]>;

/// The settings of recently used roles.
pub struct Roles {
    /// The search path for roles that set none, because the search path of the process itself is empty.
    search_path: CString,
    known: HashMap<u32, Known>,
}

struct Known {
    since: Instant,
    /// Whether the role's synchronous_commit waits for a standby. None means that the role does not set it.
    requires_standby: Option<bool>,
    /// The settings for transactions without user-defined code.
    plain: Settings,
    all: Settings,
}

impl Roles {
    pub fn new(search_path: CString) -> Roles {
        Roles {
            search_path,
            known: HashMap::new(),
        }
    }

    /// Returns the settings of a role, for a transaction with or without user-defined code. If they cannot be read now
    /// and were never read, returns only the search path for user-defined code, and nothing for other transactions.
    /// Must run outside a transaction.
    pub fn settings(&mut self, role: Oid, user_code: bool) -> Settings {
        let fallback = (c"search_path".to_owned(), self.search_path.clone());
        match self.known(role, None) {
            Some(known) => known.of(user_code),
            None if user_code => Rc::new([fallback]),
            None => Rc::new([]),
        }
    }

    /// Returns whether a logged commit of this role waits for a standby, as far as is known now.
    pub fn waits_for_standby(&mut self, patience: Duration, role: Oid) -> bool {
        let required = |known: &Known| known.requires_standby;
        standby_waits::standby_is_named()
            && standby_waits::is_required(self.known(role, Some(patience)).and_then(required))
    }

    /// Returns the settings for a transaction without user-defined code, for a caller that must not wait. If they
    /// cannot be read within `patience`, returns the settings that were read last, or None if they were never read.
    pub fn settings_within(&mut self, patience: Duration, role: Oid) -> Option<Settings> {
        self.known(role, Some(patience))
            .map(|known| known.of(false))
    }

    fn known(&mut self, role: Oid, patience: Option<Duration>) -> Option<&Known> {
        let (now, key) = (Instant::now(), role.to_u32());
        let fresh = |known: &Known| now.saturating_duration_since(known.since) < FRESH;
        if !self.known.get(&key).is_some_and(fresh) {
            let ask = || match patience {
                None => background::in_transaction(|| read(role)),
                Some(patience) => {
                    as_role::within(patience, || background::in_transaction(|| read(role)))
                }
            };
            // A cancel request from a SQL session cannot be meant for this work, so try once more.
            let again = |failure: Failure| match failure.cancelled {
                true => ask(),
                false => Err(failure),
            };
            match (ask().or_else(again), self.known.get_mut(&key)) {
                (Ok(own), _) => self.note(key, own, now),
                (Err(_), Some(former)) => former.since = now,
                (Err(_), None) => {}
            }
        }
        self.known.get(&key)
    }

    fn note(&mut self, role: u32, own: Vec<(CString, CString)>, since: Instant) {
        let mut all = vec![(c"search_path".to_owned(), self.search_path.clone())];
        all.extend(own);
        let about_code = [c"search_path", c"row_security"];
        let plain = all
            .iter()
            .filter(|(name, _)| !about_code.contains(&name.as_c_str()));
        let last = all.iter().rev();
        let mut said = last.filter(|(name, _)| name.as_c_str() == c"synchronous_commit");
        let known = Known {
            since,
            requires_standby: said
                .next()
                .map(|(_, value)| requires_standby(value.to_bytes())),
            plain: plain.cloned().collect(),
            all: all.into(),
        };
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.insert(role, known);
    }
}

impl Known {
    fn of(&self, user_code: bool) -> Settings {
        Rc::clone(match user_code {
            true => &self.all,
            false => &self.plain,
        })
    }
}

/// Reads a role's settings. The settings for this database come last, because they override the settings for all
/// databases.
fn read(role: Oid) -> Vec<(CString, CString)> {
    query_once(
        c"SELECT u.setting
            FROM pg_catalog.pg_db_role_setting AS s, pg_catalog.unnest(s.setconfig) AS u (setting)
           WHERE s.setrole OPERATOR(pg_catalog.=) $1
             AND (s.setdatabase OPERATOR(pg_catalog.=) 0 OR s.setdatabase OPERATOR(pg_catalog.=)
                  (SELECT d.oid FROM pg_catalog.pg_database AS d
                    WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()))
           ORDER BY s.setdatabase OPERATOR(pg_catalog.<>) 0",
        &[pg_sys::OIDOID],
        &[Typed::oid(role)],
        |output: &Output| {
            let rows = (0..output.rows()).filter_map(|row| output.text(row, 0));
            rows.filter_map(|row| pair(row.bytes())).collect()
        },
    )
}

/// Returns whether a value of synchronous_commit requires a standby.
fn requires_standby(value: &[u8]) -> bool {
    let not = ["local", "off", "false", "no", "0"];
    !not.iter()
        .any(|one| value.eq_ignore_ascii_case(one.as_bytes()))
}

fn pair(setting: &[u8]) -> Option<(CString, CString)> {
    let middle = setting.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (setting.get(..middle)?, setting.get(middle + 1..)?);
    let counts = NAMES.iter().any(|one| one.as_bytes() == name);
    counts
        .then(|| Some((CString::new(name).ok()?, CString::new(value).ok()?)))
        .flatten()
}
