//! Answers a call on several keys of a distributed cache, or on all of its entries, with one call for each shard, in
//! one transaction. Citus commits the transaction in two phases if more than one node has written.
//!
//! A transaction may have several connections to a node. No two of these connections have written the same shard. Citus
//! chooses the connection for a call by the call's key, so a call contains only keys of one shard. If no transaction
//! over nodes is open, a call may read all shards of a node at once. All callers visit nodes and shards in the same
//! order, so that two callers do not deadlock.

use std::ffi::CString;
use std::rc::Rc;

use pgrx::pg_sys::{self, Datum};

use crate::cache::catalog::shard_metadata::{self, Shard, Spread};
use crate::cache::distribute::calls::{self, Arguments};
use crate::cache::distribute::distributed_call::{ATTEMPTS, Addressee, Kind, PAUSE, Request};
use crate::cache::distribute::{single_shard, two_phases};
use crate::cache::model::ddl;
use crate::error::Error;
use crate::pg::catalog::relation;
use crate::pg::session::shard_lock::{self, Place};
use crate::pg::session::{lock, wait};
use crate::pg::value::call::{TextRow, Way};
use crate::pg::value::datum::{Text, Value, ValueType};

pub fn answer(request: &Request, spread: &Rc<Spread>) -> Result<Way, Error> {
    if let Kind::Clear = request.route.kind {
        return clear(request, spread);
    }
    let writes = !request.route.only_reads();
    if writes && request.sent.is_none() {
        lock::relation(request.cache, lock::Mode::Write);
    }
    let Some(named) = named(request) else {
        return to_any(request, spread); // the called function raises the error about the arguments
    };
    let mut spread = request.present(Rc::clone(spread))?;
    for attempt in 0..ATTEMPTS {
        let mut parts = parts(&spread, &named);
        if let (Some(sent), None) = (request.sent, &named) {
            let meant = spread.shard_of(sent.hash);
            parts.retain(|part| match sent.all {
                Some(_) => spread.is_here(&part.shard),
                None => part.shard == meant,
            });
        }
        let kept: Vec<Place> = match request.sent.is_some() && attempt == 0 {
            true => Vec::new(), // the sending node already holds the locks, as in `single_shard`
            false => parts.iter().map(|part| part.shard.lock).collect(),
        };
        kept.iter().for_each(|&shard| shard_lock::keep(shard));
        let leave = || kept.iter().for_each(|&shard| shard_lock::leave(shard));
        if spread.is_stale() {
            leave();
            spread = request.present(spread)?;
            continue;
        }
        let sum = request.sent.and_then(|sent| sent.all);
        let elsewhere = parts.iter().any(|part| !spread.is_here(&part.shard))
            || sum.is_some_and(|sum| sum != spread.sum_of_shards(spread.here));
        if request.sent.is_some() && elsewhere {
            leave();
            if attempt > 0 {
                return Ok(request.missed());
            }
            continue;
        }
        if request.reads_whole_nodes(&spread) {
            parts = by_node(parts, &spread);
        }
        let rows = Gathering {
            request,
            spread: &spread,
            named: &named,
        }
        .all(&parts)?;
        if !writes || rows.is_none() {
            leave();
        }
        if let Some(rows) = rows {
            return Ok(Way::Answered(request.call.give(&rows)));
        }
        wait::sleep(PAUSE);
        spread = request.present(spread)?;
    }
    Err(request.no_node())
}

