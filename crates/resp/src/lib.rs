//! Parses and writes the Redis protocol (RESP 2 and 3): turns bytes into commands, and replies into bytes.
//!
//! The crate has a parser for requests that may arrive in pieces of any size, the table of commands, the commands with
//! their parsed arguments, the texts of Redis' errors, and a writer for replies. It opens no sockets, reads no clock,
//! stores no entries and knows no roles: these are the caller's tasks. Two rules hold: **a request costs memory only
//! for the bytes that have arrived**, whatever length it announces; and **no argument is copied**: a parsed command
//! points into the caller's buffer.
//!
//! # Using it
//!
//! ```
//! use pgcache_resp::{Command, Limits, Parser, Protocol, Writer};
//!
//! let mut parser = Parser::new(Limits::default());
//! let mut replies = Writer::new(Protocol::Resp2, 1 << 20);
//! let input = b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\nPING\r\n*1\r\n$4\r\nPI";    // the last one is incomplete
//! let mut at = 0;
//! while let Ok(Some(request)) = parser.next(&input[at..]) {
//!     at += request.used;
//!     match Command::read(request.args) {
//!         Ok(Command::Echo { message }) => replies.bulk(message),
//!         Ok(Command::Ping { message: None }) => replies.simple("PONG"),
//!         Ok(_) => {}
//!         Err(failure) => failure.write(&mut replies),
//!     }
//! }
//! assert_eq!(replies.as_bytes(), b"$2\r\nhi\r\n+PONG\r\n");
//! assert_eq!(&input[at..], b"*1\r\n$4\r\nPI");                              // to be kept until more arrives
//! ```
//!
//! # Floors
//!
//! The layers of the crate. A file imports only files of lower floors.
//!
//! | floor | content |
//! |---|---|
//! | `command` | commands with their arguments |
//! | `describe` | rows of the table of commands as replies of COMMAND |
//! | `batch` | requests that arrived together, split before the first one runs |
//! | `float` | sums of INCRBYFLOAT and INCREX |
//! | `redis_error`, `request` | Redis' errors; the parser |
//! | `reply`, `table`, `inline`, `structures` | the writer; the table; inline commands; unsupported names |
//! | `args` | the arguments of a request |
//! | `number`, `glob` | integers, patterns |

mod args;
mod batch;
mod command;
mod describe;
mod float;
mod glob;
mod inline;
mod number;
mod redis_error;
mod reply;
mod request;
mod structures;
mod table;

pub use args::Args;
pub use batch::Batch;
pub use command::{
    Addend, Command, Condition, CopyOptions, Expiry, Hello, IncrementWithin, Lifetime, Parsed,
    Scan, Set, Unit, When, check_client_name,
};
pub use describe::{describe, describe_all, document, is_of_category};
pub use float::{FloatSum, Summed, add_floats};
pub use glob::{matches, matches_within};
pub use number::{Digits, integer};
pub use redis_error::{Failure, write_verbatim_error};
pub use reply::{Protocol, Writer};
pub use request::{Broken, Limits, Parser, Request};
pub use table::{
    Counted, Entry, Handler, Keys, Kind, TABLE, category, find, flag, known_name, named, rule,
};
