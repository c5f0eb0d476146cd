//! Answers a call on one key of a distributed cache. The call runs on the table of the key's shard if the shard is on
//! this node; otherwise the call is sent to the node of the shard.

use std::rc::Rc;

use crate::cache::catalog::shard_metadata::Spread;
use crate::cache::distribute::distributed_call::{ATTEMPTS, Addressee, PAUSE, Request};
use crate::cache::distribute::{remote_fetch, two_phases};
use crate::error::Error;
use crate::pg::session::{lock, shard_lock, transaction, wait};
use crate::pg::value::call::Way;
use crate::pg::value::datum::Text;

/// Answers a call on one key. An invalid key is sent to any shard, so that the function itself raises the error.
pub fn answer(request: &Request, spread: Rc<Spread>, key: Option<Text>) -> Result<Way, Error> {
    let writes = !request.route.only_reads();
    if writes && request.sent.is_none() {
        // Keep the lock until the end of the transaction, so that no other session redefines the table before the end.
        // For a call from another node the sender's lock is enough, because a Citus statement that redefines the table
        // locks it on all nodes.
        lock::relation(request.cache, lock::Mode::Write);
    }
    let mut spread = request.present(spread)?;
    for attempt in 0..ATTEMPTS {
        let shard = match key {
            Some(key) => spread.shard(key),
            None => spread.any(),
        };
        // The sending node holds the lock that keeps the shard on its node. If this node waited for the lock as well,
        // it could wait for a move that waits for the sending node.
        let keeps = request.sent.is_none() || attempt > 0;
        if keeps {
            shard_lock::keep(shard.lock);
        }
        let leave = || {
            if keeps {
                shard_lock::leave(shard.lock);
            }
        };
        if spread.is_stale() {
            leave();
            spread = request.present(spread)?;
            continue;
        }
        if let Some(relation) = spread.table(&shard)? {
            if writes && request.sent.is_none() && transaction::is_writable() {
                let key = key.unwrap_or_else(|| spread.key_in(&shard));
                two_phases::wrote_here(&spread, key);
            }
            return Ok(Way::On {
                relation,
                place: request.route.cache,
                kept: (keeps && !writes).then_some(shard.lock),
            });
        }
        if request.sent.is_some() {
            leave();
            if attempt > 0 {
                return Ok(request.missed());
            }
            continue;
        }
        if remote_fetch::is_made_here(request) {
            leave();
            return remote_fetch::answer(request, &spread, key);
        }
        let key = key.unwrap_or_else(|| spread.key_in(&shard));
        if writes {
            two_phases::writes_elsewhere(&spread, &shard, key);
        }
        let mut arguments = request.printed();
        remote_fetch::patience(request, &mut arguments);
        if let Some(rows) = request.send(&spread, Addressee::of_key(shard.node), key, &arguments) {
            if !writes {
                leave();
            }
            return Ok(Way::Answered(request.call.give(&rows)));
        }
        leave();
        wait::sleep(PAUSE);
        spread = request.present(spread)?;
    }
    Err(request.no_node())
}
