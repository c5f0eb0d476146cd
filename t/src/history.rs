//! Checks a history of reads and writes: whether readers saw only committed values that were current.
//!
//! A history is a list of writes and a list of reads on one clock. Every write has a unique version. The versions of
//! one key increase in the order of its commits, because each writer holds a lock on the key. The checker is
//! independent of Postgres and pgcache, so it can check any cache.

use std::collections::HashMap;

/// A moment on the clock that all sessions of a history share, in nanoseconds.
pub type Moment = u64;

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The commit was acknowledged at this moment.
    Committed(Moment),
    RolledBack,
    /// The session broke before the acknowledgement, so either outcome is possible.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    pub key: u64,
    pub version: u64,
    /// Whether the write is a delete, after which no entry exists.
    pub removes: bool,
    pub began: Moment,
    pub fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    pub key: u64,
    pub began: Moment,
    pub ended: Moment,
    /// The version that was read, or None for a miss.
    pub saw: Option<u64>,
    /// The transaction whose only snapshot the read used, if any. The read counts as made when the snapshot was taken,
    /// even if it ran much later.
    pub snapshot: Option<u64>,
}

/// A result that shows that the server is wrong, because no reader may ever see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// A value that no session has written, or a value whose write began after the read had ended.
    FromNowhere(Read),
    /// A value whose transaction or savepoint was rolled back.
    RolledBack(Read),
    /// A version older than the version `than`, which was acknowledged or read before this read began.
    Older { read: Read, than: u64 },
    /// A value that differs from an earlier read of the key in the same transaction with the same snapshot.
    Changed { read: Read, from: Option<u64> },
    /// An entry that remains after all sessions have ended, although it is not the last committed version.
    Left { key: u64, version: u64 },
}

/// The version of each key before its first write: no entry.
const BEGINNING: u64 = 0;

/// Checks every read against every write of its key.
pub fn check(writes: &[Write], reads: &[Read]) -> Result<(), Violation> {
    let mut keys: HashMap<u64, (Vec<Write>, Vec<Read>)> = HashMap::new();
    for write in writes {
        keys.entry(write.key).or_default().0.push(*write);
    }
    for read in reads {
        keys.entry(read.key).or_default().1.push(*read);
    }
    keys.into_values()
        .try_for_each(|(writes, reads)| check_key(&writes, reads))
}

/// Checks the final state: each key has no entry, or the last committed version. A write whose session broke during its
/// commit may or may not be the last write.
pub fn check_quiet(writes: &[Write], left: &[(u64, u64)]) -> Result<(), Violation> {
    let is_last = |key: u64, version: u64| {
        let known = writes
            .iter()
            .find(|write| (write.key, write.version) == (key, version));
        known.is_some_and(|write| write.fate != Fate::RolledBack)
            && !writes
                .iter()
                .any(|write| write.key == key && write.version > version && commit(write).is_some())
    };
    let stale = left.iter().find(|&&(key, version)| !is_last(key, version));
    stale.map_or(Ok(()), |&(key, version)| {
        Err(Violation::Left { key, version })
    })
}

/// Checks the reads of a key in the order in which they ended, in which a read that ended before another began also
/// comes before it.
fn check_key(writes: &[Write], mut reads: Vec<Read>) -> Result<(), Violation> {
    check_snapshots(&reads)?;
    let key = Key::new(writes);
    let mut seen = Floor::default();
    reads.sort_by_key(|read| read.ended);
    for read in &reads {
        let than = key
            .acknowledged
            .before(read.began)
            .max(seen.before(read.began));
        let version = key.earliest(read, than)?;
        seen.raise(read.ended, version);
    }
    Ok(())
}

/// Checks that all reads of one key with one snapshot see the same version. The reads are in the order in which they
/// were made.
fn check_snapshots(reads: &[Read]) -> Result<(), Violation> {
    let mut shown = HashMap::new();
    for read in reads {
        let Some(snapshot) = read.snapshot else {
            continue;
        };
        let from = *shown.entry(snapshot).or_insert(read.saw);
        if from != read.saw {
            return Err(Violation::Changed { read: *read, from });
        }
    }
    Ok(())
}