/// Returns the keys that a call names, in their order; `Some(None)` for a call on all entries. Returns None if the
/// arguments are not valid lists, or if the lists are empty.
#[allow(clippy::option_option)]
fn named(request: &Request) -> Option<Option<NamedKeys>> {
    let call = request.call;
    let (keys, values) = match request.route.kind {
        Kind::ReadMany { keys } => (keys, None),
        Kind::WriteMany { keys, values } => (keys, values),
        _ => return Some(None),
    };
    let texts = call.texts(keys)?;
    let values = match values {
        None => None,
        Some(place) => {
            let of = match call.type_of(place) {
                pg_sys::BYTEAARRAYOID => ValueType::Bytes,
                _ => ValueType::Text,
            };
            let elements = call.elements(place, of)?;
            if elements.len() != texts.len() {
                return None;
            }
            Some((place, of, elements))
        }
    };
    (!texts.is_empty()).then_some(Some(NamedKeys {
        place: keys,
        texts,
        values,
    }))
}

struct NamedKeys {
    place: usize,
    texts: Vec<Text>,
    values: Option<(usize, ValueType, Vec<Datum>)>,
}

/// A shard and the keys in it. If `of_node` is true, the part covers all needed shards of another node: `shard` is the
/// first of them, and `keys` are the keys in all of them.
struct Part {
    shard: Shard,
    keys: Vec<usize>,
    of_node: bool,
}

/// Returns the shards with keys, sorted by node and then by shard. For a call on all entries, returns all shards.
fn parts(spread: &Spread, named: &Option<NamedKeys>) -> Vec<Part> {
    let part = |shard: &Shard| Part {
        shard: *shard,
        keys: Vec::new(),
        of_node: false,
    };
    let mut parts: Vec<Part> = spread.shards.iter().map(part).collect();
    if let Some(named) = named {
        for (at, &text) in named.texts.iter().enumerate() {
            let shard = spread.shard(text);
            if let Some(part) = parts.iter_mut().find(|part| part.shard == shard) {
                part.keys.push(at);
            }
        }
        parts.retain(|part| !part.keys.is_empty());
    }
    parts.sort_by_key(|part| (part.shard.node, part.shard.lock.index));
    parts
}

/// Joins the parts on each other node into one part for that node; keeps the order.
fn by_node(parts: Vec<Part>, spread: &Spread) -> Vec<Part> {
    let mut joined: Vec<Part> = Vec::new();
    for part in parts {
        match joined.last_mut() {
            Some(last) if last.of_node && last.shard.node == part.shard.node => {
                last.keys.extend(part.keys);
            }
            _ => joined.push(Part {
                of_node: !spread.is_here(&part.shard),
                ..part
            }),
        }
    }
    joined
}

struct Gathering<'g, 'r> {
    request: &'g Request<'r>,
    spread: &'g Spread,
    named: &'g Option<NamedKeys>,
}

impl Gathering<'_, '_> {
    /// Returns the rows of all parts as one result. Returns None if a shard was not found on its expected node.
    fn all(&self, parts: &[Part]) -> Result<Option<Vec<TextRow>>, Error> {
        let request = self.request;
        let mut rows: Vec<TextRow> = Vec::new();
        let mut order: Vec<usize> = Vec::new();
        let mut sum: i64 = 0;
        let mut left = match request.route.kind {
            Kind::Sum {
                most: Some(place), ..
            } => request.call.integer(place).map(i64::from),
            _ => None,
        };
        let printed = request.printed();
        for part in parts {
            if left == Some(0) {
                break;
            }
            let here = self.spread.is_here(&part.shard);
            match here {
                _ if request.sent.is_some() || request.route.only_reads() => {}
                true => two_phases::wrote_here(self.spread, self.key(part)),
                false => {
                    two_phases::writes_elsewhere(self.spread, &part.shard, self.key(part));
                }
            }
            let arguments = self.arguments(&printed, part, left);
            let Some(found) = self.rows_of(part, here, &arguments)? else {
                return Ok(None);
            };
            match request.route.kind {
                Kind::Sum { .. } | Kind::WriteMany { .. } => {
                    let number = number(&found);
                    sum += number;
                    left = left.map(|left| (left - number).max(0));
                }
                _ => rows.extend(found),
            }
            order.extend(&part.keys);
        }
        Ok(Some(match request.route.kind {
            Kind::Sum { .. } | Kind::WriteMany { .. } => {
                vec![vec![Some(Text::new(sum.to_string().as_bytes()))]]
            }
            Kind::ReadMany { .. } => in_order(rows, &order),
            Kind::Page { most } => page(rows, request.call.integer(most)),
            _ => rows,
        }))
    }

