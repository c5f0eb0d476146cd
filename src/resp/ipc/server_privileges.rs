//! What a client's role may do besides its commands on entries: see all clients, end those of others,
//! set the figures back. A back knows; a front keeps what it has said for as long as no message about
//! roles comes.

use std::collections::HashMap;

use pgrx::pg_sys::Oid;

use crate::pg::catalog::invalidation::Roles;
use crate::pg::resp::catalog_requests::Queue;
use crate::resp::auth::Powers;
use crate::resp::ipc::permission_cache::Undecided;
use crate::resp::ipc::request::{Answer, Question};

/// Tickets of these questions have this bit; those of clients and of decisions have not.
pub const TICKET: u64 = 1 << 62;

enum Known {
    /// Asked for; who waits.
    Asked(Roles, Vec<u64>),
    Said(Roles, Powers),
    /// The back has failed: said once.
    Failed,
}

/// What a front knows, by role.
#[derive(Default)]
pub struct AllPowers(HashMap<u32, Known>);

impl AllPowers {
    /// Takes an answer; who is to go on. None: the ticket is of another question.
    pub fn answered(&mut self, ticket: u64, answer: &Answer) -> Option<Vec<u64>> {
        if ticket & !u64::from(u32::MAX) != TICKET {
            return None;
        }
        let role = ticket as u32;
        let Some(Known::Asked(since, waiting)) = self.0.remove(&role) else {
            return Some(Vec::new());
        };
        match answer {
            // What was said before a change counts no more: those who wait ask again.
            Answer::Powers(_) if since != Roles::now() => {}
            Answer::Powers(powers) => {
                self.0.insert(role, Known::Said(since, *powers));
            }
            _ => {
                self.0.insert(role, Known::Failed);
            }
        }
        Some(waiting)
    }
}

impl AllPowers {
    /// The powers of a role; otherwise the client is told when they are known.
    pub fn look_up(
        &mut self,
        queue: &Queue<Question, Answer>,
        front: usize,
        role: Oid,
        client: u64,
    ) -> Result<Powers, Undecided> {
        let number = role.to_u32();
        match self.0.get_mut(&number) {
            Some(Known::Said(since, powers)) if *since == Roles::now() => return Ok(*powers),
            Some(Known::Asked(_, waiting)) => {
                if !waiting.contains(&client) {
                    waiting.push(client);
                }
                return Err(Undecided::Asked);
            }
            Some(Known::Failed) => {
                self.0.remove(&number);
                return Ok(Powers::default());
            }
            _ => {}
        }
        let question = Question::Powers { role };
        let ticket = TICKET | u64::from(number);
        if !queue.ask(front, ticket, question.is_slow(), question) {
            return Err(Undecided::NoPlace);
        }
        // Roles that are gone are forgotten together with the others that are no longer true.
        let now = Roles::now();
        let keep = |known: &mut Known| !matches!(known, Known::Said(since, _) if *since != now);
        self.0.retain(|_, known| keep(known));
        self.0.insert(number, Known::Asked(now, vec![client]));
        Err(Undecided::Asked)
    }
}
