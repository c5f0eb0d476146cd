//! The errors of commands. Their texts are exactly those of Redis, because client libraries match them.
//!
//! As in Redis, some texts repeat the client's input. So a text goes only to the client itself, and the log contains
//! only [`Failure::code`].

use crate::args::Args;
use crate::reply::Writer;
use crate::structures;

/// The reason why a command was not run.
#[derive(Clone, Copy, Debug)]
pub enum Failure<'a> {
    UnknownCommand(Args<'a>),
    UnknownSubcommand {
        command: &'static str,
        name: &'a [u8],
    },
    Arity(&'static str),
    Syntax,
    NotInteger,
    NotFloat,
    NotFinite,
    OutOf32Bits,
    ExpireTime(&'static str),
    UnsupportedOption(&'a [u8]),
    NxAndOthers,
    GtAndLt,
    InvalidCursor,
    IncrementOverflow,
    DecrementOverflow,
    Offset,
    TooLong,
    NoSuchKey,
    SameObject,
    NoSuchDatabase,
    NoCluster,
    NestedMulti,
    ExecWithoutMulti,
    DiscardWithoutMulti,
    WatchInsideMulti,
    /// A command that cannot be queued after MULTI, because it acts at once or waits.
    NotInMulti,
    ExecAbort,
    /// EXEC with arguments, which discards the transaction.
    ExecRefused,
    NotAuthenticated,
    WrongPassword,
    NoSuchProtocol,
    ProtocolNotInteger,
    HelloOption(&'a [u8]),
    HelloNotAuthenticated,
    ClientName,
    ClientNameLength,
    NoScript,
    InvalidNumkeys,
    NotAString,
    Digest,
    InvalidCondition,
    PairCount,
    /// A bound of INCREX that is not an integer; holds the option's name.
    BoundNotInteger(&'static str),
    /// A bound of INCREX that is not a number; holds the option's name.
    BoundNotFloat(&'static str),
    Bounds,
    ExpirationMissing,
    AppliedOverflow,
}

impl<'a> Failure<'a> {
    /// Returns the error's code and its text, or a short form of the text if the text repeats input.
    fn words(&self) -> (&'static str, &'static str) {
        let words = match self {
            Self::UnknownCommand(_) => "unknown command",
            Self::UnknownSubcommand { .. } => "unknown subcommand",
            Self::Arity(_) => "wrong number of arguments",
            Self::Syntax => "syntax error",
            Self::NotInteger => "value is not an integer or out of range",
            Self::NotFloat => "value is not a valid float",
            Self::NotFinite => "increment would produce NaN or Infinity",
            Self::OutOf32Bits => {
                "value is out of range, value must between -2147483648 and 2147483647"
            }
            Self::ExpireTime(_) => "invalid expire time",
            Self::UnsupportedOption(_) => "Unsupported option",
            Self::NxAndOthers => "NX and XX, GT or LT options at the same time are not compatible",
            Self::GtAndLt => "GT and LT options at the same time are not compatible",
            Self::InvalidCursor => "invalid cursor",
            Self::IncrementOverflow => "increment or decrement would overflow",
            Self::DecrementOverflow => "decrement would overflow",
            Self::Offset => "offset is out of range",
            Self::TooLong => "string exceeds maximum allowed size (proto-max-bulk-len)",
            Self::NoSuchKey => "no such key",
            Self::SameObject => "source and destination objects are the same",
            Self::NoSuchDatabase => "DB index is out of range",
            Self::NoCluster => "This instance has cluster support disabled",
            Self::NestedMulti => "MULTI calls can not be nested",
            Self::ExecWithoutMulti => "EXEC without MULTI",
            Self::DiscardWithoutMulti => "DISCARD without MULTI",
            Self::WatchInsideMulti => "WATCH inside MULTI is not allowed",
            Self::NotInMulti => "Command not allowed inside a transaction",
            Self::ProtocolNotInteger => "Protocol version is not an integer or out of range",
            Self::HelloOption(_) => "Syntax error in HELLO option",
            Self::ClientName => {
                "Client names cannot contain spaces, newlines or special characters."
            }
            Self::ClientNameLength => "client names cannot be longer than 1024 bytes",
            Self::InvalidNumkeys => "invalid numkeys value",
            Self::Digest => "must be exactly 16 hexadecimal characters",
            Self::InvalidCondition => "Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE",
            Self::PairCount => "wrong number of key-value pairs",
            Self::BoundNotInteger(_) => "is not an integer or out of range",
            Self::BoundNotFloat(_) => "is not a valid float",
            Self::Bounds => "LBOUND can't be greater than UBOUND",
            Self::ExpirationMissing => "ENX flag requires an expiration",
            Self::AppliedOverflow => "applied increment would overflow",
            Self::NotAString => {
                return (
                    "WRONGTYPE",
                    "Operation against a key holding the wrong kind of value",
                );
            }
            Self::ExecAbort => {
                return (
                    "EXECABORT",
                    "Transaction discarded because of previous errors.",
                );
            }
            Self::ExecRefused => {
                let words = "Transaction discarded because of: wrong number of arguments for 'exec' command";
                return ("EXECABORT", words);
            }
            Self::NotAuthenticated => return ("NOAUTH", "Authentication required."),
            Self::WrongPassword => {
                return (
                    "WRONGPASS",
                    "invalid username-password pair or user is disabled.",
                );
            }
            Self::NoSuchProtocol => return ("NOPROTO", "unsupported protocol version"),
            Self::NoScript => return ("NOSCRIPT", "No matching script. Please use EVAL."),
            Self::HelloNotAuthenticated => return ("NOAUTH", HELLO_FIRST),
        };
        ("ERR", words)
    }

    /// Returns the code, such as `ERR` or `NOAUTH`, which the server may count and log.
    pub fn code(&self) -> &'static str {
        self.words().0
    }

    /// Writes the error as a reply.
    pub fn write(&self, replies: &mut Writer) {
        let (code, words) = self.words();
        let (code, words) = (code.as_bytes(), words.as_bytes());
        match *self {
            Self::UnknownCommand(args) => unknown(args, replies),
            Self::UnknownSubcommand { command, name } => replies.error(&[
                b"ERR unknown subcommand '",
                c_string(name, 128),
                b"'. Try ",
                command.to_ascii_uppercase().as_bytes(),
                b" HELP.",
            ]),
            Self::Arity(name) | Self::ExpireTime(name) => {
                let before: &[u8] = if matches!(self, Self::Arity(_)) {
                    b" for '"
                } else {
                    b" in '"
                };
                replies.error(&[code, b" ", words, before, name.as_bytes(), b"' command"]);
            }
            Self::BoundNotInteger(bound) | Self::BoundNotFloat(bound) => {
                replies.error(&[code, b" ", bound.as_bytes(), b" ", words]);
            }
            Self::UnsupportedOption(option) => {
                replies.error(&[code, b" ", words, b" ", c_string(option, usize::MAX)]);
            }
            Self::HelloOption(option) => {
                replies.error(&[code, b" ", words, b" '", c_string(option, usize::MAX), b"'"]);
            }
            _ => replies.error(&[code, b" ", words]),
        }
    }
}

const HELLO_FIRST: &str = "HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
    AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the \
    same time";

/// Writes an error with the caller's code and text.
pub fn write_verbatim_error(code: &str, words: &str, replies: &mut Writer) {
    replies.error(&[code.as_bytes(), b" ", words.as_bytes()]);
}

/// Returns the bytes of a string that C would print: up to a NUL, and at most `most` bytes.
fn c_string(bytes: &[u8], most: usize) -> &[u8] {
    let bytes = bytes.get(..most).unwrap_or(bytes);
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Writes the error for an unknown command, with at most 128 bytes of the name and about as many of the arguments.
fn unknown(args: Args<'_>, replies: &mut Writer) {
    let mut shown: Vec<u8> = Vec::new();
    for argument in args.from(1).iter() {
        if shown.len() >= 128 {
            break;
        }
        let left = 128 - shown.len();
        shown.push(b'\'');
        shown.extend_from_slice(c_string(argument, left));
        shown.extend_from_slice(b"' ");
    }
    let name = c_string(args.at(0), 128);
    replies.error(&[
        b"ERR unknown command '",
        name,
        b"', with args beginning with: ",
        &shown,
        if structures::is_one(name) {
            b"; this server stores only string values, no lists, hashes, sets or streams: see docs/door.md"
        } else {
            b""
        },
    ]);
}
