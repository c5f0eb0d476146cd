//! The lines of pg_hba.conf and pg_ident.conf as plain data. `hba_files` parses them, and `matching` compares them with
//! a login.

use std::net::IpAddr;

/// A word of a line.
#[derive(Debug, Clone)]
pub struct Token {
    pub text: Vec<u8>,
    /// Whether the word was quoted, so that it is not a keyword.
    pub quoted: bool,
    /// Whether the word begins with a slash, so that the rest is a regular expression.
    pub is_pattern: bool,
}

impl Token {
    /// Returns whether the word is this keyword and not quoted.
    pub fn is_keyword(&self, word: &str) -> bool {
        !self.quoted && self.text == word.as_bytes()
    }

    /// Returns the role's name, without the plus sign, if the word stands for the members of a role.
    pub fn group(&self) -> Option<&[u8]> {
        match self.quoted {
            true => None,
            false => self.text.strip_prefix(b"+"),
        }
    }

    /// Returns the regular expression, without the slash, if the word is one.
    pub fn pattern(&self) -> Option<&[u8]> {
        match self.is_pattern {
            true => self.text.strip_prefix(b"/"),
            false => None,
        }
    }
}

/// The connections to which a line applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    Local,
    Host,
    HostTls,
    HostWithoutTls,
    /// Connections that GSS encrypts; Redis connections never are.
    HostGss,
}

/// The origin of a connection.
#[derive(Debug, Clone)]
pub enum Origin {
    Anywhere,
    Network {
        address: IpAddr,
        mask: IpAddr,
    },
    /// The name of a host, or of a domain if it begins with a dot.
    Name(Vec<u8>),
    SameHost,
    SameNet,
}

/// The method by which a client authenticates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Reject,
    Trust,
    Peer,
    /// A password. With `scram_only`, the server must have stored it as a SCRAM secret.
    Password {
        scram_only: bool,
    },
    /// A certificate alone.
    Certificate,
    /// A method that the Redis protocol does not support.
    Other,
}

/// The certificate that a client must present, either in addition to the method or as the method itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownCertificate {
    NotRequired,
    /// Any certificate that the CA has signed.
    Verified,
    /// A certificate whose common name is the role or is mapped to it.
    CommonName,
    /// A certificate whose distinguished name is the role or is mapped to it.
    DistinguishedName,
}

/// A line of pg_hba.conf.
#[derive(Debug, Clone)]
pub struct Line {
    pub number: u32,
    pub connections: Connections,
    pub databases: Vec<Token>,
    pub roles: Vec<Token>,
    pub origin: Origin,
    pub method: Method,
    /// The map of pg_ident.conf that lists the roles of each system user.
    pub map: Option<Vec<u8>>,
    pub certificate: ShownCertificate,
}

/// A line of pg_ident.conf.
#[derive(Debug, Clone)]
pub struct Mapping {
    pub map: Vec<u8>,
    pub system_user: Token,
    pub role: Token,
}