/// The writes of one key, indexed for lookups.
struct Key {
    by_version: HashMap<u64, Write>,
    /// The deletes that may have happened, by version, and the empty beginning.
    removals: Vec<(u64, Moment)>,
    acknowledged: Floor,
}

impl Key {
    fn new(writes: &[Write]) -> Key {
        let mut removals = vec![(BEGINNING, 0)];
        removals.extend(
            writes
                .iter()
                .filter(|write| write.removes && write.fate != Fate::RolledBack)
                .map(|write| (write.version, write.began)),
        );
        removals.sort_unstable();
        let mut commits: Vec<(Moment, u64)> = writes.iter().filter_map(commit).collect();
        commits.sort_unstable();
        let mut acknowledged = Floor::default();
        for (at, version) in commits {
            acknowledged.raise(at, version);
        }
        Key {
            by_version: writes.iter().map(|write| (write.version, *write)).collect(),
            removals,
            acknowledged,
        }
    }

    /// Returns the earliest version from `than` on that matches the result of the read.
    fn earliest(&self, read: &Read, than: u64) -> Result<u64, Violation> {
        let Some(version) = read.saw else {
            return self
                .removals
                .iter()
                .find(|(version, began)| *version >= than && *began <= read.ended)
                .map(|(version, _)| *version)
                .ok_or(Violation::Older { read: *read, than });
        };
        match self.by_version.get(&version) {
            None => Err(Violation::FromNowhere(*read)),
            Some(write) if write.removes || write.began > read.ended => {
                Err(Violation::FromNowhere(*read))
            }
            Some(write) if write.fate == Fate::RolledBack => Err(Violation::RolledBack(*read)),
            Some(_) if version < than => Err(Violation::Older { read: *read, than }),
            Some(_) => Ok(version),
        }
    }
}

fn commit(write: &Write) -> Option<(Moment, u64)> {
    match write.fate {
        Fate::Committed(at) => Some((at, write.version)),
        _ => None,
    }
}

/// The highest version known at each moment, raised in the order of time.
#[derive(Default)]
struct Floor(Vec<(Moment, u64)>);

impl Floor {
    fn raise(&mut self, at: Moment, version: u64) {
        let highest = self.0.last().map_or(BEGINNING, |last| last.1);
        self.0.push((at, highest.max(version)));
    }