    /// Returns a key that Citus routes to the shard.
    fn key(&self, part: &Part) -> Text {
        match self.named {
            Some(named) => named.texts[part.keys[0]],
            None => self.spread.key_in(&part.shard),
        }
    }

    fn rows_of(
        &self,
        part: &Part,
        here: bool,
        arguments: &Arguments,
    ) -> Result<Option<Vec<TextRow>>, Error> {
        let (request, shard) = (self.request, &part.shard);
        if !here {
            let to = match part.of_node {
                true => Addressee::all_of(self.spread, shard.node),
                false => Addressee::of_key(shard.node),
            };
            return Ok(request.send(self.spread, to, self.key(part), arguments));
        }
        let table = self.spread.table(shard)?;
        let name: CString = table.and_then(relation::spelled).unwrap_or_default();
        let arguments = calls::on(arguments, request.route.cache, &name);
        Ok(Some(calls::here(request.route.function, &arguments)?))
    }

    /// Returns the arguments of the call for the keys of a part, with a limit of `left` rows if the call has a limit.
    fn arguments(&self, printed: &Arguments, keys: &Part, left: Option<i64>) -> Arguments {
        let request = self.request;
        let mut arguments = printed.clone();
        if let Some(named) = self.named {
            let part = |place, of, element: &dyn Fn(usize) -> Datum| {
                let elements: Vec<Datum> = keys.keys.iter().map(|&at| element(at)).collect();
                Some(request.call.printed_part(place, of, &elements))
            };
            let key = |at: usize| named.texts[at].raw();
            arguments[named.place] = part(named.place, ValueType::Text, &key);
            if let Some((place, of, values)) = &named.values {
                arguments[*place] = part(*place, *of, &|at| values[at]);
            }
        }
        if let (
            Some(left),
            Kind::Sum {
                most: Some(place), ..
            },
        ) = (left, &request.route.kind)
        {
            arguments[*place] = Some(Text::new(left.to_string().as_bytes()));
        }
        arguments
    }
}

fn number(rows: &[TextRow]) -> i64 {
    let text = rows.first().and_then(|row| row.first().copied().flatten());
    text.and_then(|text| text.to_string_lossy().parse().ok())
        .unwrap_or(0)
}

/// Sorts rows into the order of the request. `order` holds the index in the request of each row's key.
fn in_order(rows: Vec<TextRow>, order: &[usize]) -> Vec<TextRow> {
    let mut rows: Vec<(usize, TextRow)> = order.iter().copied().zip(rows).collect();
    rows.sort_by_key(|&(at, _)| at);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Returns the first `most` rows in key order, which is the order of the keys' bytes.
fn page(mut rows: Vec<TextRow>, most: Option<i32>) -> Vec<TextRow> {
    let key = |row: &TextRow| {
        row.first()
            .copied()
            .flatten()
            .map(|key| key.bytes().to_vec())
    };
    rows.sort_by_cached_key(key);
    rows.truncate(most.map_or(0, |most| most.max(0) as usize));
    rows
}

/// Answers a call that any single shard can answer.
fn to_any(request: &Request, spread: &Rc<Spread>) -> Result<Way, Error> {
    single_shard::answer(request, Rc::clone(spread), None)
}

/// Clears the cache with TRUNCATE. Citus runs the statement on all nodes, and first takes its own locks there.
fn clear(request: &Request, spread: &Spread) -> Result<Way, Error> {
    ddl::run(&[b"TRUNCATE ", spread.name.to_bytes()]);
    let _ = shard_metadata::of(request.cache);
    Ok(Way::Answered(request.call.give(&[vec![None]])))
}
