//! Parses requests from a stream of bytes, which may arrive in pieces that end anywhere.
//!
//! The caller keeps the bytes from the start of an incomplete request, and calls again when more have arrived. The
//! parser remembers its position, so it reads no byte twice, and a request costs the same whether it arrives byte by
//! byte or at once. It reserves no memory for arguments that are only announced, and stores their positions as they
//! arrive.

use crate::args::{Args, Place};
use crate::inline;
use crate::number::integer;
use crate::reply::Writer;

/// The maximum length of a line in a request, as in Redis.
const LONGEST_LINE: usize = 64 << 10;
/// The length that lines with a count or a length almost never exceed.
const SHORT_LINE: usize = 8;
/// The number of positions whose memory the parser keeps from one request to the next. It frees memory for more
/// positions than this, so that one long MGET leaves no memory in use.
const PLACES_KEPT: usize = 64;

/// Limits of a client's requests. The parser checks the number of arguments and the number of bytes when the request
/// announces them.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum bytes of one request.
    bytes: u32,
    /// The maximum number of arguments of one request.
    arguments: i64,
    /// Whether to use Redis' texts for clients that have not authenticated.
    unauthenticated: bool,
}

impl Limits {
    /// Allows this many bytes in a request, but at most 2 GiB, and as many arguments as Redis.
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

    /// Returns the limits for a client that has not authenticated: at most ten arguments, as in Redis, and at most this
    /// many bytes.
    pub fn unauthenticated(bytes: usize) -> Self {
        Self {
            arguments: 10,
            unauthenticated: true,
            ..Self::new(bytes)
        }
    }

    /// Returns whether a request may have this many arguments.
    pub(crate) fn take_count(&self, count: usize) -> bool {
        i64::try_from(count).is_ok_and(|count| count <= self.arguments)
    }

    /// Returns whether a request may have this many bytes.
    pub(crate) fn take_bytes(&self, bytes: usize) -> bool {
        bytes <= self.bytes as usize
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(16 << 20)
    }
}

/// An error that ends the connection, because after it the start of the next request is unknown.
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
    /// Writes the last reply on the connection, with Redis' text.
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

/// A complete request.
#[derive(Debug)]
pub struct Request<'a> {
    /// The command's name and its arguments. Empty for an empty line and for `*0`, which have no reply.
    pub args: Args<'a>,
    /// The number of bytes of the buffer that the request used. The next request begins after them.
    pub used: usize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// No byte of a request has been read.
    Start,
    /// The parser has read the `*`, but not the end of its line.
    Count,
    /// `left` arguments are missing; the line with the length of the next argument follows.
    Length { left: i64 },
    /// `left` arguments are missing; the next argument has this length.
    Argument { left: i64, length: u32 },
    /// The request is a line without `*`, an inline command.
    Line,
    /// The parser has returned the request.
    Done,
    /// The parser has returned the request, and must return it once more.
    Again,
}

/// The parser of one connection.
#[derive(Debug)]
pub struct Parser {
    limits: Limits,
    state: State,
    /// The start of the next line or argument, counted from the start of the request.
    at: usize,
    /// The position that the search for the end of a line has reached.
    scanned: usize,
    places: Vec<Place>,
    /// The words of an inline command.
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

    /// Sets the limits, which apply to the next count or length that the parser reads.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Makes [`Parser::next`] return the last request once more, because its command is not finished. The buffer must
    /// still begin with the request. The arguments are not parsed again; otherwise a command that runs in steps would
    /// take quadratic time in the number of its arguments.
    pub fn again(&mut self) {
        // An inline command, whose words are copies, is parsed again; this is cheap, because it is short.
        if matches!(self.state, State::Done) && self.at > 0 {
            self.state = State::Again;
        }
    }

    /// Returns whether the next byte begins a request.
    pub fn is_between(&self) -> bool {
        matches!(self.state, State::Start | State::Done)
    }

    /// Returns the next request in `buffer`, which begins after the last request or at the start of the incomplete
    /// request. Returns None if the request needs more bytes.
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

    /// Returns the length that the incomplete request must reach before another call of [`Parser::next`] can return it.
    pub fn needed(&self) -> usize {
        match self.state {
            State::Argument { length, .. } => self.at + length as usize + 2,
            _ => self.scanned + 1,
        }
    }

    /// Returns the bytes of memory that the parser has allocated: 8 for each argument that has arrived.
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
                    // As in Redis, the parser skips the two bytes after the argument without checking them.
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

    /// Reads a complete argument of less than 100 bytes, which nearly all arguments are. Returns false for any other
    /// argument, which may be malformed; the caller then parses it step by step.
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

    /// Stores the position of an argument, from the parser's position to `end`.
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

    /// Returns a protocol line without its end, or None if the line is incomplete. As in Redis, a line ends with a
    /// carriage return and any one byte.
    fn header<'b>(
        &mut self,
        buffer: &'b [u8],
        too_big: Broken,
    ) -> Result<Option<&'b [u8]>, Broken> {
        let unread = buffer.get(self.scanned..).unwrap_or_default();
        // These lines have only a few bytes, for which a loop is faster than memchr.
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

    /// Returns an error if an argument of the announced length would make the request too long.
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
