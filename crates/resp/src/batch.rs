//! Splits one read from a client into requests before the first request runs, so that the caller knows all keys early
//! and can prefetch their entries.
//!
//! It splits exactly as [`Parser`](crate::Parser) would, and leaves long, unusual or malformed requests to the parser.
//! It keeps no part of an incomplete request, and checks nothing that the parser does not check.

use std::ops::Range;

use crate::args::{Args, Place};
use crate::request::{Limits, Parser, Request};

/// The maximum number of requests in one batch.
const MOST: usize = 32;
/// The maximum number of arguments of a request in a batch.
const ARGUMENTS: usize = 64;

/// Complete requests at the beginning of a buffer.
#[derive(Debug, Default)]
pub struct Batch {
    places: Vec<Place>,
    cuts: Vec<Cut>,
    /// The number of requests that `next` has returned.
    done: usize,
}

/// A request of the batch.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// The index of the request's first argument in the list of argument positions.
    first: u32,
    /// The end of the request in the buffer.
    end: u32,
}

impl Batch {
    /// Splits the requests at the beginning of `buffer`, and forgets earlier requests. The connection's parser must be
    /// between two requests. The caller passes the rest of the buffer to the parser.
    pub fn cut(&mut self, buffer: &[u8], limits: &Limits) {
        self.clear();
        if u32::try_from(buffer.len()).is_err() {
            return;
        }
        let mut at = 0;
        while self.cuts.len() < MOST {
            let first = self.places.len();
            let Some(end) = self.request(buffer, at, limits) else {
                self.places.truncate(first);
                return;
            };
            self.cuts.push(Cut {
                first: first as u32,
                end: end as u32,
            });
            at = end;
        }
    }

    /// Splits all complete requests of `buffer` from `from` on, of any number and length, and keeps earlier requests.
    /// Returns the indexes of the new requests. Stops at an inline command that is not empty.
    pub fn append(&mut self, buffer: &[u8], from: usize) -> Range<usize> {
        let (first, limits) = (self.cuts.len(), Limits::new(usize::MAX));
        let mut at = from;
        while u32::try_from(buffer.len()).is_ok() {
            let place = self.places.len();
            let end = self.request(buffer, at, &limits).or_else(|| {
                self.places.truncate(place);
                self.parse(buffer, at, limits)
            });
            let Some(end) = end else {
                break;
            };
            if self.places.len() > place {
                self.cuts.push(Cut {
                    first: place as u32,
                    end: end as u32,
                });
            }
            at = end;
        }
        first..self.cuts.len()
    }

    /// Splits the request that begins at `from` with the parser, and returns its end; None if it is incomplete,
    /// malformed, or an inline command.
    fn parse(&mut self, buffer: &[u8], from: usize, limits: Limits) -> Option<usize> {
        let mut parser = Parser::new(limits);
        let request = parser.next(buffer.get(from..)?).ok()??;
        if buffer.get(from) != Some(&b'*') && !request.args.is_empty() {
            return None;
        }
        let places = request.args.places().iter();
        self.places.extend(places.map(|place| Place {
            from: place.from + from as u32,
            to: place.to + from as u32,
        }));
        Some(from + request.used)
    }

    /// Returns the arguments of the request with this index.
    pub fn args<'a>(&'a self, number: usize, buffer: &'a [u8]) -> Option<Args<'a>> {
        let first = self.cuts.get(number)?.first as usize;
        let next = self.cuts.get(number + 1);
        let last = next.map_or(self.places.len(), |next| next.first as usize);
        Some(Args::new(buffer, self.places.get(first..last)?))
    }

    /// Returns the arguments of each request.
    pub fn all<'a>(&'a self, buffer: &'a [u8]) -> impl Iterator<Item = Args<'a>> + use<'a> {
        (0..self.cuts.len()).filter_map(move |number| self.args(number, buffer))
    }

    /// Forgets all requests.
    pub fn clear(&mut self) {
        self.places.clear();
        self.cuts.clear();
        self.done = 0;
    }

    /// Returns the number of remaining requests.
    pub fn len(&self) -> usize {
        self.cuts.len() - self.done
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the end of the last returned request in the buffer.
    pub fn at(&self) -> usize {
        let last = self
            .done
            .checked_sub(1)
            .and_then(|last| self.cuts.get(last));
        last.map_or(0, |cut| cut.end as usize)
    }

    /// Returns the next request. The caller passes the buffer that [`Batch::cut`] received.
    #[inline]
    pub fn next<'a>(&'a mut self, buffer: &'a [u8]) -> Option<Request<'a>> {
        let (number, from) = (self.done, self.at());
        let end = self.cuts.get(number)?.end as usize;
        self.done += 1;
        Some(Request {
            args: self.args(number, buffer)?,
            used: end - from,
        })
    }

    /// Makes [`Batch::next`] return the last request once more.
    pub fn again(&mut self) {
        self.done = self.done.saturating_sub(1);
    }

    /// Returns the first argument of each remaining request that has one. For nearly all commands this is a key.
    pub fn keys<'a>(&'a self, buffer: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        (self.done..self.cuts.len()).filter_map(move |number| self.args(number, buffer)?.get(1))
    }

    /// Stores the arguments of the request that begins at `from`, and returns its end. Returns None if the request is
    /// incomplete or left to the parser.
    #[inline]
    fn request(&mut self, buffer: &[u8], from: usize, limits: &Limits) -> Option<usize> {
        let (count, mut at) = number(buffer, from, b'*')?;
        if !(1..=ARGUMENTS).contains(&count) || !limits.take_count(count) {
            return None;
        }
        for _ in 0..count {
            let (length, start) = number(buffer, at, b'$')?;
            let end = start + length;
            if end + 2 > buffer.len() || !limits.take_bytes(end - from) {
                return None;
            }
            self.places.push(Place {
                from: start as u32,
                to: end as u32,
            });
            at = end + 2;
        }
        Some(at)
    }
}

/// Returns the number in the line of kind `kind` at `at`, and the beginning of the next line. Returns None unless the
/// line is complete and has one to four digits in Redis' format.
#[inline]
fn number(buffer: &[u8], at: usize, kind: u8) -> Option<(usize, usize)> {
    let digit = |byte: &u8| usize::from(byte - b'0');
    let (first, rest) = buffer.get(at..)?.split_first()?;
    if *first != kind {
        return None;
    }
    match rest {
        [a @ b'0'..=b'9', b'\r', _, ..] => Some((digit(a), at + 4)),
        [a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', _, ..] => {
            Some((digit(a) * 10 + digit(b), at + 5))
        }
        [
            a @ b'1'..=b'9',
            b @ b'0'..=b'9',
            c @ b'0'..=b'9',
            b'\r',
            _,
            ..,
        ] => Some((digit(a) * 100 + digit(b) * 10 + digit(c), at + 6)),
        [
            a @ b'1'..=b'9',
            b @ b'0'..=b'9',
            c @ b'0'..=b'9',
            d @ b'0'..=b'9',
            b'\r',
            _,
            ..,
        ] => {
            let hundreds = digit(a) * 10 + digit(b);
            Some((hundreds * 100 + digit(c) * 10 + digit(d), at + 7))
        }
        _ => None,
    }
}
