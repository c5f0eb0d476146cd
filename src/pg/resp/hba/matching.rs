//! Finds the line of pg_hba.conf that applies to a login, and checks maps of pg_ident.conf. `resp::auth` checks whether
//! the client meets the line's requirements.
//!
//! As for sessions, the first matching line decides, whatever its method. A line with a method that the Redis protocol
//! does not support is not skipped; otherwise a later, weaker line would decide.

use std::cell::OnceCell;
use std::ffi::{CStr, CString};
use std::net::IpAddr;

use pgrx::pg_sys::{self, Oid};

use super::line::{Connections, Line, Mapping, Origin, Token};
use super::network::{host_name, interfaces, is_named, is_within};
use super::regex;
use super::{Peer, PeerAddress};

/// A login: the user, the database, and the client's address.
pub struct Login<'l> {
    pub user: &'l CStr,
    /// The role with this user name; InvalidOid if none exists.
    pub role: Oid,
    pub database: &'l CStr,
    pub peer: &'l Peer,
    /// The host name of the client, looked up when a line first needs it.
    host: OnceCell<Option<String>>,
}

impl<'l> Login<'l> {
    /// Looks up the role. Runs within a transaction.
    pub fn new(user: &'l CStr, database: &'l CStr, peer: &'l Peer) -> Login<'l> {
        Login {
            user,
            role: role_named(user),
            database,
            peer,
            host: OnceCell::new(),
        }
    }

    /// Returns the first line that applies to this login; None if no line does.
    pub fn line<'r>(&self, lines: &'r [Line]) -> Option<&'r Line> {
        lines.iter().find(|line| {
            self.comes_by(line)
                && self.is_for_database(&line.databases)
                && self.is_for_role(&line.roles)
        })
    }

    fn comes_by(&self, line: &Line) -> bool {
        let Some(address) = self.peer.ip() else {
            return line.connections == Connections::Local;
        };
        let tls = self.peer.tls;
        let encrypted = match line.connections {
            Connections::Local | Connections::HostGss => false,
            Connections::Host => true,
            Connections::HostTls => tls,
            Connections::HostWithoutTls => !tls,
        };
        encrypted && self.comes_from(&line.origin, address)
    }

    fn comes_from(&self, origin: &Origin, address: IpAddr) -> bool {
        match origin {
            Origin::Anywhere => true,
            Origin::Network {
                address: network,
                mask,
            } => is_within(address, *network, *mask),
            Origin::SameHost => interfaces().iter().any(|own| own.address == address),
            Origin::SameNet => interfaces()
                .iter()
                .any(|own| is_within(address, own.address, own.mask)),
            Origin::Name(pattern) => self
                .host
                .get_or_init(|| host_name(address))
                .as_ref()
                .is_some_and(|name| is_named(pattern, name)),
        }
    }

    fn is_for_database(&self, tokens: &[Token]) -> bool {
        let database = self.database.to_bytes();
        tokens.iter().any(|token| {
            if token.is_keyword("all") {
                true
            } else if token.is_keyword("sameuser") {
                database == self.user.to_bytes()
            } else if token.is_keyword("samerole") || token.is_keyword("samegroup") {
                self.is_member(database)
            } else if token.is_keyword("replication") {
                false
            } else if let Some(pattern) = token.pattern() {
                is_found(pattern, database)
            } else {
                token.text == database
            }
        })
    }

    fn is_for_role(&self, tokens: &[Token]) -> bool {
        let user = self.user.to_bytes();
        tokens.iter().any(|token| {
            if let Some(group) = token.group() {
                self.is_member(group)
            } else if token.is_keyword("all") {
                true
            } else if let Some(pattern) = token.pattern() {
                is_found(pattern, user)
            } else {
                token.text == user
            }
        })
    }

    /// Returns whether the role is a member of the role `of` by GRANT. Unlike elsewhere, a superuser is not a member of
    /// every role.
    fn is_member(&self, of: &[u8]) -> bool {
        let Ok(of) = CString::new(of) else {
            return false;
        };
        let of = role_named(&of);
        let there = self.role != pg_sys::InvalidOid && of != pg_sys::InvalidOid;
        // SAFETY: syscache lookups of two roles within the caller's transaction.
        there && unsafe { pg_sys::is_member_of_role_nosuper(self.role, of) }
    }

    /// Returns whether a system user may log in as this role, because the line's map allows it or, if the line has no
    /// map, because the names are equal.
    pub fn may_be(&self, system_user: &[u8], map: Option<&[u8]>, mappings: &[Mapping]) -> bool {
        let Some(map) = map.filter(|map| !map.is_empty()) else {
            return system_user == self.user.to_bytes();
        };
        for mapping in mappings.iter().filter(|mapping| mapping.map == map) {
            match self.is_mapped(system_user, mapping) {
                Ok(false) => {}
                Ok(true) => return true,
                // As in Postgres, a line whose expression cannot be evaluated refuses the login, and later lines are
                // not checked.
                Err(regex::Failed) => return false,
            }
        }
        false
    }

    fn is_mapped(&self, system_user: &[u8], mapping: &Mapping) -> Result<bool, regex::Failed> {
        let Some(pattern) = mapping.system_user.pattern() else {
            let same = mapping.system_user.text == system_user;
            return Ok(same && self.is_for_role(std::slice::from_ref(&mapping.role)));
        };
        let Some(found) = regex::search(pattern, system_user)? else {
            return Ok(false);
        };
        let reference = match mapping.role.is_pattern {
            true => None,
            false => place_of(b"\\1", &mapping.role.text),
        };
        let Some(place) = reference else {
            return Ok(self.is_for_role(std::slice::from_ref(&mapping.role)));
        };
        let group = found.group.and_then(|group| system_user.get(group));
        let group = group.ok_or(regex::Failed)?;
        let text = &mapping.role.text;
        let name = [&text[..place], group, &text[place + 2..]].concat();
        // The name comes from the client, so it is compared as plain text.
        Ok(name == self.user.to_bytes())
    }
}

impl Peer {
    /// Returns the address of a network client as Postgres would see it. An IPv4 address that is mapped into IPv6
    /// becomes an IPv4 address, because Postgres' IPv6 sockets accept no IPv4 connections.
    fn ip(&self) -> Option<IpAddr> {
        match self.address {
            PeerAddress::Unix { .. } => None,
            PeerAddress::Tcp(address) => Some(address.ip().to_canonical()),
        }
    }
}

/// Returns the role of this name; 0 if none exists. Runs within a transaction.
pub fn role_named(name: &CStr) -> Oid {
    // SAFETY: a syscache lookup within the caller's transaction, with a name that lives through it; the result is 0 for
    // a name that no role has.
    unsafe { pg_sys::get_role_oid(name.as_ptr(), true) }
}

fn is_found(pattern: &[u8], text: &[u8]) -> bool {
    matches!(regex::search(pattern, text), Ok(Some(_)))
}

fn place_of(needle: &[u8], text: &[u8]) -> Option<usize> {
    text.windows(needle.len()).position(|part| part == needle)
}