    fn before(&self, moment: Moment) -> u64 {
        let known = self.0.partition_point(|(at, _)| *at < moment);
        known.checked_sub(1).map_or(BEGINNING, |i| self.0[i].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(version: u64, began: Moment, fate: Fate) -> Write {
        Write {
            key: 1,
            version,
            removes: false,
            began,
            fate,
        }
    }

    fn removal(version: u64, began: Moment, fate: Fate) -> Write {
        Write {
            removes: true,
            ..write(version, began, fate)
        }
    }

    fn read(began: Moment, ended: Moment, saw: Option<u64>) -> Read {
        Read {
            key: 1,
            began,
            ended,
            saw,
            snapshot: None,
        }
    }

    fn two_commits() -> [Write; 2] {
        [
            write(1, 0, Fate::Committed(10)),
            write(2, 20, Fate::Committed(30)),
        ]
    }

    #[test]
    fn a_read_during_a_commit_may_see_either_side_of_it() {
        for saw in [1, 2] {
            assert_eq!(check(&two_commits(), &[read(25, 28, Some(saw))]), Ok(()));
        }
        assert_eq!(
            check(&two_commits(), &[read(5, 6, None), read(5, 6, Some(1))]),
            Ok(())
        );
    }

    #[test]
    fn an_older_value_after_an_acknowledged_commit_is_caught() {
        let stale = read(31, 32, Some(1));
        let found = check(&two_commits(), &[stale]);
        assert_eq!(
            found,
            Err(Violation::Older {
                read: stale,
                than: 2
            })
        );
    }

    #[test]
    fn an_older_value_after_a_newer_one_was_read_is_caught() {
        let (newer, older) = (read(21, 22, Some(2)), read(23, 24, Some(1)));
        let found = check(&two_commits(), &[older, newer]);
        assert_eq!(
            found,
            Err(Violation::Older {
                read: older,
                than: 2
            })
        );
    }

    #[test]
    fn overlapping_reads_may_disagree() {
        let reads = [read(21, 26, Some(2)), read(22, 25, Some(1))];
        assert_eq!(check(&two_commits(), &reads), Ok(()));
    }

    #[test]
    fn a_miss_after_an_acknowledged_value_is_caught_unless_a_delete_may_have_come() {
        let miss = read(40, 41, None);
        assert!(check(&two_commits(), &[miss]).is_err());
        for fate in [Fate::Committed(50), Fate::Unknown] {
            let writes = [two_commits().as_slice(), &[removal(3, 39, fate)]].concat();
            assert_eq!(check(&writes, &[miss]), Ok(()));
        }
        let undone = [
            two_commits().as_slice(),
            &[removal(3, 39, Fate::RolledBack)],
        ]
        .concat();
        assert!(check(&undone, &[miss]).is_err());
    }

    #[test]
    fn a_value_from_before_an_acknowledged_delete_is_caught() {
        let writes = [
            two_commits().as_slice(),
            &[removal(3, 35, Fate::Committed(40))],
        ]
        .concat();
        let back = read(41, 42, Some(2));
        assert_eq!(
            check(&writes, &[back]),
            Err(Violation::Older {
                read: back,
                than: 3
            })
        );
    }

    #[test]
    fn a_rolled_back_value_is_caught_and_one_of_unknown_fate_is_not() {
        let seen = read(5, 6, Some(1));
        let caught = check(&[write(1, 0, Fate::RolledBack)], &[seen]);
        assert_eq!(caught, Err(Violation::RolledBack(seen)));
        assert_eq!(check(&[write(1, 0, Fate::Unknown)], &[seen]), Ok(()));
    }

    #[test]
    fn a_value_that_no_client_has_written_yet_is_caught() {
        for writes in [vec![], vec![write(7, 9, Fate::Committed(10))]] {
            let early = read(5, 6, Some(7));
            assert_eq!(check(&writes, &[early]), Err(Violation::FromNowhere(early)));
        }
    }

    #[test]
    fn two_values_with_one_snapshot_are_caught() {
        let with = |saw| Read {
            snapshot: Some(7),
            ..read(20, 30, saw)
        };
        assert_eq!(
            check(&two_commits(), &[with(Some(1)), with(Some(1))]),
            Ok(())
        );
        let changed = with(Some(2));
        assert_eq!(
            check(&two_commits(), &[with(Some(1)), changed]),
            Err(Violation::Changed {
                read: changed,
                from: Some(1)
            })
        );
    }

    #[test]
    fn the_final_value_must_be_the_last_that_was_committed() {
        assert_eq!(check_quiet(&two_commits(), &[]), Ok(()));
        assert_eq!(check_quiet(&two_commits(), &[(1, 2)]), Ok(()));
        let (key, version) = (1, 1);
        let caught = Err(Violation::Left { key, version });
        assert_eq!(check_quiet(&two_commits(), &[(1, 1)]), caught);
        let undone = [
            write(1, 0, Fate::Committed(10)),
            write(2, 20, Fate::RolledBack),
        ];
        assert_eq!(check_quiet(&undone, &[(1, 1)]), Ok(()));
        assert!(check_quiet(&undone, &[(1, 2)]).is_err());
        let unknown = [
            write(1, 0, Fate::Committed(10)),
            write(2, 20, Fate::Unknown),
        ];
        for version in [1, 2] {
            assert_eq!(check_quiet(&unknown, &[(1, version)]), Ok(()));
        }
    }

    #[test]
    fn keys_do_not_vouch_for_each_other() {
        let other = Read {
            key: 2,
            ..read(31, 32, Some(1))
        };
        assert_eq!(
            check(&two_commits(), &[other]),
            Err(Violation::FromNowhere(other))
        );
    }
}
