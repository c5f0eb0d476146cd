//! Reads pg_hba.conf and pg_ident.conf with Postgres' own parsers, and copies the parsed lines.
//!
//! It calls only the parsers of single lines, which read nothing but the given line. `load_hba`, `load_ident` and
//! `check_usermap` would crash, because they use lists of the postmaster in a memory context that every child process
//! has freed.

use std::ffi::{CStr, c_char, c_int};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pgrx::pg_sys;

use super::line::{Connections, Line, Mapping, Method, Origin, ShownCertificate, Token};
use crate::pg::encoding::decode;
use crate::pg::memory::pg_list;
use crate::pg::memory::unguarded::guarded;
use crate::pg::version::auth_files::{
    self, AuthToken, HbaLine, IdentLine, TokenizedAuthLine, Word,
};
use crate::pg::version::hba_layout::{
    self as layout, Address, client_cert, client_cert_name, comparison, connections, method,
};

unsafe extern "C-unwind" {
    fn parse_hba_line(line: *mut TokenizedAuthLine, level: c_int) -> *mut HbaLine;
    fn parse_ident_line(line: *mut TokenizedAuthLine, level: c_int) -> *mut IdentLine;
}

/// The reason why a file cannot be used, as Postgres reports it.
pub struct Unusable(pub String);

/// Returns the lines of pg_hba.conf. As in Postgres, one invalid line makes the whole file unusable.
pub fn hba() -> Result<Vec<Line>, Unusable> {
    // SAFETY: the file name belongs to this process's settings, which change only between transactions.
    let path = unsafe { CStr::from_ptr(pg_sys::HbaFileName) };
    // SAFETY: the parser receives lines of Postgres' tokenizer; its results are copied before Postgres' memory is
    // freed.
    let lines = unsafe { each_line(path, hba_line) }?;
    match lines.is_empty() {
        true => Err(Unusable(format!(
            "The file \"{}\" contains no entries.",
            decode(path.to_bytes())
        ))),
        false => Ok(lines),
    }
}

/// Returns the lines of pg_ident.conf.
pub fn ident() -> Result<Vec<Mapping>, Unusable> {
    // SAFETY: as in `hba`.
    let path = unsafe { CStr::from_ptr(pg_sys::IdentFileName) };
    // SAFETY: as in `hba`.
    unsafe { each_line(path, mapping) }
}

/// Returns the result of `parse` for each line of a file. Postgres allocates words and parsed lines in a separate
/// memory context, which after an error is freed with the transaction.
///
/// # Safety
/// Runs within a transaction. `parse` keeps no pointer into the line that it receives.
unsafe fn each_line<R>(
    path: &CStr,
    parse: impl Fn(*mut TokenizedAuthLine) -> Option<R>,
) -> Result<Vec<R>, Unusable> {
    // SAFETY: the new context is a child of the current context, and is current until it is deleted; nothing allocated
    // in it is used after its deletion. The list contains tokenized lines.
    unsafe {
        let former = pg_sys::CurrentMemoryContext;
        let context = pg_sys::AllocSetContextCreateInternal(
            former,
            c"pgcache hba".as_ptr(),
            pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
        );
        pg_sys::CurrentMemoryContext = context;
        let parsed = auth_files::with_auth_lines(path, SILENT, |lines| {
            let lines = pg_list::pointers::<TokenizedAuthLine>(lines);
            let parsed = lines.into_iter().map(|line| {
                let result = (*line).err_msg.is_null().then(|| parse(line)).flatten();
                result.ok_or_else(|| error(path, &*line))
            });
            parsed.collect()
        });
        pg_sys::CurrentMemoryContext = former;
        pg_sys::MemoryContextDelete(context);
        parsed.unwrap_or_else(|| {
            let name = decode(path.to_bytes());
            Err(Unusable(format!("The file \"{name}\" cannot be opened.")))
        })
    }
}

/// # Safety
/// A parser refused the line, and set the reason.
unsafe fn error(path: &CStr, line: &TokenizedAuthLine) -> Unusable {
    // SAFETY: the line comes from the tokenizer and outlives this call.
    let file = unsafe { auth_files::file_of(line) }.unwrap_or(path);
    // SAFETY: the message is NULL or a C string in the memory of the lines.
    let why = unsafe { optional(line.err_msg) }.unwrap_or_default();
    Unusable(format!(
        "Line {} of the file \"{}\": {}",
        line.line_num,
        decode(file.to_bytes()),
        decode(&why)
    ))
}

/// The level at which Postgres' parsers report invalid lines. It is too low for the log, because the postmaster already
/// logs these lines.
const SILENT: c_int = pg_sys::DEBUG1 as c_int;

fn hba_line(line: *mut TokenizedAuthLine) -> Option<Line> {
    // SAFETY: the line comes from the tokenizer, and its memory context is current; the result is NULL or a line whose
    // strings and lists live as long as that context.
    unsafe {
        let parsed = guarded(|| parse_hba_line(line, SILENT));
        if parsed.is_null() {
            return None;
        }
        let parsed = auth_files::fields_of(parsed);
        Some(Line {
            number: u32::try_from(parsed.linenumber).unwrap_or(0),
            connections: connections_of(parsed.conntype)?,
            databases: tokens(parsed.databases),
            roles: tokens(parsed.roles),
            origin: origin(parsed)?,
            method: method_of(parsed.auth_method),
            map: optional(parsed.usermap),
            certificate: certificate_of(parsed)?,
        })
    }
}

