//! Lines of pg_hba.conf and pg_ident.conf, as plain data.

use std::net::IpAddr;

/// A word of a line.
#[derive(Debug, Clone)]
pub struct Token {
    pub text: Vec<u8>,
    /// In quotes a word has no other meaning than itself.
    pub quoted: bool,
    /// It begins with a slash, and what follows is a regular expression.
    pub is_pattern: bool,
}

impl Token {
    /// Whether it is this word and means what the word stands for.
    pub fn is_keyword(&self, word: &str) -> bool {
        !self.quoted && self.text == word.as_bytes()
    }

    /// The role whose members are meant, without the plus sign.
    pub fn group(&self) -> Option<&[u8]> {
        match self.quoted {
            true => None,
            false => self.text.strip_prefix(b"+"),
        }
    }

    /// The regular expression, without the slash.
    pub fn pattern(&self) -> Option<&[u8]> {
        match self.is_pattern {
            true => self.text.strip_prefix(b"/"),
            false => None,
        }
    }
}

/// Which connections a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    Local,
    Host,
    HostTls,
    HostWithoutTls,
    /// Encrypted by GSS, as none of ours is.
    HostGss,
}

/// From where a connection comes.
#[derive(Debug, Clone)]
pub enum Origin {
    Anywhere,
    Network {
        address: IpAddr,
        mask: IpAddr,
    },
    /// A host's name, or with a dot at its beginning a domain's.
    Name(Vec<u8>),
    SameHost,
    SameNet,
}

/// What a client has to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Reject,
    Trust,
    Peer,
    /// A password; whether it must be stored for SCRAM.
    Password {
        scram_only: bool,
    },
    /// A certificate, and nothing else.
    Certificate,
    /// One that the door cannot ask for.
    Other,
}

/// Which certificate a client has to show, besides the method or as the method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownCertificate {
    NotAsked,
    /// Anybody's whom the CA knows.
    Verified,
    /// One whose common name may be the role.
    CommonName,
    /// One whose distinguished name may be the role.
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
    /// The map of pg_ident.conf that says which system user may be which role.
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
