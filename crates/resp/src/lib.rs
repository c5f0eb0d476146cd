//! The Redis protocol (RESP 2 and 3): bytes in, commands out; replies in, bytes out.
//!
//! It has a parser of requests that can be cut at any byte, the table of commands, commands with their arguments
//! parsed as in Redis, the texts of its errors, and a writer of replies. It does not open sockets, read clocks, hold
//! entries or know roles; the caller does. Guards two rules: **a request costs only what has arrived of it**, never
//! what it announces; and **no argument is copied**: a typed command points into the caller's buffer.
//!
//! # Using it
//!
//! ```
//! use pgcache_resp::{Command, Limits, Parser, Protocol, Writer};
//!
//! let mut parser = Parser::new(Limits::default());
//! let mut replies = Writer::new(Protocol::Resp2, 1 << 20);
//! let input = b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\nPING\r\n*1\r\n$4\r\nPI";    // the last one is cut
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
//! assert_eq!(&input[at..], b"*1\r\n$4\r\nPI");                              // to be kept, and continued
//! ```
//!
//! # Floors
//!
//! Each file imports only lower ones.
//!
//! | floor | what |
//! |---|---|
//! | `command` | commands with their arguments |
//! | `describe` | the table of commands as COMMAND replies it |
//! | `batch` | requests that came together, cut before the first is run |
//! | `float` | sums of INCRBYFLOAT and INCREX |
//! | `failure`, `request` | Redis' errors; the parser |
//! | `reply`, `table`, `inline`, `structures` | the writer; the table; lines typed by hand; unsupported names |
//! | `args`, `number`, `glob` | arguments, integers, patterns |

mod args;
mod batch;
mod command;
mod describe;
mod failure;
mod float;
mod glob;
mod inline;
mod number;
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
pub use failure::{Failure, write_verbatim_error};
pub use float::{FloatSum, Summed, add_floats};
pub use glob::{matches, matches_within};
pub use number::{Digits, integer};
pub use reply::{Protocol, Writer};
pub use request::{Broken, Limits, Parser, Request};
pub use table::{
    Counted, Entry, Handler, Keys, Kind, TABLE, category, find, flag, known_name, named, rule,
};
