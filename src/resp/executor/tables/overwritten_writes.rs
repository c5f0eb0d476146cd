//! Examines an EXEC on a table before its first command: which writes a later write overwrites, and whether the
//! remaining writes are too many.
//!
//! Postgres keeps each version of a row until the transaction ends, and goes through all versions to find the newest.
//! So the time for n writes of one key grows with n squared.

use std::collections::HashMap;

use pgcache_resp::{Args, Command, Condition, Expiry, Kind, Parsed, Set, flag};
use xxhash_rust::xxh3::xxh3_64;

use crate::cache::entries::store::{Store, Value};
use crate::cache::entries::table::Rows;
use crate::guc;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::memory::scratch::Scratch;
use crate::resp::commands::budget::Budget;
use crate::resp::commands::command_error::{CommandError, Done};
use crate::resp::commands::entry_access::Call;
use crate::resp::executor::tables::open_table::Table;

/// The maximum number of changes that an EXEC may make to one key. Overwritten changes do not count.
const MOST_CHANGES: u32 = 4096;
/// The number of commands up to which an EXEC is not examined.
pub const FEW: u32 = 64;

/// The SETs of an EXEC that are not run, because a later SET overwrites the value before any command reads it. These
/// SETs are valid, so they get the same reply as if they had run.
#[derive(Default)]
pub struct Plan {
    overwritten: Vec<bool>,
}

impl Plan {
    pub fn skips(&self, number: usize) -> bool {
        self.overwritten.get(number).copied().unwrap_or(false)
    }
}

/// Plans an EXEC of more than `FEW` requests. Fails if the EXEC changes a key too often, or if its writes cost too
/// much.
pub fn plan<'a, 'r>(
    table: &Table,
    requests: impl Iterator<Item = Args<'r>>,
    scratch: &mut Scratch,
) -> Done<'a, Plan> {
    let mut plan = Plan::default();
    let call = table.call();
    let calls = [(0, table.call())];
    let mut budget = Budget::new(&calls, 0, guc::resp::max_request());
    let mut keys = Keys::default();
    // Triggers and policies must see each change, so no write is left out if the table has any.
    let merges = !table.runs_user_code() && call.needs(Privileges::WRITE).is_ok();
    for args in requests {
        let number = plan.overwritten.len();
        plan.overwritten.push(false);
        let Ok(command) = Parsed::read(args) else {
            continue;
        };
        if command.kind() == Kind::Write {
            scratch.run(|| budget.add(&command))?;
        }
        let former = match &command.command {
            Command::Set(set) if is_plain(set) => {
                match scratch.run(|| spelled(&call, set)) {
                    Ok(key) => keys.set(key, number, merges)?,
                    Err(_) => None, // the command changes nothing and replies with its error
                }
            }
            _ => {
                scratch.run(|| keys.note(table, &command))?;
                None
            }
        };
        if let Some(overwritten) = former.and_then(|at: usize| plan.overwritten.get_mut(at)) {
            *overwritten = true;
        }
    }
    Ok(plan)
}

fn is_plain(set: &Set<'_>) -> bool {
    matches!(set.condition, Condition::Always)
        && matches!(set.expiry, Expiry::Unsaid | Expiry::At(_))
        && !set.get
}

/// Returns the hash of a SET's key. Fails if a part of the SET is invalid.
fn spelled<'a>(call: &Call<'_, Rows<'_>>, set: &Set<'a>) -> Done<'a, u64> {
    let entries = call.to_write(Privileges::WRITE)?;
    call.check_key(set.key)?;
    call.deadline_of(&set.expiry, None, set.command)?;
    let key = entries.key(set.key);
    entries.new_key(&key)?;
    entries.stored(&Value::Spelled(set.value))?;
    Ok(xxh3_64(entries.spelled(&key).unwrap_or_default()))
}

/// The keys of the commands examined so far, by their hashes.
#[derive(Default)]
struct Keys {
    /// The last SET of each key, if no command has read it since.
    sets: HashMap<u64, usize>,
    changes: HashMap<u64, u32>,
}

impl Keys {
    /// Notes a SET. Returns the earlier SET that it overwrites.
    fn set<'a>(&mut self, key: u64, number: usize, merges: bool) -> Done<'a, Option<usize>> {
        match self.sets.insert(key, number).filter(|_| merges) {
            None => self.change(key).map(|()| None),
            former => Ok(former),
        }
    }

    /// Notes any other command.
    fn note<'a>(&mut self, table: &Table, command: &Parsed<'_>) -> Done<'a> {
        let entry = command.entry;
        if entry.kind == Kind::Long || entry.flags & flag::MOVABLEKEYS != 0 {
            self.sets.clear();
            return Ok(());
        }
        for key in entry.keys(command.args) {
            let entries = table.rows();
            let key = entries.key(key);
            let hash = xxh3_64(entries.spelled(&key).unwrap_or_default());
            self.sets.remove(&hash);
            if command.kind() == Kind::Write {
                self.change(hash)?;
            }
        }
        Ok(())
    }

    fn change<'a>(&mut self, key: u64) -> Done<'a> {
        let changes = self.changes.entry(key).or_default();
        *changes += 1;
        match *changes > MOST_CHANGES {
            true => Err(CommandError::TooManyChanges),
            false => Ok(()),
        }
    }
}