fn connections_of(kind: u32) -> Option<Connections> {
    match kind {
        connections::LOCAL => Some(Connections::Local),
        // Redis connections are never encrypted by GSS, so `hostnogssenc` equals `host`.
        connections::HOST | connections::HOST_NO_GSS => Some(Connections::Host),
        connections::HOST_SSL => Some(Connections::HostTls),
        connections::HOST_NO_SSL => Some(Connections::HostWithoutTls),
        connections::HOST_GSS => Some(Connections::HostGss),
        _ => None,
    }
}

fn method_of(number: u32) -> Method {
    match number {
        method::REJECT => Method::Reject,
        method::TRUST => Method::Trust,
        auth_files::PEER => Method::Peer,
        method::PASSWORD | method::MD5 => Method::Password { scram_only: false },
        method::CERT => Method::Certificate,
        method::SCRAM => Method::Password { scram_only: true },
        _ => Method::Other,
    }
}

/// Returns the certificate that a line requires. The method `cert` requires the full check, whatever the line's options
/// are.
fn certificate_of(line: &layout::HbaLine15) -> Option<ShownCertificate> {
    let required = match line.auth_method {
        method::CERT => client_cert::FULL,
        _ => line.clientcert,
    };
    match (required, line.clientcertname) {
        (client_cert::OFF, _) => Some(ShownCertificate::NotRequired),
        (client_cert::CA, _) => Some(ShownCertificate::Verified),
        (client_cert::FULL, client_cert_name::CN) => Some(ShownCertificate::CommonName),
        (client_cert::FULL, client_cert_name::DN) => Some(ShownCertificate::DistinguishedName),
        _ => None,
    }
}

/// # Safety
/// `line` is a line that Postgres has parsed.
unsafe fn origin(line: &layout::HbaLine15) -> Option<Origin> {
    if line.conntype == connections::LOCAL {
        return Some(Origin::Anywhere);
    }
    match line.ip_cmp_method {
        comparison::ALL => Some(Origin::Anywhere),
        comparison::SAME_HOST => Some(Origin::SameHost),
        comparison::SAME_NET => Some(Origin::SameNet),
        comparison::MASK => {
            // SAFETY: the name is NULL or a C string of the parsed line.
            if let Some(name) = unsafe { optional(line.hostname) } {
                return Some(Origin::Name(name));
            }
            Some(Origin::Network {
                address: address_of(&line.addr)?,
                mask: address_of(&line.mask)?,
            })
        }
        _ => None,
    }
}

/// The address family of IPv4 on Linux.
const AF_INET: u16 = 2;
/// The address family of IPv6 on Linux.
const AF_INET6: u16 = 10;

/// Returns the IP address in a `sockaddr`; None for any other family.
pub fn address_of(address: &Address) -> Option<IpAddr> {
    // The port comes first; an IPv6 address follows after four more bytes.
    match address.family {
        AF_INET => {
            let bytes: [u8; 4] = address.bytes.get(2..6)?.try_into().ok()?;
            Some(IpAddr::V4(Ipv4Addr::from(bytes)))
        }
        AF_INET6 => {
            let bytes: [u8; 16] = address.bytes.get(6..22)?.try_into().ok()?;
            Some(IpAddr::V6(Ipv6Addr::from(bytes)))
        }
        _ => None,
    }
}

/// Returns the same address as a `sockaddr`, without a port.
pub fn sockaddr_of(address: IpAddr) -> Address {
    let mut bytes = [0; 126];
    let family = match address {
        IpAddr::V4(address) => {
            bytes[2..6].copy_from_slice(&address.octets());
            AF_INET
        }
        IpAddr::V6(address) => {
            bytes[6..22].copy_from_slice(&address.octets());
            AF_INET6
        }
    };
    Address { family, bytes }
}

fn mapping(line: *mut TokenizedAuthLine) -> Option<Mapping> {
    // SAFETY: the line comes from the tokenizer, and its memory context is current; the result is NULL or a line whose
    // strings live as long as that context.
    unsafe {
        let parsed = guarded(|| parse_ident_line(line, SILENT));
        (!parsed.is_null()).then(|| mapping_of(parsed))
    }
}

/// # Safety
/// `parsed` is a line that Postgres has parsed, and is not used again.
unsafe fn mapping_of(parsed: *mut IdentLine) -> Mapping {
    // SAFETY: the strings of a parsed line are never NULL.
    unsafe {
        let (map, system_user, role) = auth_files::words_of(parsed);
        Mapping {
            map: bytes(map),
            system_user: token(system_user),
            role: token(role),
        }
    }
}

/// # Safety
/// `list` is a list of words.
unsafe fn tokens(list: *mut layout::List) -> Vec<Token> {
    // SAFETY: the list contains words, each with its string.
    unsafe {
        let words = pg_list::pointers::<AuthToken>(list.cast());
        words
            .into_iter()
            .map(|word| token(auth_files::word_of(&*word)))
            .collect()
    }
}

/// # Safety
/// `word` is a word with its string.
unsafe fn token(word: Word) -> Token {
    Token {
        // SAFETY: a word's string is a C string.
        text: unsafe { bytes(word.text) },
        quoted: word.quoted,
        is_pattern: word.is_pattern,
    }
}

/// # Safety
/// `text` is a C string.
unsafe fn bytes(text: *const c_char) -> Vec<u8> {
    // SAFETY: a C string, as the caller promises; it is copied.
    unsafe { CStr::from_ptr(text) }.to_bytes().to_vec()
}

/// # Safety
/// `text` is NULL or a C string.
unsafe fn optional(text: *const c_char) -> Option<Vec<u8>> {
    // SAFETY: not NULL where it is read.
    (!text.is_null()).then(|| unsafe { bytes(text) })
}
