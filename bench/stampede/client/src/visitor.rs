//! One visitor: a connection that asks for one product after the other.

use std::rc::Rc;
use std::time::Instant;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Error, NoTls, Statement};

use crate::visits::{Backend, Visits, product};

/// How a miss is dealt with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// cache_get, then cache_lease: one visitor loads, others wait or take the stale value.
    Lease,
    /// cache_fetch with a loader in the server.
    Fetch,
    /// cache_get, then everybody loads.
    None,
}

impl Mode {
    pub fn named(name: &str) -> Result<Mode, String> {
        match name {
            "lease" => Ok(Mode::Lease),
            "fetch" => Ok(Mode::Fetch),
            "none" => Ok(Mode::None),
            _ => Err(format!("unknown mode {name}")),
        }
    }
}

#[derive(Default)]
pub struct Counts {
    pub requests: u64,
    pub stale: u64,
    pub errors: u64,
    /// Answers that are not what the database says.
    pub wrong: u64,
    pub first_error: String,
    pub micros: Vec<u32>,
}

impl Counts {
    pub fn add(&mut self, mut other: Counts) {
        self.requests += other.requests;
        self.stale += other.stale;
        self.errors += other.errors;
        self.wrong += other.wrong;
        if self.first_error.is_empty() {
            self.first_error = other.first_error;
        }
        self.micros.append(&mut other.micros);
    }
}

pub struct Visitor {
    client: Client,
    get: Statement,
    lookup: Statement,
    lease: Statement,
    set_leased: Statement,
    release: Statement,
    set: Statement,
    fetch: Statement,
    mode: Mode,
    visits: Visits,
    backend: Rc<Backend>,
    counts: Counts,
}

impl Visitor {
    pub async fn connect(
        socket: &str,
        port: u16,
        mode: Mode,
        number: u64,
        backend: Rc<Backend>,
    ) -> Result<Visitor, String> {
        let mut config = Config::new();
        config.host_path(socket).port(port).user("postgres").dbname("postgres");
        let (client, connection) = config.connect(NoTls).await.map_err(|e| format!("{e:?}"))?;
        tokio::task::spawn_local(connection);
        Visitor::prepare(client, mode, number, backend).await.map_err(|e| format!("{e:?}"))
    }

    async fn prepare(
        client: Client,
        mode: Mode,
        number: u64,
        backend: Rc<Backend>,
    ) -> Result<Visitor, Error> {
        Ok(Visitor {
            get: client.prepare_typed("SELECT cache_get($1, 'products')", &[Type::TEXT]).await?,
            lookup: client.prepare_typed("SELECT found, value FROM cache_lookup($1, 'products')", &[Type::TEXT]).await?,
            lease: client
                .prepare_typed("SELECT value, state, lease FROM cache_lease($1, '10 seconds', 'products')", &[Type::TEXT])
                .await?,
            set_leased: client
                .prepare_typed(
                    "SELECT cache_set_leased($1, $2, $3, CASE WHEN $2 IS NULL THEN absent_ttl() END, 'products')",
                    &[Type::TEXT, Type::TEXT, Type::INT8],
                )
                .await?,
            release: client
                .prepare_typed("SELECT cache_release($1, $2, 'products')", &[Type::TEXT, Type::INT8])
                .await?,
            set: client
                .prepare_typed(
                    "SELECT cache_set($1, $2, CASE WHEN $2 IS NULL THEN absent_ttl() END, 'products')",
                    &[Type::TEXT, Type::TEXT],
                )
                .await?,
            fetch: client
                .prepare_typed("SELECT cache_fetch($1, 'SELECT load_product($1)', cache => 'products')", &[Type::TEXT])
                .await?,
            client,
            mode,
            visits: Visits::seeded(number),
            backend,
            counts: Counts::default(),
        })
    }

    pub async fn visit_until(mut self, end: Instant) -> Counts {
        let mut now = Instant::now();
        while now < end {
            let id = self.visits.next_product();
            match self.ask(id).await {
                Ok(answer) => self.counts.wrong += u64::from(answer != product(id)),
                Err(error) => {
                    self.counts.errors += 1;
                    self.counts.first_error = format!("{error:?}");
                }
            }
            let after = Instant::now();
            self.counts.requests += 1;
            self.counts.micros.push((after - now).as_micros() as u32);
            now = after;
        }
        self.counts
    }

    async fn ask(&mut self, id: u64) -> Result<Option<String>, Error> {
        let key = format!("p:{id}");
        if self.mode == Mode::Fetch {
            return Ok(self.client.query_one(&self.fetch, &[&key]).await?.get(0));
        }
        let hit: Option<String> = self.client.query_one(&self.get, &[&key]).await?.get(0);
        match hit {
            Some(hit) => Ok(Some(hit)),
            None if self.mode == Mode::Lease => self.ask_with_lease(id, &key).await,
            None => self.ask_without(id, &key).await,
        }
    }

    async fn ask_with_lease(&mut self, id: u64, key: &str) -> Result<Option<String>, Error> {
        let row = self.client.query_one(&self.lease, &[&key]).await?;
        let (value, state, lease): (Option<String>, &str, Option<i64>) = (row.get(0), row.get(1), row.get(2));
        match state {
            "hit" => return Ok(value),
            "stale" => {
                self.counts.stale += 1;
                return Ok(value);
            }
            _ => {}
        }
        // A stale value is there and the pool is busy: somebody else will refresh it, a moment later.
        let loaded = match value {
            Some(stale) => match self.backend.load_if_free(id).await {
                Some(loaded) => loaded,
                None => {
                    self.client.query_one(&self.release, &[&key, &lease]).await?;
                    self.counts.stale += 1;
                    return Ok(Some(stale));
                }
            },
            None => self.backend.load(id).await,
        };
        if state == "win" {
            let store: [&(dyn ToSql + Sync); 3] = [&key, &loaded, &lease];
            self.client.query_one(&self.set_leased, &store).await?;
        }
        Ok(loaded)
    }

    async fn ask_without(&mut self, id: u64, key: &str) -> Result<Option<String>, Error> {
        let row = self.client.query_one(&self.lookup, &[&key]).await?;
        if row.get(0) {
            return Ok(row.get(1));
        }
        let loaded = self.backend.load(id).await;
        self.client.query_one(&self.set, &[&key, &loaded]).await?;
        Ok(loaded)
    }
}
