//! Cuts requests out of a stream of bytes that may end anywhere.
//!
//! The caller keeps the bytes from the start of the request that is not whole yet, and calls again when more have
//! come. The parser remembers how far it has read, so no byte is looked at twice and a request that comes byte by
//! byte costs as much as one that comes at once. Nothing is reserved for what was only announced: places are stored
//! as arguments come.

use crate::args::{Args, Place};
use crate::inline;
use crate::number::integer;
use crate::reply::Writer;

/// A line longer than this is no request; Redis' number.
const LONGEST_LINE: usize = 64 << 10;
/// A line with a count or a length is hardly ever longer.
const SHORT_LINE: usize = 8;
/// Places that are kept from one request to the next. More are given back, so that one long MGET leaves nothing.
const PLACES_KEPT: usize = 64;

/// What a client may send. Both a command's arguments and its bytes are bounded before they are read.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one request.
    bytes: u32,
    /// Arguments of one request.
    arguments: i64,
    /// Which texts Redis has for a limit that was exceeded: those for clients who have not said who they are.
    unauthenticated: bool,
}

impl Limits {
    /// As many bytes in a request, at most 2 GiB, and as many arguments as Redis takes.
    pub fn new(bytes: usize) -> Self {
        let bytes = u32::try_from(bytes)
            .unwrap_or(u32::MAX)
            .min(i32::MAX as u32);
        Self {
            bytes,
            arguments: i64::from(i32::MAX),
            unauthenticated: false,
        }
    }

    /// For a client who has not said who he is: ten arguments, as in Redis, and this many bytes.
    pub fn unauthenticated(bytes: usize) -> Self {
        Self {
            arguments: 10,
            unauthenticated: true,
            ..Self::new(bytes)
        }
    }

    /// Whether a request may have so many arguments.
    pub(crate) fn take_count(&self, count: usize) -> bool {
        i64::try_from(count).is_ok_and(|count| count <= self.arguments)
    }

    /// Whether a request may be so long.
    pub(crate) fn take_bytes(&self, bytes: usize) -> bool {
        bytes <= self.bytes as usize
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(16 << 20)
    }
}

/// What ends a connection: from here on nobody knows where the next request begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    TooBigCount,
    TooBigLength,
    TooBigLine,
    InvalidCount,
    InvalidLength,
    UnauthenticatedCount,
    UnauthenticatedLength,
    NoLength(u8),
    UnbalancedQuotes,
    OutOfMemory,
}

impl Broken {
    /// Redis' last words on that connection.
    pub fn write(self, replies: &mut Writer) {
        let text = match self {
            Self::TooBigCount => "too big mbulk count string",
            Self::TooBigLength => "too big bulk count string",
            Self::TooBigLine => "too big inline request",
            Self::InvalidCount => "invalid multibulk length",
            Self::InvalidLength => "invalid bulk length",
            Self::UnauthenticatedCount => "unauthenticated multibulk length",
            Self::UnauthenticatedLength => "unauthenticated bulk length",
            Self::UnbalancedQuotes => "unbalanced quotes in request",
            Self::OutOfMemory => "out of memory",
            Self::NoLength(byte) => {
                let byte = if matches!(byte, b'\r' | b'\n') {
                    b' '
                } else {
                    byte
                };
                return replies.error(&[b"ERR Protocol error: expected '$', got '", &[byte], b"'"]);
            }
        };
        replies.error(&[b"ERR Protocol error: ", text.as_bytes()]);
    }
}

/// A whole request.
#[derive(Debug)]
pub struct Request<'a> {
    /// The command's name and its arguments. None at all for an empty line or `*0`, which has no reply.
    pub args: Args<'a>,
    /// How many bytes of the buffer it was. The next one begins there.
    pub used: usize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Nothing of a request has been read.
    Start,
    /// `*` was seen, and its line has no end yet.
    Count,
    /// So many arguments are to come; the line with the length of the next one is to be read.
    Length { left: i64 },
    /// So many arguments are to come, the next one of this length.
    Argument { left: i64, length: u32 },
    /// A line without `*`.
    Line,
    /// The request was handed out.
    Done,
    /// It was, and is to be handed out once more.
    Again,
}

