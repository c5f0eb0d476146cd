//! Servers with the hot tier, and checks of the tier that hold while no session is committing.

use std::thread::sleep;
use std::time::{Duration, Instant};

use postgres::Client;

use crate::ask::Ask;
use crate::cluster::Cluster;
use crate::wait::wait_until;

/// The setting that enables the tier.
pub const PRELOAD: &str = "shared_preload_libraries = 'pgcache'";

impl Cluster {
    /// Returns a server with the hot tier. All calls of a test return the same server.
    pub fn hot() -> &'static Cluster {
        Cluster::hot_with(&["wal_level = logical"])
    }

    /// Returns a server with the hot tier and these lines in its configuration. All calls of a test with the same lines
    /// return the same server.
    pub fn hot_with(conf: &[&str]) -> &'static Cluster {
        Cluster::with(&[&[PRELOAD], conf].concat())
    }

    /// Returns a server with the tier and these lines in its configuration, a different server at each call.
    pub fn with_tier(conf: &[&str]) -> &'static Cluster {
        Cluster::start(&[&[PRELOAD], conf].concat())
    }
}

/// Methods of a session that read the tier's state and check it.
pub trait Tiered {
    /// Reads a key until the tier has served its copy. Returns the value.
    fn heat(&mut self, key: &str, cache: &str) -> Option<String>;

    /// Checks that `cache_get` and SELECT agree on a key, and returns the value. Repeats the check, so that the reads
    /// include fills and hits.
    fn agrees(&mut self, key: &str, cache: &str) -> Option<String>;

    fn hot_hits(&mut self, cache: &str) -> i64;

    /// Checks that no copy differs from its row.
    fn verified(&mut self, cache: &str);

    /// Checks that every byte of the tier is accounted for.
    fn sums_up(&mut self);

    /// Prepares this many transactions in a cache. Each transaction takes one piece of the pool for the keys of
    /// prepared transactions.
    fn use_up_room(&mut self, cache: &str, pieces: usize);

    /// Rolls back the transactions of `use_up_room`.
    fn give_room_back(&mut self, pieces: usize);

    /// Checks that no mark remains. Valid only while no other test writes.
    fn nothing_pending(&mut self);
}

impl Tiered for Client {
    fn heat(&mut self, key: &str, cache: &str) -> Option<String> {
        let before = self.hot_hits(cache);
        let get = format!("SELECT cache_get('{key}', '{cache}')");
        let said = self.value(&get);
        // pgcache makes no copy while autovacuum works on the table.
        wait_until(&format!("{key} in {cache} is hot"), || {
            assert_eq!(self.value(&get), said, "{key} in {cache}");
            self.hot_hits(cache) > before
        });
        said
    }

    fn agrees(&mut self, key: &str, cache: &str) -> Option<String> {
        let row = self.value(&format!(
            "SELECT value FROM ONLY {cache} WHERE key = '{key}' \
             AND (expires_at IS NULL OR expires_at > clock_timestamp())"
        ));
        for _ in 0..3 {
            let said = self.value(&format!("SELECT cache_get('{key}', '{cache}')"));
            assert_eq!(said, row, "cache_get and SELECT of {key} in {cache}");
        }
        self.verified(cache);
        row
    }

    fn hot_hits(&mut self, cache: &str) -> i64 {
        self.number(&format!(
            "SELECT hot_hits FROM pgcache.stats WHERE cache = '{cache}'::regclass"
        ))
    }

    fn verified(&mut self, cache: &str) {
        let differences = self.lines(&format!("SELECT * FROM pgcache.verify('{cache}')"));
        assert_eq!(differences, Vec::<String>::new(), "copies in {cache}");
    }

    fn sums_up(&mut self) {
        let tier = self.text(
            "SELECT CASE WHEN size - used = free AND bookkeeping > 0 AND holes >= 0 AND free >= 0 \
             AND used >= bookkeeping + holes THEN 'sums up' ELSE t::text END FROM pgcache.hot_tier t",
        );
        assert_eq!(tier, "sums up");
    }

    fn use_up_room(&mut self, cache: &str, pieces: usize) {
        for piece in 0..pieces {
            // This is one key more than a record holds without a piece of the pool.
            self.run(&format!(
                "BEGIN; SELECT cache_delete('room {piece} ' || g, '{cache}') FROM generate_series(1, 17) AS g; \
                 PREPARE TRANSACTION 'room{piece}'"
            ));
        }
    }

    fn give_room_back(&mut self, pieces: usize) {
        for piece in 0..pieces {
            self.run(&format!("ROLLBACK PREPARED 'room{piece}'"));
        }
    }

    /// Waits until no mark is left. A client receives an error before its backend has aborted the transaction, so a
    /// mark may remain for a moment. A mark that stays is a defect.
    fn nothing_pending(&mut self) {
        let patience = Instant::now() + Duration::from_secs(60);
        let mut pending = || self.number("SELECT pending FROM pgcache.hot_tier");
        while pending() != 0 {
            assert!(Instant::now() < patience, "{} marks stay", pending());
            sleep(Duration::from_millis(5));
        }
    }
}
