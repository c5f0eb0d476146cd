//! The state of CLIENT TRACKING for one client, and the options of the command. `tracking` stores which clients have
//! read a key. Invalidations that arrive during a read are kept and sent again after its reply; otherwise the client
//! would cache a value that the server has already invalidated.

use pgcache_resp::{Args, Failure, Writer, integer};

use crate::cache::model::key::MAX_BYTES;

/// The number of prefixes that a client may have. It is bounded because each new prefix is compared with all others.
const PREFIXES: usize = 64;
/// The maximum number of bytes of messages that are kept during a command.
const PASSED: usize = 4096;

/// The keys about which a client is notified.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Keys that the client reads.
    Reads,
    /// Keys that the client reads right after CLIENT CACHING YES.
    OptIn,
    /// Keys that the client reads, except right after CLIENT CACHING NO.
    OptOut,
    /// Keys that begin with one of the client's prefixes.
    Broadcast,
}

/// The tracking state of a client that is notified of changes.
pub struct Tracked {
    pub mode: Mode,
    /// Whether the client is not notified of changes that it makes itself.
    pub no_loop: bool,
    /// The client that receives the notifications instead, if any.
    pub redirect: Option<u64>,
    /// Whether the client of `redirect` has disconnected.
    pub broken: bool,
    pub prefixes: Vec<Box<[u8]>>,
    /// Whether CLIENT CACHING was sent for the next command.
    pub caching: bool,
    /// Whether the client has read a key since the last replies were sent. If so, invalidations that precede the next
    /// replies are sent again after them.
    pub fresh: bool,
    /// The number of keys noted since the last replies were sent.
    pub noted: usize,
    /// Whether a read command is running. If so, invalidations that arrive before its reply are sent again after the
    /// reply.
    pub reading: bool,
    /// Rows that the command reads, with the slot of their cache.
    pub rows: Vec<(u32, Box<[u8]>)>,
    passed: Vec<u8>,
    /// Whether the client must be notified that everything has changed, once its privileges are known.
    pub owed: bool,
    /// The slot of the cache whose keys a client with prefixes tracks.
    pub slot: Option<u32>,
}

impl Tracked {
    /// Records that messages are sent, with or without replies. Returns the messages to send again after the replies.
    pub fn again(&mut self, pushed: &[u8], has_replies: bool) -> Vec<u8> {
        let mut again = Vec::new();
        if self.reading {
            self.keep(pushed);
        } else {
            self.noted = 0;
            again = std::mem::take(&mut self.passed);
        }
        if self.fresh && has_replies {
            again.extend_from_slice(pushed);
        }
        self.fresh &= self.reading;
        again
    }

    /// Returns the bytes of memory that the tracking state takes.
    pub fn held(&self) -> usize {
        let prefixes: usize = self.prefixes.iter().map(|prefix| prefix.len()).sum();
        let rows: usize = self.rows.iter().map(|(_, key)| key.len()).sum();
        size_of::<Tracked>() + prefixes + rows + self.passed.capacity()
    }

    /// Records that the reply to the read command is complete.
    pub fn end_read(&mut self) {
        self.reading = false;
        self.rows.clear();
    }

    /// Keeps messages until the reply. If there are too many, drops them and notifies the client after the reply that
    /// everything has changed.
    fn keep(&mut self, pushed: &[u8]) {
        if self.passed.len() + pushed.len() > PASSED {
            self.passed = Vec::new();
            self.owed = true;
        } else {
            self.passed.extend_from_slice(pushed);
        }
    }

    /// Returns whether the keys that the next command reads must be noted.
    pub fn takes_reads(&self) -> bool {
        match self.mode {
            Mode::Reads => true,
            Mode::OptIn => self.caching,
            Mode::OptOut => !self.caching,
            Mode::Broadcast => false,
        }
    }
}

/// The options of CLIENT TRACKING as the client sent them.
#[derive(Default)]
pub struct Options<'a> {
    pub redirect: Option<u64>,
    prefixes: Vec<&'a [u8]>,
    pub broadcast: bool,
    opt_in: bool,
    opt_out: bool,
    no_loop: bool,
}

fn error(words: &str, replies: &mut Writer) {
    replies.error(&[b"ERR ", words.as_bytes()]);
}

