//! Declarations from libpq/hba.h, for which pgrx generates no bindings: the structures of Postgres 15, the structures
//! that 16 changed, and the enum value that 19 changed.
//!
//! Only this file depends on the positions of fields; with a wrong position, pgcache would read arbitrary memory. So
//! `t/tests/resp_layout.rs` compares this file with the headers of the installed Postgres. The test compiles the file
//! by itself, so the file must use nothing else of the library.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Postgres' `List`.
pub type List = c_void;

/// `struct sockaddr_storage`.
#[repr(C, align(8))]
pub struct Address {
    pub family: u16,
    pub bytes: [u8; 126],
}

/// A word of a line.
#[repr(C)]
pub struct AuthToken15 {
    pub string: *const c_char,
    pub quoted: bool,
}

/// A word of a line from Postgres 16 on, with the compiled expression if the word begins with a slash.
#[repr(C)]
pub struct AuthToken16 {
    pub string: *const c_char,
    pub quoted: bool,
    pub regex: *mut c_void,
}

/// A line, divided into words.
#[repr(C)]
pub struct TokenizedAuthLine15 {
    pub fields: *mut List,
    pub line_num: c_int,
    pub raw_line: *mut c_char,
    pub err_msg: *const c_char,
}

/// A line, divided into words, from Postgres 16 on.
#[repr(C)]
pub struct TokenizedAuthLine16 {
    pub fields: *mut List,
    pub file_name: *mut c_char,
    pub line_num: c_int,
    pub raw_line: *mut c_char,
    pub err_msg: *const c_char,
}

/// A line of pg_hba.conf, up to the last field that pgcache reads.
#[repr(C)]
pub struct HbaLine15 {
    pub linenumber: c_int,
    pub rawline: *mut c_char,
    pub conntype: c_uint,
    pub databases: *mut List,
    pub roles: *mut List,
    pub addr: Address,
    pub addrlen: c_int,
    pub mask: Address,
    pub masklen: c_int,
    pub ip_cmp_method: c_uint,
    pub hostname: *const c_char,
    pub auth_method: c_uint,
    pub usermap: *const c_char,
    pub pamservice: *mut c_char,
    pub pam_use_hostname: bool,
    pub ldaptls: bool,
    pub ldapscheme: *mut c_char,
    pub ldapserver: *mut c_char,
    pub ldapport: c_int,
    pub ldapbinddn: *mut c_char,
    pub ldapbindpasswd: *mut c_char,
    pub ldapsearchattribute: *mut c_char,
    pub ldapsearchfilter: *mut c_char,
    pub ldapbasedn: *mut c_char,
    pub ldapscope: c_int,
    pub ldapprefix: *mut c_char,
    pub ldapsuffix: *mut c_char,
    pub clientcert: c_uint,
    pub clientcertname: c_uint,
}

/// A line of pg_hba.conf from Postgres 16 on, which begins with the name of its file.
#[repr(C)]
pub struct HbaLine16 {
    pub sourcefile: *mut c_char,
    pub line: HbaLine15,
}

/// A line of pg_ident.conf. In memory the regular expression follows the other fields; it is compiled if `ident_user`
/// begins with a slash.
#[repr(C)]
pub struct IdentLine15 {
    pub linenumber: c_int,
    pub usermap: *const c_char,
    pub ident_user: *const c_char,
    pub pg_role: *const c_char,
    pub re: [u64; 0],
}

/// A line of pg_ident.conf from Postgres 16 on.
#[repr(C)]
pub struct IdentLine16 {
    pub linenumber: c_int,
    pub usermap: *const c_char,
    pub system_user: *const AuthToken16,
    pub pg_user: *const AuthToken16,
}

/// `ConnType`: the connections to which a line applies.
pub mod connections {
    pub const LOCAL: u32 = 0;
    pub const HOST: u32 = 1;
    pub const HOST_SSL: u32 = 2;
    pub const HOST_NO_SSL: u32 = 3;
    pub const HOST_GSS: u32 = 4;
    pub const HOST_NO_GSS: u32 = 5;
}

/// `IPCompareMethod`: how a client's address is compared with a line.
pub mod comparison {
    pub const MASK: u32 = 0;
    pub const SAME_HOST: u32 = 1;
    pub const SAME_NET: u32 = 2;
    pub const ALL: u32 = 3;
}

/// `UserAuth`: the methods that the Redis protocol's server supports.
pub mod method {
    pub const REJECT: u32 = 0;
    pub const TRUST: u32 = 2;
    pub const PASSWORD: u32 = 4;
    pub const MD5: u32 = 5;
    pub const SCRAM: u32 = 6;
    pub const PEER: u32 = 14;
    /// `peer` from Postgres 19 on, where the methods before it no longer include RADIUS.
    pub const PEER19: u32 = 13;
    pub const CERT: u32 = 12;
}

/// `ClientCertMode`: the certificate that is required.
pub mod client_cert {
    pub const OFF: u32 = 0;
    pub const CA: u32 = 1;
    pub const FULL: u32 = 2;
}

/// `ClientCertName`: the name in the certificate that is compared with the role.
pub mod client_cert_name {
    pub const CN: u32 = 0;
    pub const DN: u32 = 1;
}
