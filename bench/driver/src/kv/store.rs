//! The trait of the operations that the loads of a key-value store need, and its implementation for pgcache.

use std::time::Duration;

use crate::Result;
use crate::postgres::{Parameters, Session};

pub type Entries = Vec<(String, String)>;

/// One connection of one client, the only interface between a load and a store.
pub trait Store {
    fn put(&mut self, key: &str, value: &str) -> Result<()>;
    fn get(&mut self, key: &str) -> Result<Option<String>>;
    /// Returns the entries whose keys begin with `prefix`, in key order.
    fn scan(&mut self, prefix: &str, most: u32) -> Result<Entries>;
    fn delete(&mut self, key: &str) -> Result<()>;
    /// Puts all entries or none.
    fn put_all(&mut self, entries: &[(String, String)]) -> Result<()>;
    /// Watches a prefix, so that `changed` returns every later change of a key with the prefix.
    fn watch(&mut self, prefix: &str, patience: Duration) -> Result<()>;
    /// Returns keys that changed, possibly also keys outside the watched prefix.
    fn changed(&mut self) -> Result<Vec<String>>;
}

pub struct Pgcache(Session);

impl Pgcache {
    pub fn open(address: &str) -> Result<Self> {
        let statements = [
            ("set", "SELECT cache_set($1, $2, cache => 'kv')"),
            ("get", "SELECT cache_get($1, 'kv')"),
            ("scan", "SELECT key, value FROM cache_scan($1, max_rows => $2, cache => 'kv')"),
            ("delete", "SELECT cache_delete($1, 'kv')"),
            ("begin", "BEGIN"),
            ("commit", "COMMIT"),
            ("watch", "SELECT cache_watch('kv')"),
        ];
        Ok(Pgcache(Session::open(address, "bench", &statements)?))
    }
}

impl Store for Pgcache {
    fn put(&mut self, key: &str, value: &str) -> Result<()> {
        self.0.call("set", &[Some(key.as_bytes()), Some(value.as_bytes())]).map(drop)
    }

    fn get(&mut self, key: &str) -> Result<Option<String>> {
        self.0.one("get", &[Some(key.as_bytes())])
    }

    fn scan(&mut self, prefix: &str, most: u32) -> Result<Entries> {
        let rows = self.0.call("scan", &[Some(prefix.as_bytes()), Some(most.to_string().as_bytes())])?;
        let entry = |row: Vec<Option<String>>| <[_; 2]>::try_from(row).ok().map(|[k, v]| Some((k?, v?)));
        Ok(rows.into_iter().filter_map(|row| entry(row).flatten()).collect())
    }

    fn delete(&mut self, key: &str) -> Result<()> {
        self.0.call("delete", &[Some(key.as_bytes())]).map(drop)
    }

    /// Puts all entries in one round trip, as etcd's transaction does.
    fn put_all(&mut self, entries: &[(String, String)]) -> Result<()> {
        let pairs: Vec<_> =
            entries.iter().map(|(key, value)| [Some(key.as_bytes()), Some(value.as_bytes())]).collect();
        let mut calls: Vec<(&str, Parameters)> = vec![("begin", &[])];
        calls.extend(pairs.iter().map(|pair| ("set", &pair[..])));
        calls.push(("commit", &[]));
        self.0.batch(&calls).map(drop)
    }

    /// A cache has one channel, so each watcher receives every change and selects its own keys.
    fn watch(&mut self, _prefix: &str, patience: Duration) -> Result<()> {
        let channel = self.0.one("watch", &[])?.ok_or("cache_watch gave no channel")?;
        self.0.stream().set_read_timeout(Some(patience))?;
        self.0.simple(&format!("LISTEN \"{channel}\"")).map(drop)
    }

    fn changed(&mut self) -> Result<Vec<String>> {
        Ok(key_of(&self.0.notification()?).into_iter().collect())
    }
}

/// Returns the key in `{"op": "set", "key": "watch:001:0001"}`. The loads' keys need no escapes.
fn key_of(payload: &str) -> Option<String> {
    let rest = payload.split_once("\"key\"")?.1;
    rest.split('"').nth(1).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_gives_its_key() {
        assert_eq!(key_of("{\"op\": \"set\", \"key\": \"watch:001:0001\"}"), Some("watch:001:0001".into()));
        assert_eq!(key_of("{\"op\": \"clear\", \"key\": null}"), None);
    }
}
