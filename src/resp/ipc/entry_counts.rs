//! The tallies of tables that a network process keeps for INFO.
//!
//! Guards that a table is read at most once per [`FRESH`] for a network process, however often clients send INFO.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use pgrx::pg_sys::Oid;

use crate::cache::table::entry_count::Tally;
use crate::pg::resp::catalog_requests::RequestQueue;
use crate::resp::ipc::request::{CatalogRequest, CatalogResponse};

/// How long a tally counts.
const FRESH: Duration = Duration::from_secs(1);
/// Tickets of these questions have this bit and neither of those of decisions and powers.
const TICKET: u64 = 1 << 61;

/// The tally of one table.
#[derive(Default)]
struct Known {
    tally: Option<Tally>,
    /// When it was last asked for.
    since: Option<Instant>,
    waiting: Option<Vec<u64>>,
}

/// The tallies that a network process keeps, by table.
#[derive(Default)]
pub struct Tallies(HashMap<u32, Known>);

impl Tallies {
    /// Takes an answer; returns the clients that wait for it. None: the ticket is of another question.
    pub fn answered(&mut self, ticket: u64, answer: &CatalogResponse) -> Option<Vec<u64>> {
        if ticket & !u64::from(u32::MAX) != TICKET {
            return None;
        }
        let Some(known) = self.0.get_mut(&(ticket as u32)) else {
            return Some(Vec::new());
        };
        if let CatalogResponse::Tallied(tally) = answer {
            known.tally = Some(*tally);
        }
        Some(known.waiting.take().unwrap_or_default())
    }

    /// Asks for the tally of a table if the last one is too old; returns whether the client is to wait for it.
    pub fn refresh(
        &mut self,
        queue: &RequestQueue<CatalogRequest, CatalogResponse>,
        network: usize,
        relation: Oid,
        client: u64,
    ) -> bool {
        let number = relation.to_u32();
        let now = Instant::now();
        let old = |known: &Known| known.since.is_none_or(|since| since + FRESH <= now);
        if !self.0.contains_key(&number) {
            // Forgets tables that are gone, with all others that no client has asked about since.
            self.0
                .retain(|_, known| !old(known) || known.waiting.is_some());
        }
        let known = self.0.entry(number).or_default();
        if let Some(waiting) = &mut known.waiting {
            if !waiting.contains(&client) {
                waiting.push(client);
            }
            return true;
        }
        let question = CatalogRequest::Tally { relation };
        let ticket = TICKET | u64::from(number);
        if !old(known) || !queue.ask(network, ticket, question.is_slow(), question) {
            return false;
        }
        known.since = Some(now);
        known.waiting = Some(vec![client]);
        true
    }

    /// The last tally of a table.
    pub fn last(&self, relation: Oid) -> Option<Tally> {
        self.0.get(&relation.to_u32())?.tally
    }
}