impl<'a> Options<'a> {
    /// Reads the options. If an option is wrong, writes the error and returns None. `may_target` checks whether a
    /// client can be the target of REDIRECT.
    pub fn read(
        options: Args<'a>,
        may_target: impl Fn(u64) -> Result<(), &'static str>,
        replies: &mut Writer,
    ) -> Option<Options<'a>> {
        let mut read = Options::default();
        let mut left = options;
        while let Some(option) = left.get(0) {
            let is = |word: &str| option.eq_ignore_ascii_case(word.as_bytes());
            left = left.from(1);
            match left.get(0) {
                Some(id) if is("redirect") => {
                    if read.redirect.is_some() {
                        error(
                            "A client can only redirect to a single other client",
                            replies,
                        );
                        return None;
                    }
                    let Some(id) = integer(id) else {
                        Failure::NotInteger.write(replies);
                        return None;
                    };
                    let id = u64::try_from(id).unwrap_or(0);
                    if let Err(words) = may_target(id) {
                        error(words, replies);
                        return None;
                    }
                    read.redirect = Some(id);
                    left = left.from(1);
                }
                Some(prefix) if is("prefix") => {
                    read.prefixes.push(prefix);
                    left = left.from(1);
                }
                _ if is("bcast") => read.broadcast = true,
                _ if is("optin") => read.opt_in = true,
                _ if is("optout") => read.opt_out = true,
                _ if is("noloop") => read.no_loop = true,
                _ => {
                    Failure::Syntax.write(replies);
                    return None;
                }
            }
        }
        Some(read)
    }

    /// Returns the tracking state of a client that was in state `former` and sends these options. If the options do not
    /// fit, writes the error and returns None.
    pub fn apply(&self, former: Option<&Tracked>, replies: &mut Writer) -> Option<Tracked> {
        let had = |mode| former.is_some_and(|former| former.mode == mode);
        let misfit = if !self.broadcast && !self.prefixes.is_empty() {
            Some("PREFIX option requires BCAST mode to be enabled")
        } else if former.is_some() && had(Mode::Broadcast) != self.broadcast {
            Some(
                "You can't switch BCAST mode on/off before disabling tracking for this client, \
                 and then re-enabling it with a different mode.",
            )
        } else if self.broadcast && (self.opt_in || self.opt_out) {
            Some("OPTIN and OPTOUT are not compatible with BCAST")
        } else if self.opt_in && self.opt_out {
            Some("You can't specify both OPTIN mode and OPTOUT mode")
        } else if self.opt_in && had(Mode::OptOut) || self.opt_out && had(Mode::OptIn) {
            Some(
                "You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, \
                 and then re-enabling it with a different mode.",
            )
        } else {
            None
        };
        if let Some(words) = misfit {
            error(words, replies);
            return None;
        }
        let known = former.map_or(&[][..], |former| &former.prefixes[..]);
        if known.len() + self.prefixes.len() > PREFIXES {
            replies.error(&[
                b"ERR a client can track at most ",
                PREFIXES.to_string().as_bytes(),
                b" prefixes",
            ]);
            return None;
        }
        if self.prefixes.iter().any(|prefix| prefix.len() > MAX_BYTES) {
            error("a prefix is longer than the longest possible key", replies);
            return None;
        }
        if !self.check_prefixes(known, replies) {
            return None;
        }
        let mut prefixes: Vec<Box<[u8]>> = known.to_vec();
        if self.broadcast && self.prefixes.is_empty() && !known.iter().any(|known| known.is_empty())
        {
            prefixes.push(Box::default());
        }
        prefixes.extend(self.prefixes.iter().map(|prefix| Box::from(*prefix)));
        Some(Tracked {
            mode: match () {
                () if self.broadcast => Mode::Broadcast,
                () if self.opt_in => Mode::OptIn,
                () if self.opt_out => Mode::OptOut,
                () => Mode::Reads,
            },
            no_loop: self.no_loop,
            redirect: self.redirect,
            broken: false,
            prefixes,
            caching: former.is_some_and(|former| former.caching),
            fresh: former.is_some_and(|former| former.fresh),
            noted: former.map_or(0, |former| former.noted),
            reading: false,
            rows: Vec::new(),
            passed: Vec::new(),
            owed: former.is_some_and(|former| former.owed),
            slot: None,
        })
    }

    /// Refuses prefixes that overlap, so that a client is notified only once of a key.
    fn check_prefixes(&self, known: &[Box<[u8]>], replies: &mut Writer) -> bool {
        let overlap = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
        for (at, prefix) in self.prefixes.iter().enumerate() {
            let refused = known
                .iter()
                .find(|known| overlap(known, prefix))
                .map(|known| (&b"an existing"[..], &known[..]))
                .or_else(|| {
                    let mut later = self.prefixes.iter().skip(at + 1);
                    let other = later.find(|other| overlap(other, prefix))?;
                    Some((&b"another provided"[..], *other))
                });
            if let Some((which, other)) = refused {
                replies.error(&[
                    b"ERR Prefix '",
                    prefix,
                    b"' overlaps with ",
                    which,
                    b" prefix '",
                    other,
                    b"'. Prefixes for a single client must not overlap.",
                ]);
                return false;
            }
        }
        true
    }
}
