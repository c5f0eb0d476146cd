//! Which products are asked for, and the database that knows them.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::Semaphore;

/// Products that do not exist: ids from 10,001 on. The published load does not say how many there are.
const ABSENT: u64 = 1_000;
const PRODUCTS: u64 = 10_000;

/// The law of the load: 80 % to products 1-50, 15 % to 51-500, 4 % to 501-5,000, 1 % to none.
pub struct Visits(u64);

impl Visits {
    pub fn seeded(number: u64) -> Visits {
        Visits((number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub fn next_product(&mut self) -> u64 {
        let (chance, place) = (self.random() % 100, self.random());
        match chance {
            0..80 => 1 + place % 50,
            80..95 => 51 + place % 450,
            95..99 => 501 + place % 4_500,
            _ => PRODUCTS + 1 + place % ABSENT,
        }
    }

    /// xorshift64*.
    fn random(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }
}

/// What the database says of a product.
pub fn product(id: u64) -> Option<String> {
    (id <= PRODUCTS).then(|| format!("product {id}"))
}

/// A pool of connections, each busy for a while with a query.
pub struct Backend {
    pool: Semaphore,
    size: usize,
    latency: Duration,
    queries: Cell<u64>,
    most: Cell<usize>,
}

impl Backend {
    pub fn new(size: usize, latency: Duration) -> Backend {
        Backend { pool: Semaphore::new(size), size, latency, queries: Cell::new(0), most: Cell::new(0) }
    }

    /// Waits for a connection.
    pub async fn load(&self, id: u64) -> Option<String> {
        let _connection = self.pool.acquire().await;
        self.query(id).await
    }

    /// Nothing when no connection is free.
    pub async fn load_if_free(&self, id: u64) -> Option<Option<String>> {
        let _connection = self.pool.try_acquire().ok()?;
        Some(self.query(id).await)
    }

    async fn query(&self, id: u64) -> Option<String> {
        self.queries.set(self.queries.get() + 1);
        self.most.set(self.most.get().max(self.size - self.pool.available_permits()));
        tokio::time::sleep(self.latency).await;
        product(id)
    }

    pub fn queries(&self) -> u64 {
        self.queries.get()
    }

    pub fn most_at_once(&self) -> usize {
        self.most.get()
    }
}