/// The parser of one connection.
#[derive(Debug)]
pub struct Parser {
    limits: Limits,
    state: State,
    /// Where the next line or argument begins, from the start of the request.
    at: usize,
    /// Up to where no end of a line was found.
    scanned: usize,
    places: Vec<Place>,
    /// The words of a line that was typed by hand.
    words: Vec<u8>,
}

impl Parser {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: State::Start,
            at: 0,
            scanned: 0,
            places: Vec::new(),
            words: Vec::new(),
        }
    }

    /// From the next length on that is read.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The request that was handed out last was not dealt with: the next one is the same, of a buffer that begins with
    /// it as before. Its arguments are not looked for again, or a command that is done in pieces would take a time
    /// that is the square of their number.
    pub fn again(&mut self) {
        // A line's words are copies; it is short, and read again.
        if matches!(self.state, State::Done) && self.at > 0 {
            self.state = State::Again;
        }
    }

    /// Whether the next byte begins a request.
    pub fn is_between(&self) -> bool {
        matches!(self.state, State::Start | State::Done)
    }

    /// The next request of `buffer`, which begins where the last one ended, or where it began when that was not whole.
    /// None: more bytes are needed.
    pub fn next<'a>(&'a mut self, buffer: &'a [u8]) -> Result<Option<Request<'a>>, Broken> {
        match self.state {
            State::Done => self.forget(),
            State::Again if buffer.len() >= self.at => {
                self.state = State::Done;
                return Ok(Some(Request {
                    args: Args::new(buffer, &self.places),
                    used: self.at,
                }));
            }
            _ => {}
        }
        if matches!(self.state, State::Start) {
            self.state = match buffer.first() {
                None => return Ok(None),
                Some(b'*') => State::Count,
                Some(_) => State::Line,
            };
        }
        if matches!(self.state, State::Line) {
            return self.line(buffer);
        }
        if !self.multibulk(buffer)? {
            return Ok(None);
        }
        self.state = State::Done;
        Ok(Some(Request {
            args: Args::new(buffer, &self.places),
            used: self.at,
        }))
    }

    /// How many bytes of the request that is not whole must have come before it is worth while to ask again.
    pub fn needed(&self) -> usize {
        match self.state {
            State::Argument { length, .. } => self.at + length as usize + 2,
            _ => self.scanned + 1,
        }
    }

    /// How many bytes of memory the parser holds beside itself: 8 for each argument that has come.
    pub fn held(&self) -> usize {
        self.places.capacity() * size_of::<Place>() + self.words.capacity()
    }

    fn forget(&mut self) {
        self.state = State::Start;
        self.at = 0;
        self.scanned = 0;
        self.places.clear();
        self.places.shrink_to(PLACES_KEPT);
        self.words.clear();
        self.words.shrink_to(PLACES_KEPT);
    }

    fn multibulk(&mut self, buffer: &[u8]) -> Result<bool, Broken> {
        loop {
            let state = self.state;
            self.state = match state {
                State::Count => {
                    let Some(line) = self.header(buffer, Broken::TooBigCount)? else {
                        return Ok(false);
                    };
                    State::Length {
                        left: self.count(line.get(1..).unwrap_or_default())?,
                    }
                }
                State::Length { left } if left <= 0 => return Ok(true),
                State::Length { left } if self.short_argument(buffer)? => {
                    State::Length { left: left - 1 }
                }
                State::Length { left } => {
                    let Some(line) = self.header(buffer, Broken::TooBigLength)? else {
                        return Ok(false);
                    };
                    State::Argument {
                        left,
                        length: self.length(line)?,
                    }
                }
                State::Argument { left, length } => {
                    let end = self.at + length as usize;
                    // The two bytes after it are skipped, whatever they are, as Redis does.
                    if buffer.len() < end + 2 {
                        return Ok(false);
                    }
                    self.store(end)?;
                    State::Length { left: left - 1 }
                }
                State::Start | State::Line | State::Done | State::Again => return Ok(false),
            };
        }
    }

    /// Takes an argument of less than 100 bytes that has come whole: nearly all are. False: it is none of these, or may
    /// be wrong, and is left to be looked at step by step.
    #[inline]
    fn short_argument(&mut self, buffer: &[u8]) -> Result<bool, Broken> {
        let (header, length) = match buffer.get(self.at..) {
            Some([b'$', one @ b'0'..=b'9', b'\r', _, ..]) => (4, one - b'0'),
            Some([b'$', ten @ b'1'..=b'9', one @ b'0'..=b'9', b'\r', _, ..]) => {
                (5, (ten - b'0') * 10 + (one - b'0'))
            }
            _ => return Ok(false),
        };
        let from = self.at + header;
        let end = from + usize::from(length);
        if end > self.limits.bytes as usize || buffer.len() < end + 2 {
            return Ok(false);
        }
        self.at = from;
        self.store(end)?;
        Ok(true)
    }

    /// The next argument is from here to `end`.
    #[inline]
    fn store(&mut self, end: usize) -> Result<(), Broken> {
        if self.places.len() == self.places.capacity() {
            self.places
                .try_reserve(1)
                .map_err(|_| Broken::OutOfMemory)?;
        }
        self.places.push(Place {
            from: self.at as u32,
            to: end as u32,
        });
        self.at = end + 2;
        self.scanned = self.at;
        Ok(())
    }

    /// A line of the protocol, without its end: up to a carriage return and the byte after it, whatever that is.
    fn header<'b>(
        &mut self,
        buffer: &'b [u8],
        too_big: Broken,
    ) -> Result<Option<&'b [u8]>, Broken> {
        let unread = buffer.get(self.scanned..).unwrap_or_default();
        // These lines are a few bytes long: a loop over them is over before memchr has begun.
        let near = unread
            .iter()
            .take(SHORT_LINE)
            .position(|byte| *byte == b'\r');
        let Some(end) = near
            .or_else(|| memchr::memchr(b'\r', unread))
            .map(|found| self.scanned + found)
        else {
            self.scanned = buffer.len().max(self.scanned);
            return if buffer.len() - self.at > LONGEST_LINE {
                Err(too_big)
            } else {
                Ok(None)
            };
        };
        if buffer.len() < end + 2 {
            self.scanned = end;
            return Ok(None);
        }
        let line = buffer.get(self.at..end);
        self.at = end + 2;
        self.scanned = self.at;
        self.within(0)?;
        Ok(line)
    }

    fn count(&self, digits: &[u8]) -> Result<i64, Broken> {
        match integer(digits) {
            Some(count) if count <= self.limits.arguments => Ok(count),
            Some(count) if self.limits.unauthenticated && count <= i64::from(i32::MAX) => {
                Err(Broken::UnauthenticatedCount)
            }
            _ => Err(Broken::InvalidCount),
        }
    }

    fn length(&self, line: &[u8]) -> Result<u32, Broken> {
        let digits = match line {
            [b'$', digits @ ..] => digits,
            [other, ..] => return Err(Broken::NoLength(*other)),
            [] => return Err(Broken::NoLength(b'\r')),
        };
        match integer(digits).map(u32::try_from) {
            Some(Ok(length)) => self.within(length).map(|()| length),
            _ => Err(Broken::InvalidLength),
        }
    }

    /// An argument that would make the request too long is refused when it is announced.
    fn within(&self, length: u32) -> Result<(), Broken> {
        match self.at.saturating_add(length as usize) <= self.limits.bytes as usize {
            true => Ok(()),
            false if self.limits.unauthenticated => Err(Broken::UnauthenticatedLength),
            false => Err(Broken::InvalidLength),
        }
    }

    fn line<'a>(&'a mut self, buffer: &'a [u8]) -> Result<Option<Request<'a>>, Broken> {
        let unread = buffer.get(self.scanned..).unwrap_or_default();
        let Some(end) = memchr::memchr(b'\n', unread).map(|found| self.scanned + found) else {
            self.scanned = buffer.len().max(self.scanned);
            return if buffer.len() > LONGEST_LINE {
                Err(Broken::TooBigLine)
            } else {
                Ok(None)
            };
        };
        let line = buffer.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > LONGEST_LINE {
            return Err(Broken::TooBigLine);
        }
        inline::split(line, &mut self.words, &mut self.places)
            .map_err(|_| Broken::UnbalancedQuotes)?;
        self.state = State::Done;
        Ok(Some(Request {
            args: Args::new(&self.words, &self.places),
            used: end + 1,
        }))
    }
}
